"""Playback of Pipecat audio contexts: the speech of one utterance each, at the pace at which it is heard.

    stream.push_text -> engine or server -> next_piece -> AudioContextPlayback -> audio frames, word times

A playback sends nothing before Pipecat plays its context, and at most ``max_lead_s`` of audio ahead of the
listener. ``base_tts_service`` creates playbacks, and cancels them at an interruption.

Source: pipecat-ai 1.14.0, services/tts_service.py, read and measured.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ...tts_engine.chunk import Word
from ...tts_engine.errors import SynthesisFailed, VivavoceError
from ...tts_engine.speech_engine import TextSink
from ..client import SpeechPiece
from ..written_words import WrittenWords
from .word_timing import NANOSECONDS_PER_S

# Below Pipecat's own timeout for a context, after which it records text as spoken that was not.
STALL_TIMEOUT_S: Final = 10.0


class PlaybackHost(Protocol):
    """The pipeline as a playback sees it. ``context_output.ContextOutput`` implements it."""

    @property
    def sample_rate(self) -> int:
        """Rate of the audio frames, Hz."""

    @property
    def max_lead_s(self) -> float:
        """Audio to hand to the pipeline ahead of the listener, seconds."""

    def lead_s(self) -> float:
        """Seconds of audio that the pipeline has and the listener has not heard."""

    def accepted_characters(self, context_id: str) -> float:
        """Characters of a context's text whose words Pipecat accepts; ``math.inf`` for all."""

    def schedule_audio(self, duration_s: float) -> int:
        """Account for the audio to be added next; return the time at which it is heard, ns of the clock."""

    def word_time_s(self, heard_ns: int) -> float:
        """Return a word's time as Pipecat counts it, from the time at which the word is heard."""

    async def add_audio(self, context_id: str, pcm: bytes, heard_ns: int | None = None) -> None:
        """Append an audio frame, s16le mono; ``heard_ns`` becomes its ``pts``."""

    async def add_words(self, context_id: str, words: list[tuple[str, float]]) -> None:
        """Report words as spoken at these times."""

    async def close_clause(self, context_id: str) -> None:
        """Make Pipecat accept the words of all text that a context has so far."""

    async def finish(self, context_id: str) -> None:
        """End a context after its last audio."""

    async def fail(self, context_id: str, error: VivavoceError) -> None:
        """Report an error, and end a context without counting the rest of its text as spoken."""


class UtteranceTextStream(TextSink, Protocol):
    """Text input of an utterance, as in ``tts_engine.stream.Stream``. No method blocks."""

    @property
    def text(self) -> str:
        """All text pushed so far."""

    def cancel(self) -> None:
        """Stop rendering and drop the speech that is not yet taken."""

    def set_deadline(self, runs_dry_at: float) -> None:
        """Set the time at which the listener has nothing left to play (``time.monotonic()``)."""


@dataclass(frozen=True, slots=True)
class SpeechSource:
    """An utterance in progress."""

    stream: UtteranceTextStream
    # Waits for the next audio, s16le at the service's rate, possibly empty, or None at the end.
    # Raises VivavoceError.
    next_piece: Callable[[], Awaitable[SpeechPiece | None]]


class AudioContextPlayback:
    """Plays the utterance of one audio context into the pipeline."""

    def __init__(self, host: PlaybackHost, context_id: str, source: SpeechSource) -> None:
        self.context_id = context_id
        self.stream = source.stream
        self.playback_allowed = asyncio.Event()  # set while Pipecat plays this context
        self.has_text = False
        self.text_ended = False
        self.task: asyncio.Task[None] | None = None  # runs ``speak``
        self._host = host
        self._receive_piece = source.next_piece
        self._written_words = WrittenWords()
        self._words: list[Word] = []  # begun in audio that a resampler withholds
        self._pending_words: list[tuple[Word, float]] = []  # with times; Pipecat does not accept them yet
        self._words_stop = 0  # characters of the text whose words are in these lists or published
        self._played_s = 0.0  # of the stream, handed to the pipeline
        self._stall_timeout: asyncio.Timeout | None = None

    def push_text(self, text: str) -> None:
        """Add text, split anywhere."""
        self.stream.push_text(text)
        self.has_text = True

    def end_text(self) -> None:
        """Note that no more text will come; from now on a silent voice is an error after 10 s."""
        self.text_ended = True
        self.stream.end_input()
        if self._stall_timeout is not None:
            self._stall_timeout.reschedule(asyncio.get_running_loop().time() + STALL_TIMEOUT_S)

    async def publish_words(self) -> None:
        """Report the words of the clauses that Pipecat has completely."""
        if self._pending_words and not self.text_ended and not self.stream.text[self._words_stop :].strip():
            # All written text is spoken: its words must not wait until the LLM writes the next clause.
            await self._host.close_clause(self.context_id)
        stop = math.inf if self.text_ended else self._host.accepted_characters(self.context_id)
        count = sum(
            1 for _ in itertools.takewhile(lambda pending: pending[0].text_stop <= stop, self._pending_words)
        )
        accepted, self._pending_words = self._pending_words[:count], self._pending_words[count:]
        if accepted:
            word_times = [(word.text, seconds) for word, seconds in accepted]
            await self._host.add_words(self.context_id, word_times)

    async def speak(self) -> None:
        """Hand the speech to the pipeline until it ends or fails; run as a task."""
        try:
            while (piece := await self._next_piece_or_stall()) is not None:
                await self.playback_allowed.wait()
                await self._play(piece)
                await asyncio.sleep(self._host.lead_s() - self._host.max_lead_s)
            await self.playback_allowed.wait()
            await self._host.finish(self.context_id)
        except VivavoceError as error:
            await self._host.fail(self.context_id, error)

    async def _next_piece_or_stall(self) -> SpeechPiece | None:
        # While text may still come, silence is normal; after its end it means that the voice is stuck.
        deadline = asyncio.get_running_loop().time() + STALL_TIMEOUT_S if self.text_ended else None
        try:
            async with asyncio.timeout_at(deadline) as self._stall_timeout:
                return await self._receive_piece()
        except TimeoutError:
            raise SynthesisFailed(f"the voice gave nothing for {STALL_TIMEOUT_S:g} s") from None
        finally:
            self._stall_timeout = None

    async def _play(self, piece: SpeechPiece) -> None:
        self._add_words(piece.words)
        if not piece.audio:
            return
        duration_s = len(piece.audio) / 2 / self._host.sample_rate
        heard_ns = self._host.schedule_audio(duration_s)
        for word in self._words:
            word_ns = heard_ns + round((word.start_s - self._played_s) * NANOSECONDS_PER_S)
            self._pending_words.append((word, self._host.word_time_s(word_ns)))
        self._played_s += duration_s
        self._words = []
        await self._host.add_audio(self.context_id, piece.audio, heard_ns)
        await self.publish_words()
        self.stream.set_deadline(time.monotonic() + self._host.lead_s())

    def _add_words(self, words: tuple[Word, ...]) -> None:
        text = self.stream.text
        stop = len(text) if self.text_ended else max(text.rfind(" "), 0)  # the last run may go on
        written = self._written_words.push(words, text, stop)
        if written:
            self._words += written
            self._words_stop = written[-1].text_stop


class AudioContexts:
    """The playbacks of a service, and its contexts in the order in which Pipecat plays them."""

    def __init__(self, begin_context: Callable[[], None]) -> None:
        """Create an empty queue; ``begin_context`` is called when another context becomes the played one."""
        self.playing: str | None = None
        self._begin_context = begin_context
        self._queue: list[str] = []
        self._playbacks: dict[str, AudioContextPlayback] = {}

    def playbacks(self) -> tuple[AudioContextPlayback, ...]:
        """Return the playbacks that have not ended."""
        return tuple(self._playbacks.values())

    def get(self, context_id: str | None) -> AudioContextPlayback | None:
        """Return the playback of a context, if it has one."""
        return self._playbacks.get(context_id or "")

    def add(self, playback: AudioContextPlayback) -> None:
        """Add a playback; it may speak at once if its context is the played one."""
        self._playbacks[playback.context_id] = playback
        if self.playing == playback.context_id:
            playback.playback_allowed.set()

    def pop(self, context_id: str) -> AudioContextPlayback | None:
        """Remove and return the playback of a context, if it has one."""
        return self._playbacks.pop(context_id, None)

    def enqueue(self, context_id: str) -> None:
        """Move a context to the end of the queue."""
        self._remove(context_id)
        self._queue.append(context_id)
        self._advance()

    def dequeue(self, context_id: str) -> None:
        """Remove a context from the queue and let the next one speak."""
        self._remove(context_id)
        self._advance()

    def _remove(self, context_id: str) -> None:
        if context_id in self._queue:
            self._queue.remove(context_id)

    def _advance(self) -> None:
        head = self._queue[0] if self._queue else None
        if head == self.playing:
            return
        self.playing = head
        self._begin_context()
        playback = self.get(head)
        if playback is not None:
            playback.playback_allowed.set()
