"""Text on its way into a stream as it is written, and where it may stop.

Not a segmenter: it only tells whether a place in the text ends a sentence, for a call that is ending.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from enum import Enum
from typing import Self

from ...tts_engine.chunk import AudioChunk
from ...tts_engine.stream import TextInput
from ..access.errors import RateLimited

_SENTENCE_ENDS = (".", "!", "?", "…", "\n")
_CLOSERS = " \t\"'”’)"  # may follow the end of a sentence


class TextCommand(Enum):
    """What may come between two pieces of text."""

    FLUSH = "flush"  # speak what is buffered without waiting for the end of a sentence


TextDelta = str | TextCommand


def waiting_characters_of(delta: TextDelta) -> int:
    """Characters that it counts for while it waits; one that says nothing counts for one, too."""
    return len(delta) or 1 if isinstance(delta, str) else 1


class TextBuffer:
    """The text of one utterance between who writes it and who speaks it."""

    def __init__(self) -> None:
        self.queued_characters = 0  # characters not read yet, by ``waiting_characters_of``
        self._deltas: asyncio.Queue[TextDelta | None] = asyncio.Queue()

    def push(self, delta: TextDelta) -> None:
        """Add text or a command."""
        self.queued_characters += waiting_characters_of(delta)
        self._deltas.put_nowait(delta)

    def end(self) -> None:
        """It is written."""
        self._deltas.put_nowait(None)

    async def deltas(self) -> AsyncGenerator[TextDelta, None]:
        """What was pushed, until the end."""
        while (delta := await self._deltas.get()) is not None:
            self.queued_characters -= waiting_characters_of(delta)
            yield delta


class CharacterQuota:
    """Charges what one program writes on a call, piece by piece.

    After a piece that is too much nothing more is taken up to the next flush or end: with a hole in it, a
    sentence says something else. charge: takes a number of characters, raises RateLimited, KeyRefused.
    """

    def __init__(self, charge: Callable[[int], None]) -> None:
        self._charge = charge
        self._is_exceeded = False

    def accept(self, delta: TextDelta) -> bool:
        """Whether it is to be said; raises what ``charge`` does at the first piece that is not."""
        if isinstance(delta, TextCommand):
            self._is_exceeded = False
        elif not self._is_exceeded:
            self._charge_text(delta)
        return not self._is_exceeded

    def end(self) -> None:
        """What comes next is another utterance."""
        self._is_exceeded = False

    def _charge_text(self, text: str) -> None:
        self._is_exceeded = True
        try:
            self._charge(len(text))
        except RateLimited as error:
            sentence = f"{error}; from here on nothing is said up to the next flush or end"
            raise RateLimited(sentence, error.retry_after_s) from None
        self._is_exceeded = False


class TextFeed:
    """Pushes a text into a stream; as a context it owns the task that does.

    Whatever happens, the stream's input is ended when the text is, so that what was pushed is spoken.
    """

    def __init__(self, stream: TextInput, text: str | AsyncIterable[TextDelta]) -> None:
        self.cut_short = False
        self._stream = stream
        self._pushed: list[str] = []
        self._segment_start = 0  # of the chunk given out last
        self._task = asyncio.create_task(self._run(text))

    @property
    def text(self) -> str:
        """All that was pushed so far."""
        return "".join(self._pushed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    def end_after_sentence(self) -> None:
        """Let no more be said than the sentence that is being said."""
        self.cut_short = True
        if _ends_sentence(self.text):
            self._task.cancel()

    def ends_before(self, chunk: AudioChunk) -> bool:
        """Whether ``chunk``, the next one, begins a sentence that shall not be said any more."""
        chunk_start = chunk.text[0]
        is_next_segment = chunk_start > self._segment_start
        self._segment_start = chunk_start
        return self.cut_short and is_next_segment and _ends_sentence(self.text[:chunk_start])

    @property
    def has_failed(self) -> bool:
        """Whether the source of the text, or the stream that takes it, has raised."""
        return self._task.done() and not self._task.cancelled() and self._task.exception() is not None

    async def raise_source_error(self) -> None:
        """Wait until all text is pushed, and raise what its source or the stream raised, if anything."""
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def _run(self, text: str | AsyncIterable[TextDelta]) -> None:
        try:
            if isinstance(text, str):
                self._push(text)
            else:
                await self._push_all(text)
        finally:
            self._stream.end_input()

    async def _push_all(self, deltas: AsyncIterable[TextDelta]) -> None:
        try:
            async for delta in deltas:
                self._push(delta)
                if self.cut_short and self._pushed and _ends_sentence(self._pushed[-1]):
                    return
        finally:
            if isinstance(deltas, AsyncGenerator):
                await deltas.aclose()

    def _push(self, delta: TextDelta) -> None:
        if isinstance(delta, TextCommand):
            self._stream.flush()
            return
        self._pushed.append(delta)
        self._stream.push_text(delta)


def _ends_sentence(text: str) -> bool:
    return text.rstrip(_CLOSERS).endswith(_SENTENCE_ENDS)
