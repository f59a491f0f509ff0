"""Directions in plain text: what is written for the machine that speaks, and not to be spoken.

    "<think>Short.</think>Yes. [pause:1.5s] Done."  ->  skipped, "Yes. ", a pause of 1.5 s, " Done."

Language models write their thoughts and the calls of their tools between tags, "<think>...</think>", and data
for programs in fenced JSON. They are skipped, however the text is split. A block that is never closed ends
after ``MAX_SKIPPED_CHARACTERS``, so that a stream does not fall silent for good. Writers ask for a pause by
"[pause:1.5s]", "[pause 500ms]" or SSML's "<break time="1s"/>". Incremental, no I/O, no clock.
"""

import re
from typing import Final

from ..prosody import BREAK_STRENGTHS_S, MAX_BREAK_S, DirectedText, PlainText

MAX_SKIPPED_CHARACTERS: Final = 65_536
_MAX_DIRECTION_CHARACTERS: Final = 100  # of an opening tag or a pause; a longer one is text

# Of DeepSeek, Qwen, Magistral ("[THINK]"), Hermes, and prompts that ask for them.
_BLOCKS: Final = (
    *("think", "thinking", "thought", "thoughts", "reasoning", "reflection", "analysis", "scratchpad"),
    *("tool_call", "tool_calls", "tool_response", "tool_use", "function_call", "function_calls"),
)
_FENCED_DATA: Final = ("json", "jsonc", "json5", "jsonl", "tool_code", "tool_call", "tool_calls")
_NAMES: Final = "|".join(sorted(_BLOCKS, key=len, reverse=True))
_NUMBER: Final = r"\d{1,6}(?:\.\d{1,6})?|\.\d{1,6}"
_UNIT: Final = "ms|milliseconds?|seconds?|secs?|s|minutes?|min|hours?|h"
_DIRECTION: Final = re.compile(
    rf"<(?P<tag>{_NAMES})(?:\s[^<>]*)?>"
    rf"|</(?P<closed>{_NAMES})\s*>"  # without its beginning, as some servers of models leave it
    r"|\[(?P<bracket>think)\]|\[/(?P<closed_bracket>think)\]"
    rf"|```(?P<fence>{'|'.join(sorted(_FENCED_DATA, key=len, reverse=True))})\b"
    rf"|(?P<pause>\[pause(?:[ :=] ?(?P<span>{_NUMBER}) ?(?P<unit>{_UNIT})?)?\])"
    rf"|(?P<break><break(?:\s+time\s*=\s*[\"']?(?P<time>{_NUMBER}) ?(?P<time_unit>{_UNIT})?[\"']?)?"
    r"(?:\s+strength\s*=\s*[\"']?(?P<strength>[a-z-]{1,9})[\"']?)?\s*/?>)",
    re.IGNORECASE,
)
_SIGNS: Final = re.compile(r"[<\[`]")
_BEGINNINGS: Final = (
    *(f"<{name}" for name in _BLOCKS),
    *(f"</{name}" for name in _BLOCKS),
    *("<break", "[pause", "[think]", "[/think]"),
    *(f"```{name}" for name in _FENCED_DATA),
)
_ENDS: Final = {"<": ">", "[": "]", "`": "\n"}


class Directions(PlainText):
    """Finds the directions in a text that arrives in pieces of any size; belongs to one stream."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a direction, or of the end of a block
        self._block_end = ""  # of the block that is skipped now, in lower case
        self._skipped = 0  # characters of that block

    def push(self, text: str) -> list[DirectedText]:
        """Add text; the stretches that are decided now."""
        rest, self._held = self._held + text, ""
        found: list[DirectedText] = []
        while rest:
            rest = self._skip_block(rest, found) if self._block_end else self._read(rest, found)
        return found

    def flush(self) -> list[DirectedText]:
        """Return what is held; an open block goes on."""
        held, self._held = self._held, ""
        return [DirectedText(held, is_spoken=not self._block_end)] if held else []

    def _read(self, text: str, found: list[DirectedText]) -> str:
        """Read text up to the end of the next direction; returns the rest."""
        at = 0
        while (sign := _SIGNS.search(text, at)) is not None:
            direction = _DIRECTION.match(text, sign.start(), sign.start() + _MAX_DIRECTION_CHARACTERS)
            if direction is not None and not _may_go_on(direction, text):
                _add(found, text[: sign.start()])
                found.append(self._follow(direction))
                return text[direction.end() :]
            if _may_be_direction(text[sign.start() :]):
                self._held = text[sign.start() :]
                _add(found, text[: sign.start()])
                return ""
            at = sign.end()
        _add(found, text)
        return ""

    def _follow(self, direction: re.Match[str]) -> DirectedText:
        if direction["tag"]:
            self._begin_block(f"</{direction['tag']}")
        elif direction["bracket"]:
            self._begin_block("[/think]")
        elif direction["fence"]:
            self._begin_block("```")
        return DirectedText(direction.group(), is_spoken=False, pause_s=_pause_s(direction))

    def _begin_block(self, end: str) -> None:
        self._block_end, self._skipped = end.lower(), 0

    def _skip_block(self, text: str, found: list[DirectedText]) -> str:
        """Skip text up to the end of the block; returns the rest."""
        room = MAX_SKIPPED_CHARACTERS - self._skipped
        end = text.lower().find(self._block_end)
        if 0 <= end <= room:
            return self._end_block(text, end + len(self._block_end), found)
        skipped = len(text) - len(self._block_end) + 1  # what follows may be the beginning of the end
        if skipped > room:
            self._block_end, skipped = "", room
            found.append(DirectedText(text[:skipped], is_spoken=False))
            return text[skipped:]
        self._held = text[max(0, skipped) :]
        if skipped > 0:
            self._skipped += skipped
            found.append(DirectedText(text[:skipped], is_spoken=False))
        return ""

    def _end_block(self, text: str, stop: int, found: list[DirectedText]) -> str:
        """Skip text up to the end of its closing tag, whose name ends at ``stop``; returns the rest."""
        if self._block_end.startswith("</"):
            close = text.find(">", stop, stop + _MAX_DIRECTION_CHARACTERS)
            if close < 0 and len(text) - stop < _MAX_DIRECTION_CHARACTERS:
                self._held = text
                return ""
            stop = max(stop, close + 1)
        self._block_end = ""
        found.append(DirectedText(text[:stop], is_spoken=False))
        return text[stop:]


def _add(found: list[DirectedText], text: str) -> None:
    if text:
        found.append(DirectedText(text))


def _may_go_on(direction: re.Match[str], text: str) -> bool:
    """Whether more text may make another word of the fence's name, as of "```json"."""
    return direction["fence"] is not None and direction.end() == len(text)


def _may_be_direction(rest: str) -> bool:
    """Whether text that begins with a sign may become a direction when more arrives."""
    if len(rest) >= _MAX_DIRECTION_CHARACTERS:
        return False
    lower = rest.lower()
    for beginning in _BEGINNINGS:
        if beginning.startswith(lower):
            return True
        if lower.startswith(beginning):
            following = lower[len(beginning) :]
            return _ENDS[rest[0]] not in following and not following[:1].isalpha()
    return False


def _pause_s(direction: re.Match[str]) -> float | None:
    """Return the pause that a direction asks for, in seconds; None for others."""
    if not (direction["pause"] or direction["break"]):
        return None
    number = direction["span"] or direction["time"]
    if number is None:
        # "[pause]" is a medium one.
        strength = (direction["strength"] or "medium").lower()
        return BREAK_STRENGTHS_S.get(strength, BREAK_STRENGTHS_S["medium"])
    unit = (direction["unit"] or direction["time_unit"] or "s").lower()
    return min(MAX_BREAK_S, float(number) * _seconds_in(unit))


def _seconds_in(unit: str) -> float:
    if unit.startswith(("ms", "mil")):
        return 1e-3
    return {"m": 60.0, "h": 3600.0}.get(unit[0], 1.0)
