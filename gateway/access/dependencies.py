"""Access control in FastAPI: a dependency that requires a scope.

Middleware ends connections whose key is not valid any more.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import Response
from fastapi.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access_control import AccessControl, Grant
from .errors import GrantEnded
from .grant_ends import ConnectionGrants, ending_with_grants
from .keys import Scope as KeyScope

CLOSE_REFUSED: Final = 1008  # "policy violation" of RFC 6455, 7.4.1
_DISCARD_UNSENT: Final = struct.pack("ii", 1, 0)  # struct linger: on, for no time
_LAST_MESSAGE_S: Final = 0.5  # for the last message to a client that may read nothing


def require_scope(access: AccessControl, scope: KeyScope) -> Callable[[HTTPConnection], Awaitable[Grant]]:
    """Return a FastAPI dependency, for requests and WebSockets, that requires a scope.

    The dependency raises KeyRefused, ScopeMissing or OriginRefused, which ``web.app`` answers.
    """

    # A coroutine although it never waits: FastAPI runs other dependencies on threads, and ``access`` belongs
    # to the event loop.
    async def check_grant(connection: HTTPConnection) -> Grant:
        grant = access.grant(connection.headers)
        grant.require(scope)
        connection.state.grant = grant
        return grant

    return check_grant


def grant_of(connection: HTTPConnection) -> Grant:
    """Return the grant of a connection that passed ``require_scope``."""
    grant: Grant = connection.state.grant
    return grant


class GrantMiddleware:
    """ASGI middleware that ends a connection soon after a grant that was issued for it has ended.

    A WebSocket is closed with 1008 and a reason. A request is answered with 401, or its connection is dropped
    if the answer has begun. Dialects that report the end themselves do so before.

    refuse: makes the answer to a request, in the format of its API.
    """

    def __init__(self, app: ASGIApp, refuse: Callable[[HTTPConnection, GrantEnded], Response]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            with ending_with_grants(counts_socket=scope["type"] == "websocket") as grants:
                await self._app(scope, _receive_while_granted(receive, grants), answer.send)
                grants.raise_if_ended()  # of an answer that its dialect left incomplete
        except GrantEnded as error:
            try:
                async with asyncio.timeout(_LAST_MESSAGE_S):
                    await self._end(scope, receive, answer, error)
            except TimeoutError:
                await _drop(scope)

    async def _end(self, scope: Scope, receive: Receive, answer: "_Answer", error: GrantEnded) -> None:
        if answer.is_complete:
            return
        if scope["type"] == "websocket":
            await answer.send({"type": "websocket.close", "code": CLOSE_REFUSED, "reason": str(error)})
        elif answer.has_begun:
            await _drop(scope)
        else:
            await self._refuse(HTTPConnection(scope), error)(scope, receive, answer.send)


class _Answer:
    """How much of an answer has been sent."""

    def __init__(self, send: Send) -> None:
        self.has_begun = False
        self.is_complete = False
        self._send = send

    async def send(self, message: Message) -> None:
        """Send a message of the app."""
        self.has_begun = True
        match message["type"]:
            case "websocket.close":
                self.is_complete = True
            case "http.response.body" | "websocket.http.response.body":
                self.is_complete = not message.get("more_body", False)
        await self._send(message)


def _receive_while_granted(receive: Receive, grants: ConnectionGrants) -> Receive:
    async def receive_while_granted() -> Message:
        message = await receive()
        await grants.require_current()
        return message

    return receive_while_granted


async def _drop(scope: Scope) -> None:
    """Drop the connection, with what is unsent, so that its client knows that the answer is incomplete."""
    transport: asyncio.Transport | None = scope.get("state", {}).get("transport")
    if transport is not None:
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD_UNSENT)
        transport.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # uvicorn logs an incomplete answer as an error while the client is there
