"""One utterance in several voices: streams of the engine one after another, as one stream to the caller.

text    |--voice of the stream--|--anna--|--voice of the stream--|
streams |--------- 1 -----------|-- 2 ---|---------- 3 ----------|   each is opened when the one before ends
words   times and places are counted on from stream to stream

Text of a stream that is not open yet waits. A caller holds one place of the engine at a time.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Self

from ..chunk import SAMPLE_RATE, AudioChunk, Mark, Word
from ..errors import BadText
from ..reading.pronunciation.lexicon import Pronunciation
from ..reading.prosody import Prosody
from ..scheduler import Admission
from ..speech_engine import SpeechEngine, SpeechStream
from ..stream_request import Delivery, StreamRequest

MAX_CHANGES: Final = 1_000  # of the voice, in an utterance
MAX_WAITING_CHARACTERS: Final = 200_000  # of text whose stream is not open; as many as a stream takes
CHANGE_PAUSE_S: Final = 0.32  # between two voices; as after a sentence

_Change = Callable[[SpeechStream], None]


class _Part:
    """A stretch of the utterance in one voice."""

    def __init__(self, voice: str | None, stream: SpeechStream | None, text_start: int) -> None:
        self.voice = voice
        self.stream = stream
        self.text_start = text_start  # characters of the utterance before it
        self.has_content = False  # text, a mark or a flush
        self.waiting_characters = 0
        self.waiting: list[_Change] = []  # until its stream is open

    def do(self, change: _Change, *, is_content: bool = True) -> None:
        """Apply to its stream, now or when that is open."""
        self.has_content |= is_content
        if self.stream is None:
            self.waiting.append(change)
        else:
            change(self.stream)

    def open(self, stream: SpeechStream) -> None:
        """Speak on a stream; raises what the changes raise."""
        self.stream = stream
        for change in self.waiting:
            change(stream)
        self.waiting.clear()
        self.waiting_characters = 0


class VoiceSequence(SpeechStream):
    """A stream whose voice can change.

    Args:
        first: in the voice that it begins with.
        open_stream: opens a stream in the voice with that id, None for that of the first.
    """

    def __init__(self, first: SpeechStream, open_stream: Callable[[str | None], SpeechStream]) -> None:
        self._open_stream = open_stream
        self._parts = deque([_Part(None, first, 0)])  # the first is spoken, the last takes text
        self._changes = 0
        self._texts: list[str] = []
        self._characters = 0
        self._unread_characters = 0  # of parts that are spoken
        self._samples = 0  # of parts that are spoken
        self._chunks = 0
        self._cancelled = False

    @classmethod
    def open(cls, engine: SpeechEngine, request: StreamRequest, admission: Admission = Admission.NEW) -> Self:
        """Open an utterance as ``SpeechEngine.open_stream`` does, and raise what that raises.

        Another voice has a delivery of its own.
        """

        def open_stream(voice: str | None) -> SpeechStream:
            changed = request
            if voice is not None and voice != request.voice:
                delivery = Delivery(listener_rate=request.delivery.listener_rate)
                changed = replace(request, voice=voice, delivery=delivery)
            return engine.open_stream(changed, Admission.OVERDUE)

        return cls(engine.open_stream(request, admission), open_stream)

    def set_voice(self, voice: str | None) -> None:
        """Speak the text from here on in the voice with that id; None: in the first one.

        The iteration raises what opening its stream does. Raises BadText for too many changes.
        """
        last = self._parts[-1]
        if voice == last.voice:
            return
        self._changes += 1
        if self._changes > MAX_CHANGES:
            raise BadText(f"more than {MAX_CHANGES} changes of the voice in an utterance")
        if last.has_content:
            last.do(_end_voice)
        else:
            self._parts.pop()
            if last.stream is not None:
                last.stream.cancel()
        self._parts.append(_Part(voice, None, self._characters))

    @property
    def text(self) -> str:
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        return self._texts[0] if self._texts else ""

    @property
    def unread_characters(self) -> int:
        current = self._parts[0].stream
        return self._unread_characters + (current.unread_characters if current is not None else 0)

    def push_text(
        self, text: str, pronunciation: Pronunciation | None = None, pause_s: float | None = None
    ) -> None:
        last = self._parts[-1]
        if last.stream is None:
            last.waiting_characters += len(text)
            if sum(part.waiting_characters for part in self._parts) > MAX_WAITING_CHARACTERS:
                raise BadText(f"more than {MAX_WAITING_CHARACTERS} characters wait for another voice")
        last.do(lambda stream: stream.push_text(text, pronunciation, pause_s))
        self._texts.append(text)
        self._characters += len(text)

    def set_prosody(self, prosody: Prosody) -> None:
        self._parts[-1].do(lambda stream: stream.set_prosody(prosody), is_content=False)

    def set_language(self, language: str | None) -> None:
        self._parts[-1].do(lambda stream: stream.set_language(language), is_content=False)

    def mark(self, name: str) -> None:
        self._parts[-1].do(lambda stream: stream.mark(name))

    def flush(self) -> None:
        self._parts[-1].do(lambda stream: stream.flush())

    def end_input(self) -> None:
        if len(self._parts) > 1 and not self._parts[-1].has_content:
            self._parts.pop()  # the one before has ended
        self._parts[-1].do(_end_input)

    def cancel(self) -> None:
        self._cancelled = True
        for part in self._parts:
            part.waiting.clear()
            if part.stream is not None:
                part.stream.cancel()

    def set_deadline(self, runs_dry_at: float) -> None:
        current = self._parts[0].stream
        if current is not None:
            current.set_deadline(runs_dry_at)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AudioChunk:
        part, chunk = await self._next_of_first()
        assert part.stream is not None
        chunk = self._moved(chunk, part.text_start)
        if chunk.final and len(self._parts) > 1:
            self._unread_characters += part.stream.unread_characters
            self._parts.popleft()
            chunk = replace(chunk, final=False)
            self._samples = chunk.samples[1]
        return chunk

    async def _next_of_first(self) -> tuple[_Part, AudioChunk]:
        while True:
            part = self._parts[0]
            if part.stream is None:
                if self._cancelled:
                    raise StopAsyncIteration
                part.open(self._open_stream(part.voice))
            assert part.stream is not None
            try:
                return part, await anext(part.stream)
            except StopAsyncIteration:
                if part is self._parts[0]:
                    raise
                # The voice was changed before anything was said in it.

    def _moved(self, chunk: AudioChunk, text_start: int) -> AudioChunk:
        """Return a chunk with its place in the whole utterance."""
        index, self._chunks = self._chunks, self._chunks + 1
        if not (text_start or self._samples or len(self._parts) > 1):
            return chunk
        offset_s = self._samples / SAMPLE_RATE
        return replace(
            chunk,
            index=index,
            samples=_shifted(chunk.samples, self._samples),
            text=_shifted(chunk.text, text_start),
            words=tuple(_moved_word(word, offset_s, text_start) for word in chunk.words),
            marks=tuple(Mark(mark.name, mark.at_s + offset_s) for mark in chunk.marks),
            sentence_stop=None if chunk.sentence_stop is None else chunk.sentence_stop + text_start,
            awaits_text=chunk.awaits_text and len(self._parts) == 1,
        )


def _end_input(stream: SpeechStream) -> None:
    stream.end_input()


def _end_voice(stream: SpeechStream) -> None:
    stream.flush()
    stream.push_text("", None, CHANGE_PAUSE_S)
    stream.end_input()


def _shifted(span: tuple[int, int], by: int) -> tuple[int, int]:
    return span[0] + by, span[1] + by


def _moved_word(word: Word, offset_s: float, text_start: int) -> Word:
    moved = word.timed(lambda seconds: seconds + offset_s)
    text_range = word.text_start + text_start, word.text_stop + text_start
    return replace(moved, text_start=text_range[0], text_stop=text_range[1])
