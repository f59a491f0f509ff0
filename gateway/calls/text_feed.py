"""Text on its way into a stream while it is written: buffer, quota, and the task that pushes it, SSML too.

Not a segmenter: it only decides whether a position in the text ends a sentence, so that a call that is ending
stops there.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from enum import Enum
from typing import Self

from ...adapters.ssml.document import SsmlDocument
from ...adapters.ssml.input import DocumentSink, SsmlInput, push_document_in_slices
from ...tts_engine.chunk import AudioChunk
from ..access.errors import RateLimited, RequestTooLarge
from ..background_tasks import cancel_and_wait
from ..sliced_inputs import run_in_slices

_SENTENCE_ENDS = (".", "!", "?", "…", "\n")
_CLOSERS = " \t\"'”’)"  # may follow the end of a sentence
_SILENT_FROM_HERE = "from here on nothing is said up to the next flush or end"


class TextCommand(Enum):
    """A command between two pieces of text."""

    FLUSH = "flush"  # speak what is buffered without waiting for the end of a sentence


TextDelta = str | SsmlDocument | TextCommand


def waiting_characters_of(delta: TextDelta) -> int:
    """Return the characters that ``delta`` counts for while it waits, markup included; at least 1."""
    match delta:
        case TextCommand():
            return 1
        case SsmlDocument(source_characters=characters):
            return characters or 1
        case _:
            return len(delta) or 1


class TextBuffer:
    """Text of one utterance between its writer and the call; unbounded, the writer checks the limits."""

    def __init__(self) -> None:
        self.queued_characters = 0  # not read yet, counted by ``waiting_characters_of``
        self._deltas: asyncio.Queue[TextDelta | None] = asyncio.Queue()

    def push(self, delta: TextDelta) -> None:
        """Add text or a command."""
        self.queued_characters += waiting_characters_of(delta)
        self._deltas.put_nowait(delta)

    def end(self) -> None:
        """End the text; nothing is pushed afterwards."""
        self._deltas.put_nowait(None)

    async def deltas(self) -> AsyncGenerator[TextDelta, None]:
        """Yield what was pushed, in order, until the end."""
        while (delta := await self._deltas.get()) is not None:
            self.queued_characters -= waiting_characters_of(delta)
            yield delta


class CharacterQuota:
    """Charges the text that one peer writes on a call, piece by piece.

    After a piece that exceeds the quota, everything up to the next flush or end is refused: a sentence with a
    piece missing would mean something else.

    Args:
        charge: takes a number of characters; raises RateLimited, RequestTooLarge or KeyRefused.
    """

    def __init__(self, charge: Callable[[int], None]) -> None:
        self._charge = charge
        self._is_exceeded = False

    def accept(self, delta: str | TextCommand) -> bool:
        """Charge ``delta`` and return whether it may be spoken.

        Raises what ``charge`` raises for the first piece that is refused; later ones return False.
        """
        if isinstance(delta, TextCommand):
            self._is_exceeded = False
        elif not self._is_exceeded:
            self._charge_text(delta)
        return not self._is_exceeded

    def end(self) -> None:
        """Accept text again: the next piece belongs to another utterance."""
        self._is_exceeded = False

    def _charge_text(self, text: str) -> None:
        self._is_exceeded = True
        try:
            self._charge(len(text))
        except RateLimited as error:
            raise RateLimited(f"{error}; {_SILENT_FROM_HERE}", error.retry_after_s) from None
        except RequestTooLarge as error:
            raise RequestTooLarge(f"{error}; {_SILENT_FROM_HERE}") from None
        self._is_exceeded = False


class TextFeed:
    """Pushes text into a stream. As an async context manager it owns the task that does.

    A text that begins with ``<speak`` is an SSML document; its rate applies, its pitch and volume do not.

    The stream's input is ended when the text ends for any reason, so that what was pushed is spoken.

    Args:
        stream: takes the text.
        text: all of it, or its source, which is closed when the feed stops before its end.
        on_text: called with each piece, without markup, after it was pushed.
        now: clock of ``first_text_at``.
        set_voice: speaks the text from here on in the voice with that name, None: in the first one.
    """

    def __init__(
        self,
        stream: DocumentSink,
        text: str | SsmlDocument | AsyncIterable[TextDelta],
        on_text: Callable[[str], None] | None = None,
        now: Callable[[], float] = time.monotonic,
        set_voice: Callable[[str | None], None] = lambda voice: None,
    ) -> None:
        self.cut_short = False  # whether ``end_after_sentence`` was called
        self.first_text_at: float | None = None  # monotonic s of the first piece pushed
        self._stream = stream
        self._ssml_input = SsmlInput()
        self._on_text = on_text
        self._now = now
        self._set_voice = set_voice
        self._pushed: list[str] = []
        self._is_pushing = False  # a document, which is pushed whole
        self._segment_start = 0  # text position of the chunk that ``ends_before`` saw last
        self._task = asyncio.create_task(self._run(text))

    @property
    def text(self) -> str:
        """All text pushed so far, without markup."""
        return "".join(self._pushed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_and_wait(self._task)
        if not self._task.cancelled():
            self._task.exception()  # after a discard nobody else asks for it
        self._on_text = None  # of the call, which keeps the feed of what is being heard

    def end_after_sentence(self) -> None:
        """Push no more text than the sentence being spoken."""
        self.cut_short = True
        if not self._is_pushing and _ends_sentence(self.text):
            self._task.cancel()

    def ends_before(self, chunk: AudioChunk) -> bool:
        """Return whether speech ends before ``chunk``, the next one, because it starts another sentence."""
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

    async def _run(self, text: str | SsmlDocument | AsyncIterable[TextDelta]) -> None:
        try:
            if isinstance(text, str | SsmlDocument):
                await self._push(text)
            else:
                await self._push_all(text)
            if not self.cut_short:
                await self._flush_ssml()
        finally:
            self._stream.end_input()

    async def _push_all(self, deltas: AsyncIterable[TextDelta]) -> None:
        try:
            async for delta in deltas:
                await self._push(delta)
                if self.cut_short and self._pushed and _ends_sentence(self._pushed[-1]):
                    return
        finally:
            if isinstance(deltas, AsyncGenerator):
                await deltas.aclose()

    async def _push(self, delta: TextDelta) -> None:
        match delta:
            case TextCommand():
                await self._flush_ssml()
                self._stream.flush()
            case SsmlDocument():
                await self._push_documents([delta])
            case _:
                await self._push_documents(await run_in_slices(self._ssml_input.push_in_slices(delta)))

    async def _flush_ssml(self) -> None:
        await self._push_documents(await run_in_slices(self._ssml_input.flush_in_slices()))

    async def _push_documents(self, documents: Sequence[SsmlDocument]) -> None:
        for document in documents:
            self._pushed.append(document.text)
            self._is_pushing = True
            await run_in_slices(
                push_document_in_slices(
                    self._stream, document, whole=document.prosody, set_voice=self._set_voice
                )
            )
            self._is_pushing = False
            if self.first_text_at is None:
                self.first_text_at = self._now()
            if self._on_text is not None:
                self._on_text(document.text)
            if len(document.pieces) > 1:
                await asyncio.sleep(0)  # a thousand documents may follow


def _ends_sentence(text: str) -> bool:
    return text.rstrip(_CLOSERS).endswith(_SENTENCE_ENDS)
