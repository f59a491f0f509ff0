"""A caller's handle on one utterance: text in while it is written, audio out while it is rendered."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from .backends.base import StepResult
from .chunk import SAMPLE_RATE, AudioChunk, Mark, Provenance, Word
from .errors import BadText, StreamClosed, SynthesisFailed, UnreadableText
from .reading.clause_boundaries import BoundaryKind
from .reading.pronunciation.lexicon import MAX_PHRASE_CHARACTERS, Pronunciation
from .segmenter import Segment, Segmenter
from .session import Session
from .text_reader import TextReader, TextReaderHost

# Every stream ends with a chunk of silence: the last chunk does not depend on timing, and a text without any
# word is silence instead of an error.
_FINAL_SILENCE_S = 0.02
# The silence is longer where the last word would end after the audio: its end is estimated when it begins.
_MAX_FINAL_SILENCE_S = 1.0


class TextSink(Protocol):
    """The methods of a ``Stream`` that take plain text."""

    def push_text(self, text: str) -> None:
        """Add text, split anywhere."""

    def flush(self) -> None:
        """Speak the buffered text without waiting for more."""

    def end_input(self) -> None:
        """End the text; no more will come."""


class StreamHost(TextReaderHost, Protocol):
    """What a stream needs of its engine."""

    def release(self, session: Session) -> None:
        """Forget a session that is rendered, cancelled, or taken to its end; the lock is held."""

    def report_unread(self, characters: int) -> None:
        """Count letters of an ended stream that the voice could not read; the lock is held."""


class Stream:
    """One utterance. Use ``async with`` and iterate; leaving the block cancels the rest.

    Call its methods on the loop that opened it. None of them waits, apart from reading chunks.

    Args:
        segmenter_in: makes another segmenter, of a part of the text in a language; raises LanguageNotSpoken.
    """

    def __init__(
        self,
        host: StreamHost,
        session: Session,
        segmenter: Segmenter,
        loop: asyncio.AbstractEventLoop,
        max_characters: int,
        segmenter_in: Callable[[str | None], Segmenter],
    ) -> None:
        self._host = host
        self._session = session
        self.reader = TextReader(host, session, segmenter, loop)
        self._segmenter_in = segmenter_in
        self._rate = 1.0  # of the text from here on
        self._language: str | None = None  # the same; None: the stream's
        self._input_ended = False
        self._loop = loop
        self._max_characters = max_characters
        self._text: list[str] = []
        self._characters = 0
        self._chunks: deque[AudioChunk] = deque()
        self._failure: Exception | None = None
        self._ended = False
        self._changed = asyncio.Event()  # a chunk or the end has arrived
        self._text_range = (0, 0)  # of the chunk rendered last
        self._sample_rate = SAMPLE_RATE  # of the chunk rendered last, Hz
        self._last_word_stop_s = 0.0  # the latest end of a word
        self._marks: deque[tuple[int, str]] = deque()  # character and name, of marks that no chunk had yet

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()

    @property
    def text(self) -> str:
        """All text pushed so far. Text ranges of chunks and words count its characters."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    @property
    def unread_characters(self) -> int:
        """Letters of the text that is read so far that the voice cannot read; their words are left out.

        After the final chunk it covers the whole text.
        """
        return self.reader.segmenter.unread_characters

    def push_text(
        self, text: str, pronunciation: Pronunciation | None = None, pause_s: float | None = None
    ) -> None:
        """Add text, split anywhere.

        pronunciation: of the whole text, which is then a word or phrase of its own. pause_s: silence after
        the last word of the text, instead of the usual pause; the sentence may go on after it.

        Raises StreamClosed after ``end_input``, BadText beyond the limit.
        """
        self._require_open()
        if pronunciation is not None and len(text) > MAX_PHRASE_CHARACTERS:
            raise BadText(f"{len(text)} characters with one pronunciation, at most {MAX_PHRASE_CHARACTERS}")
        if self._characters + len(text) > self._max_characters:
            raise BadText(
                f"{self._characters + len(text)} characters in one stream, at most {self._max_characters}"
            )
        self._characters += len(text)
        self._text.append(text)
        self.reader.push(text, pronunciation, pause_s)

    def set_rate(self, rate: float) -> None:
        """Speak the text from here on faster or slower; a factor besides the stream's speed.

        The product is kept within 0.5 to 2.0. CosyVoice ignores it. Raises StreamClosed.
        """
        self._require_open()
        if rate != self._rate:
            self._rate = rate
            self.reader.set_rate(rate)

    def set_language(self, language: str | None) -> None:
        """Read the text from here on by the rules of a language, BCP 47; None: of the stream's own.

        The voice stays the same. Raises StreamClosed, and LanguageNotSpoken if it does not speak that.
        """
        self._require_open()
        if language != self._language:
            self.reader.change_segmenter(self._segmenter_in(language))
            self._language = language

    def mark(self, name: str) -> None:
        """Name the place between the text so far and the next; a chunk reports it. Raises StreamClosed."""
        self._require_open()
        self._marks.append((self._characters, name))

    def flush(self) -> None:
        """Speak the buffered text as a sentence, without waiting for more. Raises StreamClosed."""
        self._require_open()
        self.reader.flush()

    def end_input(self) -> None:
        """End the text: speak what is buffered, then end the stream. A second call does nothing."""
        if self._input_ended or self._session.cancelled_at is not None:
            return
        self._input_ended = True
        self.reader.end(self._finish)

    def _finish(self) -> None:
        """End a stream whose text is read to its end, if all of it is rendered; the lock is held."""
        session = self._session
        is_over = session.cancelled_at is not None or self._failure is not None
        if session.is_fully_rendered and not session.running and not is_over:
            self.deliver_end()
            self._host.release(session)

    def cancel(self) -> None:
        """End the stream at once: no further chunk is yielded or, after the running step, rendered."""
        session = self._session
        if session.cancelled_at is not None:
            return
        with self._host.lock:
            session.cancelled_at = time.monotonic()
            session.drop_text()
            self._host.release(session)
        self._chunks.clear()
        self._ended = True
        self._changed.set()

    def set_deadline(self, runs_dry_at: float) -> None:
        """Report when the listener will have played all chunks it took, as ``time.monotonic()``."""
        self._session.deadline = runs_dry_at

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> AudioChunk:
        """The next chunk.

        Raises, once, SynthesisFailed if the backend failed in this stream, and UnreadableText if the voice
        could read no word of the whole text.
        """
        while not self._chunks:
            if self._failure is not None:
                failure, self._failure, self._ended = self._failure, None, True
                if isinstance(failure, UnreadableText):
                    raise failure
                raise SynthesisFailed(f"the voice failed: {failure}") from failure
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        chunk = self._chunks.popleft()
        self._ended = chunk.final
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
        self._last_word_stop_s = max([self._last_word_stop_s, *(word.stop_s for word in rendered.words)])
        if len(rendered.samples):
            provenance = Provenance(rendered.speech_ids, rendered.mel_frames, wall_s, rendered.device_s)
            stop = _sentence_stop(current.segment) if current and rendered.segment_done else None
            self._sample_rate = rendered.sample_rate
            self._send_chunk(_pcm(rendered.samples), rendered.words, provenance, sentence_stop=stop)

    def deliver_end(self) -> None:
        """Send the silence that ends every stream, or an error if the text has words and none was spoken."""
        segmenter = self.reader.segmenter
        if segmenter.unread_characters:
            self._host.report_unread(segmenter.unread_characters)
        if segmenter.has_words and not self._session.samples:
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
        self._chunks.append(replace(chunk, words=words, marks=self._reached_marks(chunk)))
        self._changed.set()

    def _reached_marks(self, chunk: AudioChunk) -> tuple[Mark, ...]:
        """Take the marks before a word of the chunk, those at a sentence's end, and at the end all."""
        reached: list[Mark] = []
        for word in chunk.words:
            while self._marks and self._marks[0][0] <= word.text_start:
                reached.append(Mark(self._marks.popleft()[1], word.start_s))
        while self._marks and (chunk.final or self._ends_sentence(chunk, self._marks[0][0])):
            reached.append(Mark(self._marks.popleft()[1], chunk.samples[1] / SAMPLE_RATE))
        return tuple(reached)

    def _ends_sentence(self, chunk: AudioChunk, position: int) -> bool:
        """Whether a sentence ends with the chunk, without a word between its end and a place in the text."""
        stop = chunk.sentence_stop
        return stop is not None and not self.text[stop:position].strip()

    def _receive_failure(self, failure: Exception) -> None:
        self._failure = failure
        self._changed.set()

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
