"""The WebSockets of a dialect: their routes, handshakes and common end."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

from fastapi import APIRouter, WebSocket
from starlette.responses import Response

from ....tts_engine.errors import VivavoceError
from ...web.unmatched import ErrorFormat
from ..shell.speech_server import SpeechServer
from .websocket_connection import WebSocketConnection, WebSocketConnections

# What serves the sockets of each path.
SocketHandlers = Mapping[str, Callable[[WebSocket], Awaitable[None]]]


class SpeechSocketApi(ABC):
    """The sockets of one API of a server. Belongs to its event loop."""

    error_formats: ClassVar[tuple[ErrorFormat, ...]] = ()  # of paths near its routes that are no routes

    def __init__(self, server: SpeechServer) -> None:
        self.server = server
        self.connections = WebSocketConnections()

    @abstractmethod
    def handlers(self) -> SocketHandlers:
        """Return what serves the sockets of each path; it checks keys itself."""

    def routes(self) -> APIRouter:
        """Return the routes of the sockets. FastAPI adds no dependencies to them, such as a mount's scope."""
        router = APIRouter()
        for path, serve in self.handlers().items():
            router.add_websocket_route(path, serve)
        return router

    async def serve(
        self,
        make: Callable[[WebSocket], WebSocketConnection],
        refuse: Callable[[Exception], Response],
        socket: WebSocket,
        headers: Sequence[tuple[bytes, bytes]] = (),
        subprotocol: str | None = None,
    ) -> None:
        """Serve a socket to its end.

        make: checks the handshake, and returns the connection. refuse: returns the answer to a handshake
        that is refused. headers, subprotocol: of the answer to one that is not.
        """
        try:
            connection = make(socket)
        except VivavoceError as error:
            await _reject_handshake(socket, refuse(error))
            return
        await socket.accept(subprotocol, headers)
        await self.connections.serve(connection)

    async def finish(self, within_s: float) -> None:
        """Refuse new speech, wait at most within_s for what is under way, close all sockets with 1001."""
        self.server.start_draining()
        await self.connections.drain_and_close(within_s)


async def _reject_handshake(socket: WebSocket, response: Response) -> None:
    """Answer the handshake with an HTTP response instead of accepting it."""
    await socket.send_denial_response(response)
    # uvicorn ends the connection in its next step; a route that returns before is logged as an error.
    await asyncio.sleep(0)
