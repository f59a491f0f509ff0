"""A bounded, least-recently-used cache of voice prompts. Concurrent requests for a prompt load it once.

    thread 1   get("anna") -> load --------------> prompt
    thread 2        get("anna") -> waits --------> the same prompt
    thread 3           get("anna") -> waits -----> the same prompt

A VivavoceError or OSError of a load is raised in every waiting thread; any other error cancels their wait.
Failures are not cached.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from ..errors import VivavoceError
from .packed_prompt import StorablePrompt


class PromptCache:
    """Prompts by key, ``max_bytes`` in total. May be used from any thread. Prompts are shared, not copied."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._prompts: OrderedDict[str, StorablePrompt] = OrderedDict()
        self._loading: dict[str, Future[StorablePrompt]] = {}
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Size of all prompts in the cache."""
        return self._used_bytes

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the prompts in the cache."""
        with self._lock:
            return frozenset(self._prompts)

    def __contains__(self, key: object) -> bool:
        return key in self._prompts

    def get(self, key: str, load: Callable[[], StorablePrompt]) -> StorablePrompt:
        """The prompt with that key; calls ``load`` if it is not cached, and raises what ``load`` raises."""
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

    def _load(
        self, key: str, load: Callable[[], StorablePrompt], loading: Future[StorablePrompt]
    ) -> StorablePrompt:
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
            # No effect once there is a result; after an unexpected error it ends the wait of other threads.
            loading.cancel()

    def _insert(self, key: str, prompt: StorablePrompt) -> None:
        with self._lock:
            self._prompts[key] = prompt
            self._used_bytes += prompt.nbytes
            while self._used_bytes > self._max_bytes:
                _, oldest = self._prompts.popitem(last=False)
                self._used_bytes -= oldest.nbytes
