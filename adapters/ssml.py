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
from .prosody import Manner, manner_of

DEEPEST: Final = 32  # elements inside each other
_SHORT_BREAK_S: Final = 0.3  # below, a comma; from there on the longest pause that punctuation makes
_STRENGTHS: Final = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.5, "strong": 1.0, "x-strong": 1.5}
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s)", re.ASCII)
_SPELT: Final = frozenset({"characters", "spell-out", "digits", "telephone"})
_PUNCTUATION: Final = ",.;:!?，。；：！？、…"


class BadSsml(VivavoceError):
    """The text is no SSML that is taken; the message says why."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a document says, and how all of it is said."""

    text: str
    manner: Manner = field(default_factory=Manner)


def read_ssml(document: str) -> Spoken:
    """What an SSML document says; raises BadSsml."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.refuse_doctype
    parser.StartElementHandler = reader.open
    parser.EndElementHandler = reader.close
    parser.CharacterDataHandler = reader.say
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "not well-formed")
        raise BadSsml(f"SSML, line {error.lineno}: {reason}") from None
    return Spoken(reader.text, reduce(Manner.within, reader.manners, Manner()))


class _Reader:
    def __init__(self) -> None:
        self._said: list[str] = []
        self._open: list[str] = []
        self.manners: list[Manner] = []  # of elements that are over, and that all text so far is in
        self._around: dict[int, Manner] = {}  # of those that are open, by their depth
        self._begun = False
        self._replaced = 0  # elements around here whose content is not said
        self._spelt = 0

    @property
    def text(self) -> str:
        return "".join(self._said).strip()

    def refuse_doctype(self, *_: object) -> NoReturn:
        raise BadSsml("SSML: a document type is not allowed")

    def open(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) == DEEPEST:
            raise BadSsml(f"SSML: at most {DEEPEST} elements inside each other are allowed")
        if not self._open and name != "speak":
            raise BadSsml("SSML: the outermost element must be speak")
        self._open.append(name)
        if name in ("speak", "prosody") and not self._begun:
            self._around[len(self._open)] = manner_of(attributes)
        if self._replaced or _is_replaced(name, attributes):
            self._replaced += 1
        self._spelt += bool(self._spelt) or attributes.get("interpret-as") in _SPELT
        begin = _BEGINS.get(name)
        if begin is not None and self._replaced <= 1:
            self._pause_or_say(begin(attributes))

    def close(self, name: str) -> None:
        if len(self._open) in self._around:
            self.manners.append(self._around.pop(len(self._open)))
        self._open.pop()
        self._replaced = max(0, self._replaced - 1)
        self._spelt = max(0, self._spelt - 1)
        if not self._replaced:
            self._pause_or_say(_ENDS.get(name, ""))

    def say(self, text: str) -> None:
        if not self._replaced:
            self._add(" ".join("".join(text.split())) if self._spelt else text)

    def _pause_or_say(self, text: str) -> None:
        last = next((piece.rstrip() for piece in reversed(self._said) if piece.strip()), "")
        if text in (",", "."):
            text = "" if not last or last[-1] in _PUNCTUATION else text
        self._add(text)

    def _add(self, text: str) -> None:
        if text.strip(_PUNCTUATION + " \t\n"):
            self.manners.clear()
            self._begun = True
        self._said.append(text)


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
    return "," if seconds < _SHORT_BREAK_S else "\n\n"


_BEGINS: Final[dict[str, Callable[[dict[str, str]], str]]] = {
    "break": _pause,
    "sub": lambda attributes: attributes.get("alias", ""),
}
_ENDS: Final = {"s": ".", "p": "\n\n"}
