"""Bodies and JSON that clients send, of bounded length, and the halves of characters that JSON can carry."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from fastapi import Request
from starlette.types import Message

MAX_VALUES: Final = 25_000  # in one message; parsed in at most 5 ms, in which no other thread runs
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def load_json(data: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """As ``json.loads``; raises ValueError for too many values too, and RecursionError for deep nesting."""
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
    require_few_values(text)
    return json.loads(text, parse_constant=parse_constant)


def require_few_values(text: str) -> None:
    """Raise ValueError for JSON with more than ``MAX_VALUES`` strings, or arrays, objects and commas."""
    if text.count('"') - text.count('\\"') > 2 * MAX_VALUES or (
        _count_marks(text) > MAX_VALUES and _count_marks(_STRING.sub("", text)) > MAX_VALUES
    ):
        raise ValueError(f"more than {MAX_VALUES} values")


def _count_marks(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


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


async def read_body(request: Request, max_bytes: int, too_long: type[Exception]) -> bytes:
    """The body of a request; raises too_long, with a sentence, if it has more than max_bytes."""
    return await with_bounded_body(
        request, max_bytes, too_long(f"the body is longer than {max_bytes} bytes")
    ).body()


def with_bounded_body(request: Request, max_bytes: int, too_long: Exception) -> Request:
    """The same request; reading more than max_bytes of its body raises too_long."""
    read_bytes = 0

    async def receive() -> Message:
        nonlocal read_bytes
        message = await request.receive()
        read_bytes += len(message.get("body", b""))
        if read_bytes > max_bytes:
            raise too_long
        return message

    return Request(request.scope, receive)
