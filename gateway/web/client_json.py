"""JSON that clients send, of bounded length, and the halves of characters that it can carry."""

import json
from collections.abc import Callable
from typing import Any


def parse_json(data: str | bytes, max_length: int, make_error: Callable[[str], Exception]) -> Any:
    """Parse a message or body of at most ``max_length`` characters or bytes; raises ``make_error(text)``."""
    if len(data) > max_length:
        raise make_error(f"the message is longer than {max_length} characters")
    try:
        return json.loads(data)
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
