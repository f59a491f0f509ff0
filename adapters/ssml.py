"""SSML as the text that is said, and how: what a voice without markup can do with it, safely parsed.

``sub`` is said as its alias, ``say-as`` spells characters and digits, ``p``, ``s`` and ``break`` become the
punctuation that a voice pauses at. Rate, pitch and volume of the whole text, of ``speak`` and of a
``prosody`` around everything, are its manner; those of a part of it, phonemes and sounds are not taken: their
content is said as it is. (CosyVoice's SSML has no ``prosody``, and for a part a voice would begin a sentence
anew at each end of it.) Elements that are not known are said as well, as SSML wants.

A document type is refused, which leaves no entities to expand; depth is bounded here, length by the frame.

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

MAX_ELEMENT_DEPTH: Final = 32  # elements inside each other
_MIN_LONG_BREAK_S: Final = 0.3  # below, a comma; from there on the longest pause that punctuation makes
_STRENGTHS: Final = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.5, "strong": 1.0, "x-strong": 1.5}
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s)", re.ASCII)
_SPELLED_TYPES: Final = frozenset({"characters", "spell-out", "digits", "telephone"})
_PUNCTUATION: Final = ",.;:!?，。；：！？、…"


class BadSsml(VivavoceError):
    """The text is no SSML that is taken; the message says why."""


@dataclass(frozen=True, slots=True)
class SsmlText:
    """What a document says, and how all of it is said."""

    text: str
    prosody: Prosody = field(default_factory=Prosody)


def parse_ssml(document: str) -> SsmlText:
    """What an SSML document says; raises BadSsml."""
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
        self.enclosing_prosodies: list[
            Prosody
        ] = []  # of elements that are over, and that all text so far is in
        self._open_prosodies: dict[int, Prosody] = {}  # of those that are open, by their depth
        self._has_text = False
        self._replaced_depth = 0  # elements around here whose content is not said
        self._spelled_depth = 0

    @property
    def text(self) -> str:
        return "".join(self._parts).strip()

    def refuse_doctype(self, *_: object) -> NoReturn:
        raise BadSsml("SSML: a document type is not allowed")

    def open(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) == MAX_ELEMENT_DEPTH:
            raise BadSsml(f"SSML: at most {MAX_ELEMENT_DEPTH} elements inside each other are allowed")
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
            raise BadSsml(f"SSML: break time {attributes['time'][:32]!r}; write '300ms' or '2s'")
        seconds = float(parts[1]) * (0.001 if parts[2] == "ms" else 1.0)
    if not seconds:
        return ""
    return "," if seconds < _MIN_LONG_BREAK_S else "\n\n"


_TEXT_AT_START: Final[dict[str, Callable[[dict[str, str]], str]]] = {
    "break": _pause,
    "sub": lambda attributes: attributes.get("alias", ""),
}
_TEXT_AT_END: Final = {"s": ".", "p": "\n\n"}
