"""Voices in plain text: ``[voice:NAME]...[/voice]``, however the text is split.

"Then he said: [voice:anna]Come in![/voice] And so she did."

Tags may be nested: the end of an inner one goes back to the outer voice. One that is never closed lasts to
the end of the text. An end without a beginning is text. Incremental, no I/O, no clock.
"""

import re
from typing import Final

from ..markup import VoicedText

MAX_NAME_CHARACTERS: Final = 256
MAX_TAG_DEPTH: Final = 32  # a tag inside more of them is text
_TAG: Final = re.compile(rf"\[voice:\s*(?P<name>[^\[\]\n]{{1,{MAX_NAME_CHARACTERS}}})\]|(?P<end>\[/voice\])")
_BEGINNINGS: Final = ("[voice:", "[/voice]")


class VoiceTags:
    """Finds the tags in the text of one utterance, and takes them out."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a tag
        self._voices: list[str | None] = [None]  # of the open tags

    def push(self, text: str) -> list[VoicedText]:
        """Add text; the stretches that are decided now."""
        if not self._held and "[" not in text:
            return [VoicedText(text, self._voices[-1])] if text else []
        rest, self._held = self._held + text, ""
        found: list[VoicedText] = []
        begin = at = 0
        while (at := rest.find("[", at)) >= 0:
            tag = _TAG.match(rest, at)
            if tag is not None and self._is_tag(tag):
                self._add(found, rest[begin:at])
                self._follow(tag)
                begin = at = tag.end()
            elif tag is None and _may_be_tag(rest[at:]):
                self._held = rest[at:]
                break
            else:
                at += 1
        self._add(found, rest[begin : len(rest) - len(self._held)])
        return found

    def flush(self) -> list[VoicedText]:
        """Return what is held; open tags go on."""
        held, self._held = self._held, ""
        return [VoicedText(held, self._voices[-1])] if held else []

    def _is_tag(self, tag: "re.Match[str]") -> bool:
        return len(self._voices) > 1 if tag["end"] else len(self._voices) <= MAX_TAG_DEPTH

    def _follow(self, tag: "re.Match[str]") -> None:
        if tag["end"]:
            self._voices.pop()
        else:
            self._voices.append(tag["name"].strip() or None)

    def _add(self, found: list[VoicedText], text: str) -> None:
        if text:
            found.append(VoicedText(text, self._voices[-1]))


def _may_be_tag(rest: str) -> bool:
    """Whether text that begins with a bracket may become a tag when more arrives."""
    if any(beginning.startswith(rest) for beginning in _BEGINNINGS):
        return True
    name = rest.removeprefix(_BEGINNINGS[0])
    return rest != name and len(name) <= MAX_NAME_CHARACTERS and not re.search(r"[\[\]\n]", name)
