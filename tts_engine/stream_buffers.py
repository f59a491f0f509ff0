"""Buffers of a stream on its loop: the text that it was given, and the chunks that were not taken yet."""

import asyncio
from collections import deque

from .chunk import SAMPLE_RATE, AudioChunk, Mark
from .errors import BadText
from .reading.pronunciation.lexicon import MAX_PHRASE_CHARACTERS, Pronunciation


class PushedText:
    """The text of a stream so far, and the marks in it that no chunk has reached.

    Args:
        max_characters: of all text.
    """

    def __init__(self, max_characters: int) -> None:
        self._max_characters = max_characters
        self._parts: list[str] = []
        self._marks: deque[tuple[int, str]] = deque()  # characters before it, and its name
        self.characters = 0

    def __str__(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def add(self, text: str, pronunciation: Pronunciation | None) -> None:
        """Add text. Raises BadText beyond a limit, and adds nothing then."""
        if pronunciation is not None and len(text) > MAX_PHRASE_CHARACTERS:
            raise BadText(f"{len(text)} characters with one pronunciation, at most {MAX_PHRASE_CHARACTERS}")
        characters = self.characters + len(text)
        if characters > self._max_characters:
            raise BadText(f"{characters} characters in one stream, at most {self._max_characters}")
        self.characters = characters
        self._parts.append(text)

    def mark(self, name: str) -> None:
        """Name the place after the text so far."""
        self._marks.append((self.characters, name))

    def reached_marks(self, chunk: AudioChunk) -> tuple[Mark, ...]:
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
        return stop is not None and not str(self)[stop:position].strip()


class ChunkQueue:
    """The chunks of a stream that its listener has not taken, and what ends them.

    Attributes:
        failed: whether an error ended the stream.
    """

    def __init__(self) -> None:
        self.failed = False
        self._chunks: deque[AudioChunk] = deque()
        self._failure: Exception | None = None
        self._ended = False
        self._changed = asyncio.Event()

    def put(self, chunk: AudioChunk) -> None:
        """Add a chunk; a final one is the last."""
        self._chunks.append(chunk)
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """End the stream with an error after the chunks so far."""
        self._failure, self.failed = error, True
        self._changed.set()

    def end(self) -> None:
        """End the stream at once, without the chunks so far."""
        self._chunks.clear()
        self._ended = True
        self._changed.set()

    async def take(self) -> AudioChunk:
        """Wait for the next chunk. Raises the error that ended the stream, once, and StopAsyncIteration."""
        while not self._chunks:
            if self._failure is not None:
                failure, self._failure, self._ended = self._failure, None, True
                raise failure
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        chunk = self._chunks.popleft()
        self._ended = chunk.final
        return chunk
