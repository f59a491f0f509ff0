"""The calls on WebSockets: admitted by the registry, served until they end, ended at shutdown."""

from collections.abc import Awaitable, Callable
from typing import Final

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from ....adapters.media_streams.asterisk import SUBPROTOCOL, AsteriskStreamConnection
from ....adapters.media_streams.connection import MAX_MESSAGE_BYTES, MediaStreamConnection
from ....tts_engine.errors import VivavoceError
from ..leg import LegGroup
from .leg import KnownCaller, WebSocketLeg, WebSocketLegServices
from .message_socket import ClientMessageSocket, MessageSocket

ASTERISK: Final = "asterisk"  # kind of the calls of chan_websocket
_UNKNOWN_CALLER = KnownCaller()
_CONNECT_TIMEOUT_S: Final = 5.0


class AsteriskUnreachable(VivavoceError):
    """Asterisk did not accept the WebSocket."""


class WebSocketCalls:
    """All calls on WebSockets, of every wire."""

    def __init__(self, services: WebSocketLegServices) -> None:
        self._services = services
        self._group: LegGroup[WebSocketLeg] = LegGroup()

    async def serve(
        self,
        kind: str,
        connection: MediaStreamConnection,
        open_socket: Callable[[], Awaitable[MessageSocket]],
        *,
        peer: str,
        known_caller: KnownCaller = _UNKNOWN_CALLER,
        is_continued: bool = False,
    ) -> None:
        """Serve a connection to its end; raises Overloaded before the socket is opened.

        Args:
            kind: of the call, such as "twilio".
            peer: network address of the other end.
            is_continued: whether the caller's dial plan goes on after the call, and can transfer it.
        """
        leg = WebSocketLeg(
            kind, connection, peer, self._group, self._services, known_caller, is_continued=is_continued
        )
        self._services.calls.registry.admit(leg, peer=peer)
        await leg.run(open_socket)

    async def connect_to_asterisk(self, url: str, *, known_caller: KnownCaller = _UNKNOWN_CALLER) -> None:
        """Connect to a channel that waits for us (``Dial(WebSocket/INCOMING)``), and serve it to its end.

        Args:
            url: ``ws://host:8088/media/ID``, with the channel's variable ``MEDIA_WEBSOCKET_CONNECTION_ID``.

        Raises AsteriskUnreachable, and Overloaded before anything is sent.
        """

        async def open_socket() -> MessageSocket:
            try:
                socket = await connect(
                    url,
                    subprotocols=[Subprotocol(SUBPROTOCOL)],
                    max_size=MAX_MESSAGE_BYTES,
                    compression=None,
                    proxy=None,
                    open_timeout=_CONNECT_TIMEOUT_S,
                )
            except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
                raise AsteriskUnreachable(f"cannot connect to {url}: {error}") from None
            return ClientMessageSocket(socket)

        connection = AsteriskStreamConnection()
        await self.serve(ASTERISK, connection, open_socket, peer=url, known_caller=known_caller)

    async def aclose(self) -> None:
        """Admit no more calls, end every call, and wait until nothing is left of any."""
        self._services.calls.registry.refuse_calls()
        await self._group.aclose()
