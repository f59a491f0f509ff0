"""SSML parser: a document becomes pieces of plain text, each with its pronunciation, pause and prosody.

``sub``, ``phoneme`` (alphabets "ipa" and "py") and ``say-as`` say their content in another way; ``break``
is silence after a piece; ``mark`` is a place. ``prosody`` and ``emphasis`` say how a part is spoken, ``lang``
in which language, ``voice`` in which voice. Rate, pitch and volume of an element that contains all of the
text are the document's. ``xml:lang`` of other elements is ignored. The content of sounds and unknown elements
is spoken as text, as SSML demands.

Document types are refused, so there are no entities to expand. Depth and length are bounded.

Source: W3C Speech Synthesis Markup Language 1.1; Alibaba Cloud Model Studio's SSML page; OWASP XML External
Entity Prevention Cheat Sheet.
"""

import re
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, NoReturn
from xml.parsers import expat

from .....tts_engine.reading.pronunciation.ipa import BadIpa, read_ipa
from .....tts_engine.reading.pronunciation.lexicon import Pronunciation
from .....tts_engine.reading.pronunciation.pinyin import BadPinyin, read_pinyin
from .....tts_engine.reading.prosody import BREAK_STRENGTHS_S, MAX_BREAK_S, NEUTRAL_PROSODY, Prosody
from ...document import (
    MAX_DOCUMENT_CHARACTERS,
    MAX_PRONOUNCED_CHARACTERS,
    BadSsml,
    SsmlDocument,
    SsmlPiece,
    SsmlPieces,
)
from ...markup import DocumentMarkup, SlicedWork
from .prosody import emphasis, parse_prosody
from .say_as import say_as

MAX_ELEMENT_DEPTH: Final = 32  # nested elements
MAX_VOICE_CHARACTERS: Final = 256  # of a voice's name
_MAX_MARKS: Final = 1_000
_SLICE_CHARACTERS: Final = 1_024  # parsed in a slice, in about 1 ms if all of it is markup
_SLICE_PIECES: Final = 256
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8}){0,8}")
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s)", re.ASCII)
_PUNCTUATION: Final = ",.;:!?，。；：！？、…"
_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_PRONOUNCED: Final = frozenset({"sub", "phoneme", "say-as"})
# The beginning of a document, in group 1, or all of the text as far as it may become one.
_OPENING: Final = re.compile(
    r"\s*+(?:<\?xml\s[^<>]{0,200}>\s*+)?"
    r"(?:(<speak[\s/>])|(?:<(?:s(?:p(?:e(?:ak?)?)?)?|\?(?:x(?:m(?:l(?:\s[^<>]{0,200})?)?)?)?)?)?\Z)"
)
_END: Final = re.compile(r"</speak\s{0,8}>")
_MAX_END_CHARACTERS: Final = 16
_EMPTY: Final = re.compile(r"\s*(?:<\?xml\s[^<>]*>\s*)?<speak[^<>]*/>")


def _parse(document: str) -> SlicedWork[SsmlDocument]:
    """Parse an SSML document; raises BadSsml."""
    if len(document) > MAX_DOCUMENT_CHARACTERS:
        raise BadSsml(f"SSML: {len(document)} characters; at most {MAX_DOCUMENT_CHARACTERS} are allowed")
    reader = _SsmlReader()
    try:
        for begin in range(0, len(document), _SLICE_CHARACTERS):
            if begin:
                yield
            reader.parser.Parse(document[begin : begin + _SLICE_CHARACTERS], False)
        reader.parser.Parse("", True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "not well-formed")
        raise BadSsml(f"SSML, line {error.lineno}, column {error.offset + 1}: {reason}") from None
    finally:
        reader.release_parser()
    prosody = replace(reduce(Prosody.combined_with, reader.enclosing_prosodies, NEUTRAL_PROSODY), range=1.0)
    if prosody != NEUTRAL_PROSODY:
        yield from _divide_by(reader.pieces, prosody)
    return SsmlDocument(reader.pieces, prosody, len(document))


def _divide_by(pieces: SsmlPieces, whole: Prosody) -> SlicedWork[None]:
    """Leave what the pieces have besides the document; their range stays, which no document has."""
    for index, piece in enumerate(pieces):
        if index and index % _SLICE_PIECES == 0:
            yield
        pieces[index] = replace(piece, prosody=_besides(piece.prosody, whole))


def _besides(product: Prosody, factor: Prosody) -> Prosody:
    """Return what is left of a product once ``factor`` is applied; a factor of 0 counts as 1."""
    return Prosody(
        product.speed / (factor.speed or 1.0),
        product.pitch / (factor.pitch or 1.0),
        product.volume / (factor.volume or 1.0),
        product.range / (factor.range or 1.0),
    )


@dataclass(frozen=True, slots=True)
class _PartStyle:
    """What elements set for the pieces in them."""

    prosody: Prosody = NEUTRAL_PROSODY
    language: str | None = None
    voice: str | None = None


def _prosody_of(name: str, attributes: dict[str, str]) -> Prosody:
    """What an element says of the prosody of its content."""
    match name:
        case "speak" | "prosody":
            return parse_prosody(attributes)
        case "emphasis":
            return emphasis(attributes.get("level", "moderate").strip())
    return NEUTRAL_PROSODY


class _SsmlReader:
    def __init__(self) -> None:
        self.pieces = SsmlPieces()
        self.enclosing_prosodies: list[Prosody] = []  # of closed elements that contain all text so far
        self._open_prosodies: dict[int, Prosody] = {}  # by the depth of the open element, if before all text
        self._styles = [_PartStyle()]  # of each open element
        self._has_text = False
        self._text = ""  # read and not yet in a piece
        self._mark: str | None = None  # before the text
        self._marks = 0
        self._pronounced: tuple[int, dict[str, str]] | None = None  # depth and attributes of the open element
        self._depth = 0
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text

    def release_parser(self) -> None:
        """Let go of the parser, which refers to this: thousands of pieces would wait for a collection."""
        parser = self.parser
        parser.StartDoctypeDeclHandler = parser.CharacterDataHandler = None
        parser.StartElementHandler = parser.EndElementHandler = None

    def _refuse(self, reason: str) -> NoReturn:
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
        raise BadSsml(f"SSML, line {line}, column {column}: {reason}")

    def _refuse_doctype(self, *_: object) -> NoReturn:
        self._refuse("a document type is not allowed")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        if self._depth == MAX_ELEMENT_DEPTH:
            self._refuse(f"at most {MAX_ELEMENT_DEPTH} nested elements are allowed")
        if not self._depth and name != "speak":
            self._refuse("the outermost element must be speak")
        self._depth += 1
        prosody = _prosody_of(name, attributes)
        style = self._style_in(name, attributes, prosody)
        if self._pronounced is None and style != self._styles[-1]:
            self._end_piece()
        self._styles.append(style)
        if name in ("speak", "prosody") and not self._has_text:
            self._open_prosodies[self._depth] = prosody
        if self._pronounced is not None:
            return  # markup inside is not spoken otherwise
        if name in _PRONOUNCED:
            self._end_piece()
            self._pronounced = self._depth, {**attributes, "": name}
        elif name == "break":
            self._pause(attributes)
        elif name == "mark":
            self._set_mark(attributes)

    def _end(self, name: str) -> None:
        if self._pronounced is not None and self._pronounced[0] == self._depth:
            attributes, self._pronounced = self._pronounced[1], None
            self._end_pronounced(self._pronunciation(attributes))
        elif self._pronounced is None and name in ("s", "p"):
            self._end_sentence(name)
        if self._depth in self._open_prosodies:
            self.enclosing_prosodies.append(self._open_prosodies.pop(self._depth))
        if self._styles[-1] != self._styles[-2] and self._pronounced is None:
            self._end_piece()
        self._styles.pop()
        self._depth -= 1
        if not self._depth:
            self._end_document()

    def _style_in(self, name: str, attributes: dict[str, str], prosody: Prosody) -> _PartStyle:
        """The style of the text in an element that begins."""
        outer = self._styles[-1]
        language = attributes.get("xml:lang", "").strip() if name == "lang" else ""
        if language and not _LANGUAGE.fullmatch(language):
            self._refuse(f"got the language {language[:32]!r}; write 'de' or 'en-GB'")
        voice = attributes.get("name", "").strip()[:MAX_VOICE_CHARACTERS] if name == "voice" else ""
        said = outer.prosody.combined_with(prosody)
        return _PartStyle(said, language or outer.language, voice or outer.voice)

    def _add_text(self, text: str) -> None:
        text = _BLANKS.sub(" ", text)
        last = self._text or (self.pieces[-1].text if self.pieces else " ")
        self._text += text.removeprefix(" ") if last.endswith((" ", "\n")) else text
        if text.strip(_PUNCTUATION + " "):
            self.enclosing_prosodies.clear()
            self._has_text = True

    def _end_piece(self, pronunciation: Pronunciation | None = None) -> None:
        if not self._text:
            return
        has_words = any(map(str.isalnum, self._text))  # else it belongs to the words before
        style = self._styles[-1]
        if not has_words and self.pieces:
            last = self.pieces[-1]
            style = _PartStyle(last.prosody, last.language, last.voice)
        self.pieces.append(
            SsmlPiece(
                *(self._text, pronunciation, style.prosody),
                mark=self._mark,
                language=style.language,
                voice=style.voice,
            )
        )
        self._text, self._mark = "", None

    def _end_pronounced(self, pronunciation: Pronunciation | None) -> None:
        """End a piece with a pronunciation; blanks around it are not part of it."""
        whole, text = self._text, self._text.strip()
        if not text:
            return
        if whole[0] == " ":
            self._text = " "
            self._end_piece()
        self._text = text
        self._end_piece(pronunciation)
        self._text = " " if whole[-1] == " " else ""

    def _end_sentence(self, name: str) -> None:
        last = (self._text or (self.pieces[-1].text if self.pieces else "")).rstrip()
        if last and name == "s" and last[-1] not in _PUNCTUATION:
            self._text += "."
        elif last and name == "p":
            self._text += "\n\n"
        if name == "s" and last:
            self._text += " "

    def _end_document(self) -> None:
        self._text = self._text.rstrip()
        if self._mark is not None and not self._text:
            self.pieces.append(SsmlPiece("", mark=self._mark))
        self._end_piece()
        if self.pieces:
            self.pieces[-1] = replace(self.pieces[-1], text=self.pieces[-1].text.rstrip())

    def _pause(self, attributes: dict[str, str]) -> None:
        """Put silence after the text so far."""
        seconds = BREAK_STRENGTHS_S.get(attributes.get("strength", "medium"), BREAK_STRENGTHS_S["medium"])
        if "time" in attributes:
            parts = _TIME.fullmatch(attributes["time"].strip())
            if parts is None:
                self._refuse(f"got break time {attributes['time'][:32]!r}; write '300ms' or '2s'")
            seconds = float(parts[1]) * (0.001 if parts[2] == "ms" else 1.0)
        if not seconds:
            return
        self._text = self._text.rstrip()
        self._end_piece()
        if not self.pieces:
            self.pieces.append(SsmlPiece(""))
        last = self.pieces[-1]
        self.pieces[-1] = replace(last, pause_s=min(MAX_BREAK_S, (last.pause_s or 0.0) + seconds))
        self._text = " " if last.text else ""  # keeps the words apart

    def _set_mark(self, attributes: dict[str, str]) -> None:
        self._marks += 1
        if self._marks > _MAX_MARKS:
            self._refuse(f"at most {_MAX_MARKS} marks are allowed")
        self._end_piece()
        if self._mark is not None:  # two marks at one place
            self.pieces.append(SsmlPiece("", mark=self._mark))
        self._mark = attributes.get("name", "")[:256]

    def _pronunciation(self, attributes: dict[str, str]) -> Pronunciation | None:
        text = self._text.strip()
        if len(text) > MAX_PRONOUNCED_CHARACTERS:
            self._refuse(
                f"{len(text)} characters in {attributes['']}; at most {MAX_PRONOUNCED_CHARACTERS} may be"
            )
        match attributes:
            case {"": "sub", "alias": alias} if alias.strip():
                return Pronunciation(respelling=" ".join(alias.split())[:1_000])
            case {"": "phoneme", "ph": phonemes} if attributes.get("alphabet", "ipa") == "ipa":
                try:
                    return Pronunciation(phonemes=read_ipa(phonemes))
                except BadIpa as error:
                    self._refuse(str(error))
            case {"": "phoneme", "ph": pinyin, "alphabet": "py"}:
                try:
                    return Pronunciation(pinyin=read_pinyin(pinyin))
                except BadPinyin as error:
                    self._refuse(str(error))
            case {"": "say-as", "interpret-as": kind}:
                respelling = say_as(text, kind, attributes.get("format", ""))
                return Pronunciation(respelling=respelling) if respelling else None
        return None


SSML: Final = DocumentMarkup(_OPENING, _END, _MAX_END_CHARACTERS, _EMPTY, _parse)
