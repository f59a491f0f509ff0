"""Bodies and JSON that clients send, of bounded length, and the halves of characters that JSON can carry."""

import re
from typing import Final

from fastapi import Request
from starlette.types import Message

MAX_VALUES: Final = 25_000  # in one message; parsed in at most 5 ms, in which no other thread runs
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def require_few_values(text: str) -> None:
    """Raise ValueError for JSON with more than ``MAX_VALUES`` strings, or arrays, objects and commas."""
    if text.count('"') - text.count('\\"') > 2 * MAX_VALUES or (
        _count_marks(text) > MAX_VALUES and _count_marks(_STRING.sub("", text)) > MAX_VALUES
    ):
        raise ValueError(f"more than {MAX_VALUES} values")


def _count_marks(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


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
