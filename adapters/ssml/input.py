"""Documents in the text of an utterance: found in text that arrives in pieces, and given to a stream.

A text that begins as a document does, such as ``<speak`` of SSML, is one; it is held until its end has
arrived. After a document or a flush, the next text may be one again. Tags of voices in plain text become the
voices of its pieces.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Final, Protocol

from ...tts_engine.reading.pronunciation.lexicon import Pronunciation
from ...tts_engine.reading.prosody import NEUTRAL_PROSODY, Prosody
from .document import (
    MAX_DOCUMENT_CHARACTERS,
    BadSsml,
    SsmlDocument,
    SsmlPiece,
    SsmlPieces,
)
from .markup import SlicedWork, VoicedText, run_whole
from .markups.ssml.parser import SSML
from .markups.voice_tags import VoiceTags

# A new markup is a file or folder in ``markups`` with a record, listed here.
DOCUMENT_MARKUPS: Final = (SSML,)
_MAX_DOCUMENTS: Final = 1_000  # in an utterance
_SLICE_PIECES: Final = 8  # given to a stream in a slice
_SLICE_CHARACTERS: Final = 1_024  # of plain text that are searched for tags in a slice


class DocumentSink(Protocol):
    """The methods of the engine's stream that take text and what a document says about it."""

    def push_text(
        self, text: str, pronunciation: Pronunciation | None = None, pause_s: float | None = None
    ) -> None:
        """Add text, split anywhere."""

    def set_prosody(self, prosody: Prosody) -> None:
        """Speak the text from here on in another way."""

    def set_language(self, language: str | None) -> None:
        """Read the text from here on in a language; None: in the stream's own."""

    def mark(self, name: str) -> None:
        """Name the place between the text so far and the next."""

    def flush(self) -> None:
        """Speak the buffered text without waiting for more."""

    def end_input(self) -> None:
        """End the text; no more will come."""


class TextTags(Protocol):
    """A dialect's tags in plain text, of which pieces are made."""

    def push(self, text: str) -> list[SsmlPiece]:
        """Add text, split anywhere; the pieces that are decided now."""

    def flush(self) -> list[SsmlPiece]:
        """Return what is held of the text so far."""


class _Kind(Enum):
    UNDECIDED = auto()  # blanks, or a part of "<speak"
    PLAIN = auto()
    DOCUMENT = auto()


class SsmlInput:
    """Turns the text of one utterance, in pieces, into documents; plain text is passed on at once.

    Args:
        tags: of plain text, besides those of voices.
    """

    def __init__(self, tags: TextTags | None = None) -> None:
        self._held: list[str] = []
        self._characters = 0
        self._kind = _Kind.UNDECIDED
        self._markup = DOCUMENT_MARKUPS[0]  # of the document, if it is one
        self._documents = 0
        self._follows_document = False
        self._voice_tags = VoiceTags()
        self._tags = tags

    def push(self, text: str) -> list[SsmlDocument]:
        """Take text; what can be spoken now. Raises BadSsml."""
        return run_whole(self.push_in_slices(text))

    def flush(self) -> list[SsmlDocument]:
        """End the text so far; what is held of it. Raises BadSsml if a document has no end."""
        return run_whole(self.flush_in_slices())

    def push_in_slices(self, text: str) -> SlicedWork[list[SsmlDocument]]:
        """As ``push``; no other text may be taken until it has ended."""
        if not text:
            return []
        if self._kind is _Kind.PLAIN:
            return [(yield from self._plain(text))]
        self._held.append(text)
        self._characters += len(text)
        if self._kind is _Kind.DOCUMENT and ">" not in text:
            self._require_room()
            return []
        return (yield from self._take_documents(len(text)))

    def flush_in_slices(self) -> SlicedWork[list[SsmlDocument]]:
        """As ``flush``; no other text may be taken until it has ended."""
        kind, self._kind = self._kind, _Kind.UNDECIDED
        held = self._take()
        if kind is _Kind.DOCUMENT:
            return [(yield from self._markup.parse(held.strip()))]  # which names the place
        documents = [self._apart((yield from self._plain(held)))] if held else []
        rest = self._pieces_of(self._voice_tags.flush())
        rest += self._tags.flush() if self._tags is not None else []
        return [*documents, SsmlDocument(SsmlPieces(rest))] if rest else documents

    def _take_documents(self, new_characters: int) -> SlicedWork[list[SsmlDocument]]:
        """The documents that have their end in the text held, and plain text after them."""
        held = self._take()
        searched = len(held) - new_characters
        documents: list[SsmlDocument] = []
        begin = 0
        self._begin(held, begin)
        while self._kind is _Kind.DOCUMENT:
            markup = self._markup
            unsearched = max(begin, searched - markup.max_end_characters)
            end = markup.empty.match(held, begin) or markup.end.search(held, unsearched)
            if end is None:
                break
            if documents:
                yield
            documents.append((yield from self._parse(held[begin : end.end()])))
            begin = end.end()
            self._begin(held, begin)
        rest = held[begin:]
        if self._kind is _Kind.PLAIN:
            return [*documents, self._apart((yield from self._plain(rest)))]
        if rest and not (documents and rest.isspace()):
            self._held, self._characters = [rest], len(rest)
            self._require_room()
        return documents

    def _begin(self, text: str, begin: int) -> None:
        """Note the kind of the text from ``begin`` on, and the markup of a document."""
        self._kind = _Kind.PLAIN
        for markup in DOCUMENT_MARKUPS:
            opening = markup.opening.match(text, begin)
            if opening is not None and opening[1]:
                self._kind, self._markup = _Kind.DOCUMENT, markup
                return
            if opening is not None:
                self._kind = _Kind.UNDECIDED

    def _parse(self, document: str) -> SlicedWork[SsmlDocument]:
        self._documents += 1
        if self._documents > _MAX_DOCUMENTS:
            raise BadSsml(f"SSML: more than {_MAX_DOCUMENTS} documents in an utterance")
        parsed = self._apart((yield from self._markup.parse(document.strip())))
        self._follows_document = True
        return parsed

    def _plain(self, text: str) -> SlicedWork[SsmlDocument]:
        pieces = SsmlPieces()
        slice_characters = len(text) if self._tags is None else _SLICE_CHARACTERS
        for begin in range(0, len(text), slice_characters or 1):
            if begin:
                yield
            part = text[begin : begin + slice_characters]
            for piece in self._pieces_of(self._voice_tags.push(part)):
                pieces.append(piece)
        return SsmlDocument(pieces, source_characters=len(text))

    def _pieces_of(self, stretches: Sequence[VoicedText]) -> list[SsmlPiece]:
        if self._tags is None:
            return [SsmlPiece(one.text, voice=one.voice) for one in stretches]
        return [replace(piece, voice=one.voice) for one in stretches for piece in self._tags.push(one.text)]

    def _apart(self, document: SsmlDocument) -> SsmlDocument:
        """Begin with a blank what follows a document, so that their words stay apart."""
        follows, self._follows_document = self._follows_document, False
        if not follows or document.text[:1].isspace():
            return document
        return replace(document, pieces=document.pieces.after(SsmlPiece(" ")))

    def _require_room(self) -> None:
        if self._characters > MAX_DOCUMENT_CHARACTERS:
            raise BadSsml(
                f"SSML: a document without end; at most {MAX_DOCUMENT_CHARACTERS} characters may be"
            )

    def _take(self) -> str:
        held = "".join(self._held)
        self._held, self._characters = [], 0
        return held


def parse_ssml(document: str) -> SsmlDocument:
    """Parse an SSML document; raises BadSsml."""
    return run_whole(parse_ssml_in_slices(document))


def parse_ssml_in_slices(document: str) -> SlicedWork[SsmlDocument]:
    """As ``parse_ssml``."""
    return SSML.parse(document)


def push_document(stream: DocumentSink, document: SsmlDocument, *, whole: Prosody = NEUTRAL_PROSODY) -> None:
    """Give a document to a stream, piece by piece.

    whole: of all of it, besides the prosody of its parts. Raises as the methods of ``DocumentSink``.
    """
    run_whole(push_document_in_slices(stream, document, whole=whole))


def push_document_in_slices(
    stream: DocumentSink,
    document: SsmlDocument,
    *,
    whole: Prosody = NEUTRAL_PROSODY,
    tempo: float = 1.0,
    set_voice: Callable[[str | None], None] = lambda voice: None,
) -> SlicedWork[None]:
    """As ``push_document``.

    tempo: factor by which the audio is played faster; pauses are longer by it. set_voice: speaks the text
    from here on in the voice with that name.
    """
    for number, piece in enumerate(document.pieces):
        if number and number % _SLICE_PIECES == 0:
            yield
        if piece.text.strip():  # blanks belong to the words before them
            set_voice(piece.voice)
        if piece.mark is not None:
            stream.mark(piece.mark)
        if piece.text:
            stream.set_prosody(whole.combined_with(piece.prosody))
            stream.set_language(piece.language)
        pause_s = None if piece.pause_s is None else piece.pause_s * tempo
        stream.push_text(piece.text, piece.pronunciation, pause_s)
