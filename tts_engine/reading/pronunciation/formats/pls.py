"""Lexicons in the W3C's Pronunciation Lexicon Specification.

Of PLS: ``lexeme``, ``grapheme``, ``phoneme`` (the preferred or first one, alphabet "ipa") and ``alias``.
Document types are refused, so there are no entities to expand; size and depth are bounded.
Source: W3C Pronunciation Lexicon Specification 1.0; OWASP XML External Entity Prevention Cheat Sheet.
"""

from typing import Final, NoReturn
from xml.parsers import expat

from ..entries import BadLexicon, LexiconFormat, make_pronunciation
from ..ipa import BadIpa, read_ipa
from ..lexicon import Pronunciation, fold_phrase

_MAX_DEPTH: Final = 16  # PLS needs 3


def _parse(data: bytes, name: str) -> dict[str, Pronunciation]:
    reader = _PlsReader(name)
    parser = reader.parser
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "not well-formed")
        raise BadLexicon(f"{name}, line {error.lineno}: {reason}") from None
    return reader.entries


class _PlsReader:
    def __init__(self, name: str) -> None:
        self.entries: dict[str, Pronunciation] = {}
        self._name = name
        self._open: list[str] = []
        self._alphabets: list[str] = []  # of each open element
        self._text = ""
        self._preferred = self._is_preferred = False
        self._graphemes: list[str] = []
        self._phonemes = self._alias = ""
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text

    def _refuse_doctype(self, *_: object) -> NoReturn:
        self._refuse("a document type is not allowed")

    def _refuse(self, reason: str) -> NoReturn:
        raise BadLexicon(f"{self._name}, line {self.parser.CurrentLineNumber}: {reason}")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if len(self._open) == _MAX_DEPTH:
            self._refuse(f"at most {_MAX_DEPTH} nested elements are allowed")
        if not self._open and name != "lexicon":
            self._refuse("the outermost element must be lexicon")
        inherited = self._alphabets[-1] if self._alphabets else "ipa"
        self._alphabets.append(attributes.get("alphabet", inherited))
        self._open.append(name)
        self._text = ""
        if name == "lexeme":
            self._graphemes, self._phonemes, self._alias, self._preferred = [], "", "", False
        self._is_preferred = attributes.get("prefer") == "true"

    def _add_text(self, text: str) -> None:
        self._text += text

    def _end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        alphabet = self._alphabets.pop()
        self._open.pop()
        text = " ".join(self._text.split())
        self._text = ""
        if name == "grapheme":
            self._graphemes.append(text)
        elif name == "alias" and not self._alias:
            self._alias = text
        elif name == "phoneme":
            self._take_phonemes(text, alphabet)
        elif name == "lexeme":
            self._add_entry()

    def _take_phonemes(self, text: str, alphabet: str) -> None:
        if alphabet != "ipa":
            self._refuse(f"the alphabet {alphabet!r} is not known; allowed is ipa")
        try:
            read_ipa(text)
        except BadIpa as error:
            self._refuse(str(error))
        if not self._phonemes or (self._is_preferred and not self._preferred):
            self._phonemes, self._preferred = text, self._is_preferred

    def _add_entry(self) -> None:
        try:
            pronunciation = make_pronunciation(self._alias, self._phonemes)
            self.entries |= {fold_phrase(grapheme): pronunciation for grapheme in self._graphemes}
        except ValueError as error:
            self._refuse(str(error))
        if not self._graphemes:
            self._refuse("a lexeme needs a grapheme")


PLS: Final = LexiconFormat((".pls", ".xml"), _parse)
