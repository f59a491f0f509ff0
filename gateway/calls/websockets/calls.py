"""The calls on WebSockets: admitted by the registry, served until they end, ended at shutdown."""

from collections.abc import Awaitable, Callable

from ....adapters.media_streams.connection import MediaStreamConnection
from ..leg import LegGroup
from .leg import KnownCaller, WebSocketLeg, WebSocketLegServices
from .message_socket import MessageSocket

_UNKNOWN_CALLER = KnownCaller()


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
    ) -> None:
        """Serve a connection to its end; raises Overloaded before the socket is opened.

        Args:
            kind: of the call, such as "twilio".
            peer: network address of the other end.
        """
        leg = WebSocketLeg(kind, connection, peer, self._group, self._services, known_caller)
        self._services.calls.registry.admit(leg, peer=peer)
        await leg.run(open_socket)

    async def aclose(self) -> None:
        """Admit no more calls, end every call, and wait until nothing is left of any."""
        self._services.calls.registry.refuse_calls()
        await self._group.aclose()
