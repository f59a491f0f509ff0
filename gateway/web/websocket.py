"""What the speech APIs' WebSockets share: how long a peer may take nothing, and how a socket ends."""

import asyncio
from typing import Final

from fastapi import WebSocket, WebSocketDisconnect
from starlette.responses import Response
from starlette.websockets import WebSocketState

SEND_TIMEOUT_S: Final = 30.0  # who takes nothing for so long is closed; its engine work stopped long before
CLOSE_NORMAL: Final = 1000
CLOSE_GOING_AWAY: Final = 1001
CLOSE_TOO_SLOW: Final = 1008
_CLOSE_TIMEOUT_S: Final = 1.0


def is_open(socket: WebSocket) -> bool:
    """Whether neither side has closed it."""
    return WebSocketState.DISCONNECTED not in (socket.client_state, socket.application_state)


async def close_socket(socket: WebSocket, code: int) -> None:
    """Close it if it is up."""
    if not is_open(socket):
        return
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await socket.close(code)
    except (RuntimeError, TimeoutError, WebSocketDisconnect):
        pass  # it is gone, or takes nothing; then its transport is closed behind us


async def reject_handshake(socket: WebSocket, response: Response) -> None:
    """Refuse the handshake with an HTTP answer."""
    await socket.send_denial_response(response)
    await asyncio.sleep(0)  # the server's connection is over by then; returning before is an error in its log
