"""The end of a WebSocket, from this side or the client's."""

import asyncio
from typing import Final

from fastapi import WebSocket, WebSocketDisconnect
from starlette.websockets import WebSocketState

CLOSE_NORMAL: Final = 1000  # RFC 6455, 7.4.1
_CLOSE_TIMEOUT_S: Final = 1.0


def is_open(socket: WebSocket) -> bool:
    """Whether neither side has closed the socket."""
    return WebSocketState.DISCONNECTED not in (socket.client_state, socket.application_state)


async def close_socket(socket: WebSocket, code: int, reason: str = "") -> None:
    """Close the socket unless it is closed."""
    if not is_open(socket):
        return
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await socket.close(code, reason)
    except (RuntimeError, TimeoutError, WebSocketDisconnect):
        pass  # the client is gone or reads nothing; uvicorn closes the transport when the route returns
