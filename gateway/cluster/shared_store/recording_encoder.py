"""Encodes clients' recordings; with a shared store, once for all gateways.

Recordings are read, and encoded where the voices are here, on a thread, one at a time.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ....tts_engine.errors import Overloaded
from ....tts_engine.voices.enrollable import EnrollableVoices
from ....tts_engine.voices.recording import Recording
from ....tts_engine.voices.storable_prompt import StorablePrompt
from .conditioning import SharedConditioning, conditioning_key

_T = TypeVar("_T")


class RecordingEncoder:
    """Encodes recordings. Belongs to one event loop; close it with ``close``.

    max_waiting: recordings at once; each takes about a second. shared: None encodes every recording here.
    """

    def __init__(self, max_waiting: int, shared: SharedConditioning | None = None) -> None:
        self._max_waiting = max_waiting
        self._shared = shared
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="enrolment")
        self._waiting = 0

    def close(self) -> None:
        """Stop the thread after the recording that it works on."""
        self._thread.shutdown(cancel_futures=True)

    async def encode(
        self, cloning: EnrollableVoices, read: Callable[[], Sequence[Recording]], transcript: str
    ) -> StorablePrompt:
        """Read the recordings of a voice and encode them. Cancelling discards the result.

        Raises Overloaded, and what ``read`` and ``EnrollableVoices.encode_recordings`` raise.
        """
        if self._waiting >= self._max_waiting:
            raise Overloaded(
                f"{self._waiting} recordings are waiting to be encoded, which is the limit",
                reason="enrolments",
                retry_after_s=float(self._waiting),
            )
        self._waiting += 1
        try:
            if self._shared is None:
                return await cloning.encode_on(self._thread, await self._run(read), transcript)
            return await self._encode_once(self._shared, cloning, read, transcript)
        finally:
            self._waiting -= 1

    async def forget(self, prompt_id: str) -> None:
        """Delete what other gateways could use of a removed voice."""
        if self._shared is not None:
            await self._shared.forget(prompt_id)

    async def _encode_once(
        self,
        shared: SharedConditioning,
        cloning: EnrollableVoices,
        read: Callable[[], Sequence[Recording]],
        transcript: str,
    ) -> StorablePrompt:
        def read_and_key() -> tuple[Sequence[Recording], str]:
            recordings = read()
            return recordings, conditioning_key(recordings, transcript, cloning.encoder_digest)

        recordings, key = await self._run(read_and_key)
        return await shared.get_or_encode(
            key,
            transcript,
            lambda: cloning.encode_on(self._thread, recordings, transcript),
            cloning.read_prompt,
        )

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
