"""SSML parser for voices without markup: a document becomes plain text and the prosody of all of it.

``sub`` becomes its alias; ``say-as`` spells characters and digits; ``p``, ``s`` and ``break`` become
punctuation at which a voice pauses. Rate, pitch and volume apply if their element (``speak`` or ``prosody``)
contains all of the text; on a part of the text they are ignored, because a voice would restart its sentence
at both ends of the part. The content of phonemes, sounds and unknown elements is spoken as text, as SSML
demands.

Document types are refused, so there are no entities to expand. The depth is bounded here; the protocol that
carries the document bounds its length.

Source: W3C Speech Synthesis Markup Language 1.1; Alibaba Cloud Model Studio's SSML page; OWASP XML External
Entity Prevention Cheat Sheet.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, NoReturn
from xml.parsers import expat

from ..tts_engine.errors import VivavoceError
from .prosody import Prosody, parse_prosody

MAX_ELEMENT_DEPTH: Final = 32  # nested elements
_MIN_LONG_BREAK_S: Final = 0.3  # shorter breaks become a comma, others a paragraph
_STRENGTHS: Final = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.5, "strong": 1.0, "x-strong": 1.5}
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s)", re.ASCII)
_SPELLED_TYPES: Final = frozenset({"characters", "spell-out", "digits", "telephone"})
_PUNCTUATION: Final = ",.;:!?，。；：！？、…"


class BadSsml(VivavoceError):
    """The document is not SSML that the parser accepts; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class SsmlText:
    """Plain text of a document and the prosody of all of it."""

    text: str
    prosody: Prosody = field(default_factory=Prosody)


def parse_ssml(document: str) -> SsmlText:
    """Parse an SSML document; raises BadSsml."""
    handler = _SsmlParser()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = handler.refuse_doctype
    parser.StartElementHandler = handler.open
    parser.EndElementHandler = handler.close
    parser.CharacterDataHandler = handler.add_text
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "not well-formed")
        raise BadSsml(f"SSML, line {error.lineno}: {reason}") from None
    return SsmlText(handler.text, reduce(Prosody.combined_with, handler.enclosing_prosodies, Prosody()))


class _SsmlParser:
    def __init__(self) -> None:
        self._parts: list[str] = []
        self._open: list[str] = []
        self.enclosing_prosodies: list[Prosody] = []  # of closed elements that contain all text so far
        self._open_prosodies: dict[int, Prosody] = {}  # by the depth of the open element
        self._has_text = False
        self._replaced_depth = 0  # open elements from the ``sub`` whose alias is spoken
        self._spelled_depth = 0

    @property
    def text(self) -> str:
        return "".join(self._parts).strip()

    def refuse_doctype(self, *_: object) -> NoReturn:
        raise BadSsml("SSML: a document type is not allowed")

    def open(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) == MAX_ELEMENT_DEPTH:
            raise BadSsml(f"SSML: at most {MAX_ELEMENT_DEPTH} nested elements are allowed")
        if not self._open and name != "speak":
            raise BadSsml("SSML: the outermost element must be speak")
        self._open.append(name)
        if name in ("speak", "prosody") and not self._has_text:
            self._open_prosodies[len(self._open)] = parse_prosody(attributes)
        if self._replaced_depth or _is_replaced(name, attributes):
            self._replaced_depth += 1
        self._spelled_depth += bool(self._spelled_depth) or attributes.get("interpret-as") in _SPELLED_TYPES
        begin = _TEXT_AT_START.get(name)
        if begin is not None and self._replaced_depth <= 1:
            self._pause_or_say(begin(attributes))

    def close(self, name: str) -> None:
        if len(self._open) in self._open_prosodies:
            self.enclosing_prosodies.append(self._open_prosodies.pop(len(self._open)))
        self._open.pop()
        self._replaced_depth = max(0, self._replaced_depth - 1)
        self._spelled_depth = max(0, self._spelled_depth - 1)
        if not self._replaced_depth:
            self._pause_or_say(_TEXT_AT_END.get(name, ""))

    def add_text(self, text: str) -> None:
        if not self._replaced_depth:
            self._add(" ".join("".join(text.split())) if self._spelled_depth else text)

    def _pause_or_say(self, text: str) -> None:
        last = next((piece.rstrip() for piece in reversed(self._parts) if piece.strip()), "")
        if text in (",", "."):
            text = "" if not last or last[-1] in _PUNCTUATION else text
        self._add(text)

    def _add(self, text: str) -> None:
        if text.strip(_PUNCTUATION + " \t\n"):
            self.enclosing_prosodies.clear()
            self._has_text = True
        self._parts.append(text)


def _is_replaced(name: str, attributes: dict[str, str]) -> bool:
    return name == "sub" and "alias" in attributes


def _pause(attributes: dict[str, str]) -> str:
    seconds = _STRENGTHS.get(attributes.get("strength", "medium"), 0.5)
    if "time" in attributes:
        parts = _TIME.fullmatch(attributes["time"].strip())
        if parts is None:
            raise BadSsml(f"SSML: got break time {attributes['time'][:32]!r}; write '300ms' or '2s'")
        seconds = float(parts[1]) * (0.001 if parts[2] == "ms" else 1.0)
    if not seconds:
        return ""
    return "," if seconds < _MIN_LONG_BREAK_S else "\n\n"


_TEXT_AT_START: Final[dict[str, Callable[[dict[str, str]], str]]] = {
    "break": _pause,
    "sub": lambda attributes: attributes.get("alias", ""),
}
_TEXT_AT_END: Final = {"s": ".", "p": "\n\n"}
