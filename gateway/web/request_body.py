"""A request whose body is read up to a limit, for routes that read bodies by hand."""

from fastapi import Request
from starlette.types import Message


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
