"""The calls on WebSockets: served until they end, ended at shutdown. The start of a stream takes a place."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from ....adapters.media_streams.connection import MediaStreamConnection
from ..ways_in.way_in import CallHost
from .leg_call import LegGroup
from .message_socket import MessageSocket
from .websocket_leg import WebSocketCallOptions, WebSocketLeg, WebSocketLegServices, WebSocketTimeouts

_NO_OPTIONS: Final = WebSocketCallOptions()


class WebSocketCalls:
    """The calls on WebSockets of a way in."""

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
        options: WebSocketCallOptions = _NO_OPTIONS,
    ) -> None:
        """Serve a connection to its end; raises Overloaded before the socket is opened.

        Args:
            kind: of the call, such as "twilio".
            peer: network address of the other end.
        """
        self._services.calls.registry.require_place(peer=peer)
        leg = WebSocketLeg(kind, connection, peer, self._group, self._services, options)
        await leg.run(open_socket)

    async def aclose(self) -> None:
        """Admit no more calls, end every call, and wait until nothing is left of any."""
        self._services.calls.registry.refuse_calls()
        await self._group.aclose()


def open_websocket_calls(host: CallHost) -> WebSocketCalls:
    """Return the calls of one more way in, which share what the server has."""
    services = WebSocketLegServices(
        calls=host.services,
        clock=host.clock,
        agent=host.agents.phone,
        settings=replace(host.call_settings, linger_s=0.0),
        timeouts=WebSocketTimeouts(),
        make_speech_detector=host.make_speech_detector,
        unidentified=host.unidentified_websockets,
    )
    return WebSocketCalls(services)
