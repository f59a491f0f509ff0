"""A caller's handle on one utterance: text in while it is written, audio out while it is rendered."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from ..models.signal.level import limit
from .backends.base import StepResult
from .chunk import SAMPLE_RATE, AudioChunk, Provenance, Word
from .errors import StreamClosed, SynthesisFailed, UnreadableText
from .reading.clause_boundaries import BoundaryKind
from .reading.pronunciation.lexicon import Pronunciation
from .reading.prosody import NEUTRAL_PROSODY, PlainText, Prosody
from .records.stream_log import StreamLog
from .segmenter import Segment, Segmenter
from .session import Session
from .speech_engine import SpeechStream
from .stream_buffers import ChunkQueue, PushedText
from .text_reader import TextReader, TextReaderHost

# Every stream ends with a chunk of silence: the last chunk does not depend on timing, and a text without any
# word is silence instead of an error.
_FINAL_SILENCE_S = 0.02
# The silence is longer where the last word would end after the audio: its end is estimated when it begins.
_MAX_FINAL_SILENCE_S = 1.0
_MAX_SILENCE_S = 1.0  # in a chunk of silence between segments


class StreamHost(TextReaderHost, Protocol):
    """What a stream needs of its engine."""

    def release(self, session: Session) -> None:
        """Forget a session that is rendered, cancelled, or taken to its end; the lock is held."""

    def report_unread(self, characters: int) -> None:
        """Count letters of an ended stream that the voice could not read; the lock is held."""


class Stream(SpeechStream):
    """A stream of an ``Engine``. A session is its state on the workers' side.

    Args:
        directions: finds those in the text.
        segmenter_in: makes another segmenter, of a part of the text in a language; raises LanguageNotSpoken.
    """

    def __init__(
        self,
        host: StreamHost,
        session: Session,
        segmenter: Segmenter,
        directions: PlainText,
        loop: asyncio.AbstractEventLoop,
        max_characters: int,
        segmenter_in: Callable[[str | None], Segmenter],
        log: StreamLog,
    ) -> None:
        self._host = host
        self._session = session
        self.reader = TextReader(host, session, segmenter, loop, directions)
        self._segmenter_in = segmenter_in
        self.log = log
        self._prosody = NEUTRAL_PROSODY  # of the text from here on
        self._language: str | None = None  # the same; None: the stream's
        self._input_ended = False
        self._loop = loop
        self._pushed = PushedText(max_characters)
        self._chunks = ChunkQueue()
        self._text_range = (0, 0)  # of the chunk rendered last
        self._sample_rate = SAMPLE_RATE  # of the chunk rendered last, Hz
        self._last_word_stop_s = 0.0  # the latest end of a word

    @property
    def text(self) -> str:
        """As ``SpeechStream.text``."""
        return str(self._pushed)

    @property
    def unread_characters(self) -> int:
        """As ``SpeechStream.unread_characters``."""
        return self.reader.segmenter.unread_characters

    def push_text(
        self, text: str, pronunciation: Pronunciation | None = None, pause_s: float | None = None
    ) -> None:
        """As ``SpeechStream.push_text``."""
        self._require_open()
        self._pushed.add(text, pronunciation)
        self.reader.push(text, pronunciation, pause_s)

    def set_prosody(self, prosody: Prosody) -> None:
        """As ``SpeechStream.set_prosody``."""
        self._require_open()
        if prosody != self._prosody:
            self._prosody = prosody
            self.reader.set_prosody(prosody)

    def set_language(self, language: str | None) -> None:
        """As ``SpeechStream.set_language``."""
        self._require_open()
        if language != self._language:
            self.reader.change_segmenter(self._segmenter_in(language))
            self._language = language

    def mark(self, name: str) -> None:
        """As ``SpeechStream.mark``."""
        self._require_open()
        self._pushed.mark(name)

    def flush(self) -> None:
        """As ``SpeechStream.flush``."""
        self._require_open()
        self.reader.flush()

    def end_input(self) -> None:
        """As ``SpeechStream.end_input``."""
        if self._input_ended or self._session.cancelled_at is not None:
            return
        self._input_ended = True
        self.reader.end(self._finish)

    def _finish(self) -> None:
        """End a stream whose text is read to its end, if all of it is rendered; the lock is held."""
        session = self._session
        is_over = session.cancelled_at is not None or self._chunks.failed
        if session.is_fully_rendered and not session.running and not is_over:
            self.deliver_end()
            self._host.release(session)

    def cancel(self) -> None:
        """As ``SpeechStream.cancel``."""
        session = self._session
        if session.cancelled_at is not None:
            return
        with self._host.lock:
            session.cancelled_at = time.monotonic()
            session.drop_text()
            self._host.release(session)
        self._chunks.end()

    def set_deadline(self, runs_dry_at: float) -> None:
        """As ``SpeechStream.set_deadline``."""
        self._session.deadline = runs_dry_at

    async def __anext__(self) -> AudioChunk:
        """The next chunk.

        Raises, once, SynthesisFailed if the backend failed in this stream, and UnreadableText if the voice
        could read no word of the whole text.
        """
        chunk = await self._chunks.take()
        session = self._session
        with self._host.lock:
            session.unread_s -= chunk.seconds
            if chunk.final:
                self._host.release(session)
            elif session.has_work:
                self._host.wake()
            is_last_so_far = chunk.index + 1 == session.chunks  # others may be on their way to the loop
            has_text = session.has_work or session.inputs or session.input_ended
        awaits_text = is_last_so_far and not has_text
        return replace(chunk, awaits_text=True) if awaits_text else chunk

    # Called by the engine's commit with the lock held, on a worker's thread or on the loop

    def deliver(self, rendered: StepResult, wall_s: float) -> None:
        """Send a step's samples to the loop as a chunk, if there are any. wall_s: duration of the step."""
        current = self._session.current
        if current is not None:
            self._text_range = rendered.text or (current.segment.start, current.segment.stop)
        words = self._moved(rendered.words)
        self._last_word_stop_s = max([self._last_word_stop_s, *(word.stop_s for word in words)])
        if len(rendered.samples):
            provenance = Provenance(
                rendered.speech_ids,
                rendered.mel_frames,
                wall_s,
                rendered.device_s,
                rendered.speech_ids_needed,
            )
            stop = _sentence_stop(current.segment) if current and rendered.segment_done else None
            self._sample_rate = rendered.sample_rate
            volume = current.segment.prosody.volume if current else 1.0
            samples = rendered.samples if volume == 1.0 else limit(rendered.samples * np.float32(volume))
            self._send_chunk(_pcm(samples), words, provenance, sentence_stop=stop)

    def deliver_silence(self, seconds: float) -> None:
        """Send silence between segments; the words after it are heard later by that much."""
        session, before = self._session, self._session.samples
        while seconds > 0.0:
            part_s = min(seconds, _MAX_SILENCE_S)
            silence = bytes(2 * round(part_s * self._sample_rate))
            self._send_chunk(silence, (), Provenance(None, None, 0.0, 0.0))
            seconds -= part_s
        session.inserted_samples += session.samples - before

    def _moved(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        """Count the times of words from the stream's first sample, instead of the backend's."""
        inserted_s = self._session.inserted_samples / SAMPLE_RATE
        if not inserted_s:
            return words
        return tuple(word.timed(lambda seconds: seconds + inserted_s) for word in words)

    def deliver_end(self) -> None:
        """Send the silence that ends every stream, or an error if the text has words and none was spoken."""
        segmenter = self.reader.segmenter
        if segmenter.unread_characters:
            self._host.report_unread(segmenter.unread_characters)
        if segmenter.has_words and self._session.samples == self._session.inserted_samples:
            self.deliver_failure(UnreadableText())
            return
        beyond_s = max(0.0, self._last_word_stop_s - self._session.samples / SAMPLE_RATE)
        silence_s = min(_FINAL_SILENCE_S + beyond_s, _MAX_FINAL_SILENCE_S)
        silence = bytes(2 * round(silence_s * self._sample_rate))
        self._send_chunk(silence, (), Provenance(None, None, 0.0, 0.0), final=True)

    def deliver_failure(self, failure: Exception) -> None:
        """Send the error that ends this stream."""
        self._call_on_loop(self._receive_failure, failure)

    def _send_chunk(
        self,
        pcm: bytes,
        words: tuple[Word, ...],
        provenance: Provenance,
        *,
        final: bool = False,
        sentence_stop: int | None = None,
    ) -> None:
        session = self._session
        start, stop = session.samples, session.samples + len(pcm) // 2 * SAMPLE_RATE // self._sample_rate
        chunk = AudioChunk(
            pcm,
            session.chunks,
            (start, stop),
            self._text_range,
            words,
            provenance,
            final,
            sentence_stop=sentence_stop,
            sample_rate=self._sample_rate,
        )
        self.log.add(chunk)
        session.samples, session.chunks = stop, session.chunks + 1
        session.unread_s += chunk.seconds
        self._call_on_loop(self._receive_chunk, chunk)

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run a callback on the stream's loop; a closed loop cancels the stream."""
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            self._session.cancelled_at = time.monotonic()
            self._session.drop_text()

    def _receive_chunk(self, chunk: AudioChunk) -> None:
        if self._session.cancelled_at is not None:
            return
        text = self.text
        words = tuple(replace(word, text=text[word.text_start : word.text_stop]) for word in chunk.words)
        chunk = replace(chunk, words=words)
        self._chunks.put(replace(chunk, marks=self._pushed.reached_marks(chunk)))

    def _receive_failure(self, failure: Exception) -> None:
        if not isinstance(failure, UnreadableText):
            cause, failure = failure, SynthesisFailed(f"the voice failed: {failure}")
            failure.__cause__ = cause
        self._chunks.fail(failure)

    def _require_open(self) -> None:
        if self._session.cancelled_at is not None:
            raise StreamClosed("the stream is cancelled")
        if self._input_ended:
            raise StreamClosed("no more text after end_input()")


def _sentence_stop(segment: Segment) -> int | None:
    ends = segment.ending in (BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH)
    return segment.stop if ends else None


def _pcm(samples: np.ndarray) -> bytes:
    """Convert float32 in [-1, 1] to s16le, rounded and saturated."""
    scaled = np.rint(samples * np.float32(32767.0))
    return bytes(np.clip(scaled, -32768, 32767).astype("<i2").tobytes())
