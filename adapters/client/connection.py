"""One connection to the native speech socket of a server.

Servers close connections that are idle for a minute, and refuse handshakes with an HTTP status.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, InvalidURI, WebSocketException
from websockets.uri import parse_uri

from ...tts_engine.errors import BadRequest, Overloaded, VivavoceError

SPEECH_STREAM_PATH: Final = "/v1/audio/speech/stream"

_MAX_MESSAGE_BYTES: Final = 2**22  # received; a server sends about 1 s of audio in one message
_CLOSE_TIMEOUT_S: Final = 1.0  # for the closing handshake


class ServerUnavailable(VivavoceError):
    """The server cannot be reached, or closed the connection during an utterance."""


class ServerConnection:
    """One socket and the number of ``utterances`` that the server has counted on it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.idle_since = time.monotonic()
        self.utterances = 0
        self._socket = socket

    @property
    def is_up(self) -> bool:
        return self._socket.close_code is None and self._socket.state.name == "OPEN"

    async def send(self, message: Mapping[str, Any]) -> None:
        try:
            await self._socket.send(json.dumps(message))
        except WebSocketException as error:
            raise ServerUnavailable(f"the server ended the connection: {error}") from error

    async def receive(self) -> bytes | dict[str, Any]:
        try:
            message = await self._socket.recv()
        except WebSocketException as error:
            raise ServerUnavailable(f"the server ended the connection: {error}") from error
        return message if isinstance(message, bytes) else json.loads(message)

    def abort_connection(self) -> None:
        """Close the TCP connection without the closing handshake."""
        self._socket.transport.abort()

    async def close(self) -> None:
        await self._socket.close()


async def open_connection(url: str, headers: Mapping[str, str], timeout_s: float) -> ServerConnection:
    """Connect to a URL of ``socket_url``; raises ServerUnavailable, or the error of the refused handshake."""
    try:
        async with asyncio.timeout(timeout_s):
            socket = await connect(
                url,
                additional_headers=headers,
                max_size=_MAX_MESSAGE_BYTES,
                compression=None,
                close_timeout=_CLOSE_TIMEOUT_S,
            )
    except InvalidStatus as rejection:
        raise _handshake_error(rejection) from None
    except (OSError, TimeoutError, WebSocketException) as error:
        raise ServerUnavailable(f"{url} cannot be reached: {error or type(error).__name__}") from error
    return ServerConnection(socket)


def socket_url(url: str) -> str:
    """Return the socket's URL for ws://host or http://host, with or without the path; raises BadRequest."""
    scheme, separator, rest = url.partition("://")
    schemes = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
    if not separator or scheme not in schemes:
        raise BadRequest(f"got the URL {url!r}; ws://, wss://, http:// or https:// is allowed")
    address = f"{schemes[scheme]}://{rest.rstrip('/').removesuffix(SPEECH_STREAM_PATH)}{SPEECH_STREAM_PATH}"
    try:
        parse_uri(address)
    except (InvalidURI, ValueError) as error:
        raise BadRequest(f"got the URL {url!r}: {error}") from None
    return address


def _handshake_error(rejection: InvalidStatus) -> VivavoceError:
    """Return the error of a rejected handshake."""
    answer = rejection.response
    try:
        fields = json.loads(answer.body or b"")["error"]
        description = fields["message"] if isinstance(fields, dict) else str(fields)
    except (ValueError, KeyError, TypeError):
        description = f"the server answered {answer.status_code}"
    if answer.status_code in (429, 503):
        wait_s = answer.headers.get("retry-after", "1")
        return Overloaded(
            description, reason="refused", retry_after_s=float(wait_s) if wait_s.isdigit() else 1.0
        )
    return BadRequest(description) if 400 <= answer.status_code < 500 else ServerUnavailable(description)
