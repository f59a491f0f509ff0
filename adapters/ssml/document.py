"""Documents of text with markup, as pieces of plain text, each with its pronunciation, pause and prosody."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ...tts_engine.errors import BadText
from ...tts_engine.reading.pronunciation.lexicon import Pronunciation
from ...tts_engine.reading.prosody import NEUTRAL_PROSODY, Prosody

MAX_DOCUMENT_CHARACTERS: Final = 200_000  # as a stream's text
MAX_PRONOUNCED_CHARACTERS: Final = 64  # of text that is said in another way


class BadSsml(BadText):
    """The document is not SSML that the parser accepts; the message gives place and reason."""


@dataclass(frozen=True, slots=True)
class SsmlPiece:
    """A part of a document's text."""

    text: str
    pronunciation: Pronunciation | None = None  # of the whole piece
    prosody: Prosody = NEUTRAL_PROSODY  # besides the document's
    pause_s: float | None = None  # silence after the piece, instead of the usual pause
    mark: str | None = None  # a mark before the piece
    language: str | None = None  # BCP 47; None: that of the utterance
    voice: str | None = None  # name; None: that of the utterance


class SsmlPieces:
    """The pieces of a document, of which there may be 22,000.

    They are kept as plain tuples of strings and numbers: a garbage collection passes over those, and would
    stop the event loop for some milliseconds at so many other objects.
    """

    def __init__(self, pieces: Iterable[SsmlPiece] = ()) -> None:
        self._rows = list(map(_fields_of, pieces))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[SsmlPiece]:
        return map(_piece_of, self._rows)

    def __getitem__(self, index: int) -> SsmlPiece:
        return _piece_of(self._rows[index])

    def __setitem__(self, index: int, piece: SsmlPiece) -> None:
        self._rows[index] = _fields_of(piece)

    @property
    def text(self) -> str:
        """Their texts, joined."""
        return "".join([row[0] for row in self._rows])

    @property
    def languages(self) -> frozenset[str]:
        """Their languages, without that of the utterance."""
        return frozenset({row[-2] for row in self._rows if row[-2]})

    @property
    def voices(self) -> frozenset[str]:
        """The names of their voices, without that of the utterance."""
        return frozenset({row[-1] for row in self._rows if row[-1]})

    def append(self, piece: SsmlPiece) -> None:
        """Add a piece at the end."""
        self._rows.append(_fields_of(piece))

    def after(self, piece: SsmlPiece) -> "SsmlPieces":
        """Return a piece and, after it, these."""
        joined = SsmlPieces((piece,))
        joined._rows += self._rows
        return joined


# Text, pronunciation, speed, pitch, volume, range, pause, mark, language and voice: no tuple inside, as above
_Fields = tuple[
    str,
    Pronunciation | None,
    float,
    float,
    float,
    float,
    float | None,
    str | None,
    str | None,
    str | None,
]


def _fields_of(piece: SsmlPiece) -> _Fields:
    said = piece.prosody
    factors = said.speed, said.pitch, said.volume, said.range
    styled = piece.mark, piece.language, piece.voice
    return piece.text, piece.pronunciation, *factors, piece.pause_s, *styled


def _piece_of(fields: _Fields) -> SsmlPiece:
    text, pronunciation, speed, pitch, volume, range_, pause_s, mark, language, voice = fields
    prosody = Prosody(speed, pitch, volume, range_)
    return SsmlPiece(text, pronunciation, prosody, pause_s, mark, language, voice)


@dataclass(frozen=True, slots=True)
class SsmlDocument:
    """Parts of a document, and the prosody of all of it."""

    pieces: SsmlPieces
    prosody: Prosody = field(default_factory=Prosody)
    source_characters: int = 0  # markup included

    @property
    def text(self) -> str:
        """The text without markup, as it was written."""
        return self.pieces.text

    @property
    def languages(self) -> frozenset[str]:
        """The languages that the document names."""
        return self.pieces.languages


def plain_document(text: str) -> SsmlDocument:
    """Return a document of a text without markup."""
    return SsmlDocument(SsmlPieces((SsmlPiece(text),)), source_characters=len(text))
