"""Bounded reading of JSON messages: every field is checked for its type and length."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final

from .events import MediaStreamProtocolError

MAX_TEXT_CHARACTERS: Final = 512  # of an id or a name
MAX_VARIABLES: Final = 256
MAX_VARIABLE_CHARACTERS: Final = 4096


class JsonObject:
    """A JSON object of a peer. Methods raise MediaStreamProtocolError, which names the field."""

    def __init__(self, fields: Mapping[str, object], name: str = "message") -> None:
        self._fields = fields
        self._name = name

    @classmethod
    def parse(cls, text: str) -> "JsonObject":
        """Parse a message."""
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            raise MediaStreamProtocolError(f"got {_shown(text)}, which is not JSON") from None
        if not isinstance(parsed, dict):
            raise MediaStreamProtocolError(f"got {_shown(text)}, which is not a JSON object")
        return cls(parsed)

    def child(self, field: str) -> "JsonObject":
        """Return a field that is an object."""
        value = self._fields.get(field)
        if not isinstance(value, dict):
            raise self._error(field, value, "an object")
        return JsonObject(value, field)

    def has(self, field: str) -> bool:
        """Return whether the field is there and not null."""
        return self._fields.get(field) is not None

    def text(self, field: str) -> str:
        """Return a field that is a text of 1 to 512 characters."""
        value = self._fields.get(field)
        if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARACTERS:
            raise self._error(field, value, f"a text of 1 to {MAX_TEXT_CHARACTERS} characters")
        return value

    def text_or_none(self, field: str) -> str:
        """Return a field that is a text, "" if it is missing, empty or null."""
        return self.text(field) if self._fields.get(field) not in (None, "") else ""

    def number(self, field: str) -> int:
        """Return a field that is a whole number, also one written as a text."""
        value = self._fields.get(field)
        if isinstance(value, str) and len(value) <= 9 and value.isascii() and value.isdecimal():
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9:
            return value
        raise self._error(field, value, "a whole number")

    def audio(self, field: str) -> bytes:
        """Return a field that is base64."""
        value = self._fields.get(field)
        if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                pass
        raise self._error(field, value, "base64")

    def variables(self, field: str) -> dict[str, str]:
        """Return the texts of a field that is an object, as ``bounded_texts``."""
        value = self._fields.get(field)
        return bounded_texts(value) if isinstance(value, dict) else {}

    def texts(self) -> dict[str, str]:
        """Return the texts of this object, as ``bounded_texts``."""
        return bounded_texts(self._fields)

    def _error(self, field: str, value: object, allowed: str) -> MediaStreamProtocolError:
        return MediaStreamProtocolError(f"{self._name}.{field}: got {_shown(value)}; allowed is {allowed}")


def bounded_texts(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the fields that are texts of at most 4,096 characters; the first 256 of them."""
    texts = {
        name: text
        for name, text in fields.items()
        if isinstance(text, str) and len(text) <= MAX_VARIABLE_CHARACTERS and len(name) <= MAX_TEXT_CHARACTERS
    }
    return dict(list(texts.items())[:MAX_VARIABLES])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
