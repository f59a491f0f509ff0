"""JSON that clients send, of bounded length, and the halves of characters that it can carry."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

MAX_VALUES: Final = 25_000  # in one message; parsed in at most 5 ms, in which no other thread runs
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_STRING_BYTES: Final = re.compile(_STRING.pattern.encode(), re.DOTALL)


def load_json(data: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """As ``json.loads``; raises ValueError for too many values too, and RecursionError for deep nesting."""
    require_few_values(data)
    return json.loads(data, parse_constant=parse_constant)


def require_few_values(data: str | bytes) -> None:
    """Raise ValueError for JSON with more than ``MAX_VALUES`` strings, or arrays, objects and commas."""
    if _count(data, '"') - _count(data, '\\"') > 2 * MAX_VALUES or (
        _count_marks(data) > MAX_VALUES and _count_marks(_without_strings(data)) > MAX_VALUES
    ):
        raise ValueError(f"more than {MAX_VALUES} values")


def _count_marks(data: str | bytes) -> int:
    return _count(data, ",") + _count(data, "[") + _count(data, "{")


def _count(data: str | bytes, part: str) -> int:
    return data.count(part) if isinstance(data, str) else data.count(part.encode())


def _without_strings(data: str | bytes) -> str | bytes:
    return _STRING.sub("", data) if isinstance(data, str) else _STRING_BYTES.sub(b"", data)


def parse_json(data: str | bytes, max_length: int, make_error: Callable[[str], Exception]) -> Any:
    """Parse a message or body of at most ``max_length`` characters or bytes; raises ``make_error(text)``."""
    if len(data) > max_length:
        raise make_error(f"the message is longer than {max_length} characters")
    try:
        return load_json(data)
    except (ValueError, RecursionError) as error:  # the latter for deep nesting
        raise make_error(f"this is not JSON: {error}") from None


def parse_json_object(
    data: str | bytes, max_length: int, make_error: Callable[[str], Exception]
) -> dict[str, Any]:
    """Parse a JSON object as ``parse_json``."""
    value = parse_json(data, max_length, make_error)
    if not isinstance(value, dict):
        raise make_error(f"got JSON that is a {type(value).__name__}; an object is needed")
    return value


def replace_lone_surrogates(text: str) -> str:
    """Replace halves of UTF-16 pairs, which JSON can carry but UTF-8 cannot, by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
