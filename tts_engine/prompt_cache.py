"""Prompts of voices in memory: the least recently used go first, and a cold one is loaded once.

    thread 1   get(anna) -> load ----------------> prompt
    thread 2        get(anna) -> waits ----------> the same prompt
    thread 3           get(anna) -> waits -------> the same prompt

A load that fails is told to everyone who waits for it and forgotten; who asks next tries again.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from ..models.cosyvoice.front_end.voice_encoder import VoicePrompt
from .errors import VivavoceError


def size_of(prompt: VoicePrompt) -> int:
    """Bytes that a prompt takes in memory."""
    return prompt.speech_ids.nbytes + prompt.mel.nbytes + prompt.embedding.nbytes


class PromptCache:
    """Prompts by key, of ``most_bytes`` together; safe from any thread. They are handed out uncopied."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[str, VoicePrompt] = OrderedDict()
        self._loading: dict[str, Future[VoicePrompt]] = {}
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """What the prompts held take."""
        return self._bytes

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def get(self, key: str, load: Callable[[], VoicePrompt]) -> VoicePrompt:
        """The prompt of that key, by ``load`` where it is not held; raises what that raises."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
            flight = self._loading.get(key)
            if flight is None:
                mine = self._loading[key] = Future()
        if flight is not None:
            return flight.result()
        return self._load(key, load, mine)

    def _load(self, key: str, load: Callable[[], VoicePrompt], flight: Future[VoicePrompt]) -> VoicePrompt:
        try:
            prompt = load()
        except (VivavoceError, OSError) as error:
            flight.set_exception(error)
            raise
        else:
            self._keep(key, prompt)
            flight.set_result(prompt)
            return prompt
        finally:
            with self._lock:
                del self._loading[key]
            flight.cancel()  # after an error that nobody foresaw: whoever waits shall not wait for ever

    def _keep(self, key: str, prompt: VoicePrompt) -> None:
        with self._lock:
            self._held[key] = prompt
            self._bytes += size_of(prompt)
            while self._bytes > self._most_bytes:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= size_of(oldest)
