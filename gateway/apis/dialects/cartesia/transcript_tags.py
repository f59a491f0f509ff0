"""Cartesia's tags in a transcript, however it is split into messages.

    "Your code is <spell>AB1</spell>.<break time="1s"/><speed ratio="0.8"/>Write it down."

``speed`` and ``volume`` count for the text after them, ``break`` is silence, ``spell`` says its content
character by character, and ``emotion`` is dropped, as are numbers that are none. Tags are not part of the
text that is spoken, and so of no word. No I/O, no clock.

Source: docs.cartesia.ai/build-with-cartesia/capability-guides/ssml-tags (API version 2026-03-01).
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from .....adapters.ssml.document import MAX_PRONOUNCED_CHARACTERS, SsmlPiece
from .....tts_engine.reading.pronunciation.lexicon import Pronunciation
from .....tts_engine.reading.prosody import MAX_BREAK_S, Prosody

MAX_TAG_CHARACTERS: Final = 100  # a longer one is text
MAX_SPELLED_CHARACTERS: Final = 1_000  # after which an element that is not closed ends
_SPEEDS: Final = (0.6, 1.5)  # factors; another is moved into the range
_VOLUMES: Final = (0.5, 2.0)
_USUAL_BREAK_S: Final = 0.5  # of a break that states no time, as in SSML
_TAG: Final = re.compile(
    r"<(?P<end>/)?(?P<name>speed|volume|emotion|break|spell)(?P<attributes>\s[^<>]*)?/?>", re.IGNORECASE
)
_BEGINNINGS: Final = tuple(
    f"<{end}{name}" for end in ("", "/") for name in ("speed", "volume", "emotion", "break", "spell")
)
_RATIO: Final = re.compile(r"\b(?:ratio|level)\s*=\s*[\"']?(\d{1,6}(?:\.\d{1,6})?)[\"'\s/]*", re.ASCII)
_TIME: Final = re.compile(r"\btime\s*=\s*[\"']?(\d{1,6}(?:\.\d{1,6})?|\.\d{1,6})\s?(ms|s)?\b", re.ASCII)
_SPELL_END: Final = re.compile(r"</spell\s{0,8}>", re.IGNORECASE)
_MAX_SPELL_END_CHARACTERS: Final = 16
_GROUP: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class _Factors:
    """Of the voice's own speed and volume."""

    speed: float = 1.0
    volume: float = 1.0


class TranscriptTags:
    """Finds the tags in the transcripts of one context, and takes them out; speed and volume go on.

    Args:
        speed: of the request, that a tag replaces.
        volume: likewise.
    """

    def __init__(self, speed: float = 1.0, volume: float = 1.0) -> None:
        self._requested = self._factors = _Factors(speed, volume)
        self._held = ""  # may be the beginning of a tag, or is being spelled
        self._spells = False
        self._spelled = 0  # characters of the element
        self._last = " "  # character of the text without tags
        self._parts_words = False  # whether a tag stands between the last character and the next

    def push(self, text: str) -> list[SsmlPiece]:
        """Add text; the pieces that are decided now."""
        if not self._held and not self._spells and "<" not in text:
            return self._text(text)
        rest, self._held = self._held + text, ""
        found: list[SsmlPiece] = []
        while rest:
            rest = self._read_spelled(rest, found) if self._spells else self._read(rest, found)
        return found

    def flush(self) -> list[SsmlPiece]:
        """Return what is held; an element that is being spelled ends."""
        held, self._held = self._held, ""
        spells, self._spells = self._spells, False
        found = self._spell(held) if spells else self._text(held)
        self._last, self._parts_words = " ", False
        return found

    def _read(self, text: str, found: list[SsmlPiece]) -> str:
        """Read text up to the end of the next tag; returns the rest."""
        at = 0
        while (at := text.find("<", at)) >= 0:
            tag = _TAG.match(text, at, at + MAX_TAG_CHARACTERS)
            if tag is not None:
                found += self._text(text[:at])
                self._follow(tag, found)
                return text[tag.end() :]
            if _may_be_tag(text[at:]):
                found += self._text(text[:at])
                self._held = text[at:]
                return ""
            at += 1
        found += self._text(text)
        return ""

    def _follow(self, tag: "re.Match[str]", found: list[SsmlPiece]) -> None:
        name, attributes = tag["name"].lower(), tag["attributes"] or ""
        if name == "spell":
            self._spells, self._spelled = not tag["end"] and not tag.group().endswith("/>"), 0
            return
        self._parts_words = True
        if name == "break" and not tag["end"]:
            found.append(SsmlPiece("", pause_s=_break_s(attributes)))
        elif name == "speed":
            speed = self._requested.speed if tag["end"] else _ratio(attributes, _SPEEDS, self._factors.speed)
            self._factors = replace(self._factors, speed=speed)
        elif name == "volume":
            volume = (
                self._requested.volume if tag["end"] else _ratio(attributes, _VOLUMES, self._factors.volume)
            )
            self._factors = replace(self._factors, volume=volume)

    def _read_spelled(self, text: str, found: list[SsmlPiece]) -> str:
        """Spell text up to the end of the element; returns the rest."""
        room = MAX_SPELLED_CHARACTERS - self._spelled
        end = _SPELL_END.search(text, 0, room + _MAX_SPELL_END_CHARACTERS)
        if end is not None:
            self._spells = False
            found += self._spell(text[: end.start()])
            return text[end.end() :]
        if len(text) >= room + _MAX_SPELL_END_CHARACTERS:
            self._spells = False
            found += self._spell(text[:room])
            return text[room:]
        self._held = text
        return ""

    def _spell(self, text: str) -> list[SsmlPiece]:
        """Return a text in pieces that are short enough for a pronunciation each."""
        found: list[SsmlPiece] = []
        for begin in range(0, len(text), MAX_PRONOUNCED_CHARACTERS):
            part = text[begin : begin + MAX_PRONOUNCED_CHARACTERS]
            said = ", ".join(" ".join(group) for group in _GROUP.findall(part))
            blank = part[: len(part) - len(part.lstrip())]
            found += self._text(blank)
            found += self._text(part.strip(), Pronunciation(respelling=said) if said else None)
            found += self._text(part[len(blank) + len(part.strip()) :])
        return found

    def _text(self, text: str, pronunciation: Pronunciation | None = None) -> list[SsmlPiece]:
        """Return a text as a piece; after a tag between two words it begins with a blank."""
        if not text:
            return []
        joins = self._parts_words and not self._last.isspace() and text[0].isalnum()
        self._last, self._parts_words = text[-1], False
        prosody = Prosody(
            speed=self._factors.speed / self._requested.speed,
            volume=self._factors.volume / (self._requested.volume or 1.0),
        )
        blank = [SsmlPiece(" ", prosody=prosody)] if joins else []
        return [*blank, SsmlPiece(text, pronunciation, prosody)]


def _may_be_tag(rest: str) -> bool:
    """Whether text that begins with "<" may become a tag when more arrives."""
    lower = rest[:MAX_TAG_CHARACTERS].lower()
    if len(lower) == MAX_TAG_CHARACTERS:
        return False
    for beginning in _BEGINNINGS:
        following = lower[len(beginning) :]
        if beginning.startswith(lower):
            return True
        if lower.startswith(beginning) and not following[:1].isalnum():
            return "<" not in following and ">" not in following
    return False


def _ratio(attributes: str, limits: tuple[float, float], otherwise: float) -> float:
    found = _RATIO.search(attributes)
    return min(max(float(found[1]), limits[0]), limits[1]) if found else otherwise


def _break_s(attributes: str) -> float:
    found = _TIME.search(attributes)
    if found is None:
        return _USUAL_BREAK_S
    return min(MAX_BREAK_S, float(found[1]) * (0.001 if found[2] == "ms" else 1.0))
