"""Recognition of SSML documents in the text of an utterance, which may arrive in pieces.

A text that begins with ``<speak`` is a document; it is held until its end has arrived. After a document or a
flush, the next text may be one again.
"""

import re
from enum import Enum, auto
from typing import Final

from .ssml import MAX_DOCUMENT_CHARACTERS, BadSsml, SsmlDocument, parse_ssml, plain_document

_OPENING: Final = "<speak"
_BEGINS: Final = re.compile(r"<speak[\s/>]")
_END: Final = re.compile(r"</speak\s{0,8}>")
_MAX_END_CHARACTERS: Final = 16
_EMPTY: Final = re.compile(r"\s*<speak[^<>]*/>")


class _Kind(Enum):
    UNDECIDED = auto()  # blanks, or a part of "<speak"
    PLAIN = auto()
    DOCUMENT = auto()


class SsmlInput:
    """Turns pieces of text into documents; plain text is passed on at once."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._characters = 0
        self._kind = _Kind.UNDECIDED

    def push(self, text: str) -> list[SsmlDocument]:
        """Take text; what can be spoken now. Raises BadSsml."""
        if self._kind is _Kind.PLAIN:
            return [plain_document(text)]
        self._held.append(text)
        self._characters += len(text)
        if self._kind is _Kind.UNDECIDED:
            held = "".join(self._held)
            self._held, self._kind = [held], _kind_of(held)
        if self._kind is _Kind.PLAIN:
            return [plain_document(self._take())]
        if self._kind is _Kind.UNDECIDED or ">" not in text:
            self._require_room()
            return []
        return self._take_documents(len(text))

    def flush(self) -> list[SsmlDocument]:
        """End the text so far; what is held of it. Raises BadSsml if a document has no end."""
        kind, self._kind = self._kind, _Kind.UNDECIDED
        held = self._take()
        if kind is _Kind.DOCUMENT:
            return [parse_ssml(held.strip())]  # which names the place
        return [plain_document(held)] if held else []

    def _take_documents(self, new_characters: int) -> list[SsmlDocument]:
        """The document that has its end in the text held, and what follows it."""
        held = "".join(self._held)
        self._held = [held]
        end = _END.search(held, max(0, len(held) - new_characters - _MAX_END_CHARACTERS)) or _EMPTY.match(
            held
        )
        if end is None:
            self._require_room()
            return []
        self._take()
        self._kind = _Kind.UNDECIDED
        rest = held[end.end() :]
        return [parse_ssml(held[: end.end()].strip()), *(self.push(rest) if rest.strip() else [])]

    def _require_room(self) -> None:
        if self._characters > MAX_DOCUMENT_CHARACTERS:
            raise BadSsml(
                f"SSML: a document without end; at most {MAX_DOCUMENT_CHARACTERS} characters may be"
            )

    def _take(self) -> str:
        held = "".join(self._held)
        self._held, self._characters = [], 0
        return held


def _kind_of(text: str) -> _Kind:
    stripped = text.lstrip()
    if _BEGINS.match(stripped):
        return _Kind.DOCUMENT
    return _Kind.UNDECIDED if _OPENING.startswith(stripped) else _Kind.PLAIN
