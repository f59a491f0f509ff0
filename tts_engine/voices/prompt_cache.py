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

from ...models.cosyvoice.front_end.voice_encoder import VoicePrompt
from ..errors import VivavoceError


def prompt_size_bytes(prompt: VoicePrompt) -> int:
    """Bytes that a prompt takes in memory."""
    return prompt.speech_ids.nbytes + prompt.mel.nbytes + prompt.embedding.nbytes


class PromptCache:
    """Prompts by key, of ``max_bytes`` together; safe from any thread. They are handed out uncopied."""

    def __init__(self, max_bytes: int) -> None:
        self._most_bytes = max_bytes
        self._lock = threading.Lock()
        self._prompts: OrderedDict[str, VoicePrompt] = OrderedDict()
        self._loading: dict[str, Future[VoicePrompt]] = {}
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """What the prompts held take."""
        return self._used_bytes

    def __contains__(self, key: object) -> bool:
        return key in self._prompts

    def get(self, key: str, load: Callable[[], VoicePrompt]) -> VoicePrompt:
        """The prompt of that key, by ``load`` where it is not held; raises what that raises."""
        with self._lock:
            if key in self._prompts:
                self._prompts.move_to_end(key)
                return self._prompts[key]
            loading = self._loading.get(key)
            if loading is None:
                own_loading = self._loading[key] = Future()
        if loading is not None:
            return loading.result()
        return self._load(key, load, own_loading)

    def _load(self, key: str, load: Callable[[], VoicePrompt], loading: Future[VoicePrompt]) -> VoicePrompt:
        try:
            prompt = load()
        except (VivavoceError, OSError) as error:
            loading.set_exception(error)
            raise
        else:
            self._insert(key, prompt)
            loading.set_result(prompt)
            return prompt
        finally:
            with self._lock:
                del self._loading[key]
            loading.cancel()  # after an error that nobody foresaw: whoever waits shall not wait for ever

    def _insert(self, key: str, prompt: VoicePrompt) -> None:
        with self._lock:
            self._prompts[key] = prompt
            self._used_bytes += prompt_size_bytes(prompt)
            while self._used_bytes > self._most_bytes:
                _, oldest = self._prompts.popitem(last=False)
                self._used_bytes -= prompt_size_bytes(oldest)
