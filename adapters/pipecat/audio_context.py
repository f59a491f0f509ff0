"""One utterance of a Pipecat service: the speech of an audio context, on its way to the listener.

    stream.push_text  ->  who speaks  ->  next_piece  ->  audio frames, word times

It gives out nothing before its context is the one that is played, and no more than the listener is about to
hear. Which context that is, and what an interruption does to it, is ``pipecat_service``'s affair.

Source: pipecat-ai 1.14.0, services/tts_service.py, read and measured.
"""

# Pipecat is typed, but for what its functions return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
import itertools
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from ...tts_engine.chunk import Word
from ...tts_engine.errors import MissingExtra, SynthesisFailed, VivavoceError
from ...tts_engine.stream import TextSink
from ..client import SpeechPiece

try:
    from pipecat.frames.frames import TTSAudioRawFrame
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat service", "pipecat") from error

if TYPE_CHECKING:
    from .base_tts_service import BaseVivavoceTTSService

STALL_TIMEOUT_S: Final = 10.0  # before Pipecat would give up on its own and record as said what was not


class UtteranceTextStream(TextSink, Protocol):
    """Where an utterance's text goes, as ``tts_engine.stream.Stream`` takes it; nothing of it waits."""

    @property
    def text(self) -> str:
        """All text pushed so far."""

    def cancel(self) -> None:
        """End for good: nothing more is given out."""

    def set_deadline(self, runs_dry_at: float) -> None:
        """Tell when the listener has nothing left to play (``time.monotonic()``)."""


@dataclass(frozen=True, slots=True)
class SpeechSource:
    """An utterance on its way.

    next_piece: waits for the next audio, s16le at the service's rate, which may be empty; None at the end;
    raises VivavoceError.
    """

    stream: UtteranceTextStream
    next_piece: Callable[[], Awaitable[SpeechPiece | None]]


class AudioContextPlayback:
    """One audio context: its speech, and how it is handed on, at the pace at which it is heard."""

    def __init__(self, service: "BaseVivavoceTTSService", context_id: str, source: SpeechSource) -> None:
        self.context_id = context_id
        self.stream = source.stream
        self.playback_allowed = asyncio.Event()
        self.has_text = False
        self.text_ended = False
        self.task: asyncio.Task[None] | None = None
        self._service = service
        self._receive_piece = source.next_piece
        self._words: list[Word] = []  # begun in audio that a resampler withholds
        self._pending_words: list[tuple[Word, float]] = []  # with their times; Pipecat does not take them yet
        self._words_stop = 0  # characters of the text whose words are in one of these, or told
        self._played_s = 0.0  # of the stream, handed to the pipeline
        self._stall_timeout: asyncio.Timeout | None = None

    def push_text(self, text: str) -> None:
        """Add text, split anywhere."""
        self.stream.push_text(text)
        self.has_text = True

    def end_text(self) -> None:
        """No more text will come."""
        self.text_ended = True
        self.stream.end_input()
        if self._stall_timeout is not None:
            self._stall_timeout.reschedule(asyncio.get_running_loop().time() + STALL_TIMEOUT_S)

    async def publish_words(self) -> None:
        """Tell the words of which Pipecat has the whole clause."""
        if self._pending_words and not self.text_ended and not self.stream.text[self._words_stop :].strip():
            # All that is written is spoken: its words must not wait for a writer who may take his time.
            await self._service.vivavoce_close_clause(self.context_id)
        stop = math.inf if self.text_ended else self._service.vivavoce_accepted_characters(self.context_id)
        count = sum(
            1
            for _ in itertools.takewhile(lambda accepted: accepted[0].text_stop <= stop, self._pending_words)
        )
        accepted, self._pending_words = self._pending_words[:count], self._pending_words[count:]
        if accepted:
            word_times = [(word.text, seconds) for word, seconds in accepted]
            await self._service.add_word_timestamps(word_times, self.context_id)

    async def speak(self) -> None:
        """Hand on what is spoken, until all of it is or it fails; the utterance's task."""
        try:
            while (piece := await self._next_piece_or_stall()) is not None:
                await self.playback_allowed.wait()
                await self._play(piece)
                await asyncio.sleep(self._service.vivavoce_lead_s() - self._service.vivavoce_max_lead_s)
            await self.playback_allowed.wait()
            await self._service.vivavoce_finish(self.context_id)
        except VivavoceError as error:
            await self._service.push_error(str(error), exception=error)
            await self._service.vivavoce_fail(self.context_id, error)

    async def _next_piece_or_stall(self) -> SpeechPiece | None:
        # A writer may take its time; a voice that has all the text and stays silent is stuck.
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
        duration_s = len(piece.audio) / 2 / self._service.sample_rate
        self._pending_words += self._service.vivavoce_schedule_audio(duration_s, self._played_s, self._words)
        self._played_s += duration_s
        self._words = []
        frame = TTSAudioRawFrame(piece.audio, self._service.sample_rate, 1, context_id=self.context_id)
        await self._service.append_to_audio_context(self.context_id, frame)
        await self.publish_words()
        self.stream.set_deadline(time.monotonic() + self._service.vivavoce_lead_s())

    def _add_words(self, words: tuple[Word, ...]) -> None:
        # As they are written: "$5" and "555-0123" are said in several words and told as one.
        for word in words:
            if word.text_start >= self._words_stop:
                start, self._words_stop = _expand_to_spaces(self.stream.text, word.text_start, word.text_stop)
                self._words.append(replace(word, text=self.stream.text[start : self._words_stop]))


def _expand_to_spaces(text: str, start: int, stop: int) -> tuple[int, int]:
    while start > 0 and not text[start - 1].isspace():
        start -= 1
    while stop < len(text) and not text[stop].isspace():
        stop += 1
    return start, stop
