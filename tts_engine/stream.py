"""A caller's handle on one utterance: text in as it is written, audio out as it is spoken."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .backends.base import StepResult
from .chunk import SAMPLE_RATE, AudioChunk, Provenance, Word
from .errors import BadText, StreamClosed, SynthesisFailed
from .segmenter import Segmenter
from .session import Session

if TYPE_CHECKING:
    from .engine import Engine

# Every stream ends with this much silence, so that its last chunk is known whatever the timing, and a text
# with nothing to say is this and no error.
_FINAL_SILENCE_S = 0.02


class Stream:
    """One utterance. Use ``async with`` and iterate; leaving the block cancels what is left.

    Methods belong to the loop that opened the stream; none of them blocks or waits.
    """

    def __init__(
        self,
        engine: "Engine",
        session: Session,
        segmenter: Segmenter,
        loop: asyncio.AbstractEventLoop,
        max_characters: int,
    ) -> None:
        self._engine = engine
        self._session = session
        self._segmenter = segmenter
        self._loop = loop
        self._most_characters = max_characters
        self._text: list[str] = []
        self._characters = 0
        self._chunks: deque[AudioChunk] = deque()
        self._failure: Exception | None = None
        self._ended = False
        self._changed = asyncio.Event()
        self._text_range = (0, 0)

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()

    @property
    def text(self) -> str:
        """All text pushed so far; the ranges of chunks and words are its characters."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    def push_text(self, text: str) -> None:
        """Add text, split anywhere. Raises StreamClosed if none can come any more, BadText if too long."""
        self._require_open()
        if self._characters + len(text) > self._most_characters:
            raise BadText(
                f"{self._characters + len(text)} characters in one stream, at most {self._most_characters}"
            )
        self._characters += len(text)
        self._text.append(text)
        segments = self._segmenter.push(text)
        if not segments:
            return
        with self._engine.lock:
            for segment in segments:
                self._session.add(segment, now=time.monotonic())
            self._engine.wake()

    def flush(self) -> None:
        """Speak what is buffered, as a sentence, without waiting for more."""
        self._require_open()
        with self._engine.lock:
            for segment in self._segmenter.flush():
                self._session.add(segment, now=time.monotonic())
            self._engine.wake()

    def end_input(self) -> None:
        """No more text will come: speak what is buffered, then end. Calling it again does nothing."""
        session = self._session
        if session.input_ended or session.cancelled_at is not None:
            return
        with self._engine.lock:
            session.add_last(self._segmenter.flush(), now=time.monotonic())
            session.input_ended = True
            if session.is_fully_rendered and not session.running and self._failure is None:
                self.deliver_end()
                self._engine.release(session)
            self._engine.wake()

    def cancel(self) -> None:
        """End the stream for good: nothing of it is given out or, after the step under way, computed."""
        session = self._session
        if session.cancelled_at is not None:
            return
        with self._engine.lock:
            session.cancelled_at = time.monotonic()
            session.pending.clear()
            self._engine.release(session)
        self._chunks.clear()
        self._ended = True
        self._changed.set()

    def set_deadline(self, runs_dry_at: float) -> None:
        """Tell when the listener has nothing left to play of what it took (``time.monotonic()``)."""
        self._session.deadline = runs_dry_at

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> AudioChunk:
        """The next chunk; raises SynthesisFailed once if the backend failed in this stream."""
        while not self._chunks:
            if self._failure is not None:
                failure, self._failure, self._ended = self._failure, None, True
                raise SynthesisFailed(f"the voice failed: {failure}") from failure
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        chunk = self._chunks.popleft()
        self._ended = chunk.final
        with self._engine.lock:
            self._session.unread_s -= chunk.seconds
            self._engine.wake()
        return chunk

    # What the engine's commit calls, on a worker's thread or on the loop, the lock held

    def deliver(self, rendered: StepResult, wall_s: float) -> None:
        """Turn a step's result into a chunk and hand it to the loop; nothing rendered, nothing handed."""
        current = self._session.current
        if current is not None:
            self._text_range = rendered.text or (current.segment.start, current.segment.stop)
        if len(rendered.samples):
            provenance = Provenance(rendered.speech_ids, rendered.mel_frames, wall_s, rendered.device_s)
            self._send_chunk(_pcm(rendered.samples), rendered.words, provenance, final=False)

    def deliver_end(self) -> None:
        """Hand over the silence that ends every stream."""
        silence = bytes(2 * round(_FINAL_SILENCE_S * SAMPLE_RATE))
        self._send_chunk(silence, (), Provenance(None, None, 0.0, 0.0), final=True)

    def deliver_failure(self, failure: Exception) -> None:
        """Hand over the error that ends this stream."""
        self._call_on_loop(self._receive_failure, failure)

    def _send_chunk(
        self, pcm: bytes, words: tuple[Word, ...], provenance: Provenance, *, final: bool
    ) -> None:
        session = self._session
        start, stop = session.samples, session.samples + len(pcm) // 2
        chunk = AudioChunk(pcm, session.chunks, (start, stop), self._text_range, words, provenance, final)
        session.samples, session.chunks = stop, session.chunks + 1
        session.unread_s += chunk.seconds
        self._call_on_loop(self._receive_chunk, chunk)

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run on the stream's loop; a loop that is gone has no listener, which is a cancellation."""
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            self._session.cancelled_at = time.monotonic()
            self._session.pending.clear()

    def _receive_chunk(self, chunk: AudioChunk) -> None:
        if self._session.cancelled_at is not None:
            return
        text = self.text
        words = tuple(replace(word, text=text[word.text_start : word.text_stop]) for word in chunk.words)
        self._chunks.append(replace(chunk, words=words))
        self._changed.set()

    def _receive_failure(self, failure: Exception) -> None:
        self._failure = failure
        self._changed.set()

    def _require_open(self) -> None:
        if self._session.cancelled_at is not None:
            raise StreamClosed("the stream is cancelled")
        if self._session.input_ended:
            raise StreamClosed("no more text after end_input()")


def _pcm(samples: np.ndarray) -> bytes:
    """float32 in [-1, 1] to s16le, rounded and saturated."""
    scaled = np.rint(samples * np.float32(32767.0))
    return bytes(np.clip(scaled, -32768, 32767).astype("<i2").tobytes())
