"""The route that Asterisk's chan_websocket connects to.

WS    /v1/asterisk/media    subprotocol "media"
"""

from typing import Final

from fastapi import APIRouter, WebSocket

from .....adapters.media_streams.asterisk import SUBPROTOCOL, AsteriskStreamConnection
from ...caller import Caller
from ...legs.message_socket import accept_later, peer_of
from ...legs.websocket_calls import WebSocketCalls
from ...legs.websocket_leg import KnownCaller, WebSocketCallOptions
from ...transfers import DialPlanTransfers
from .sockets import ASTERISK, AwaitedSockets

ASTERISK_PATH: Final = "/v1/asterisk/media"


def asterisk_routes(calls: WebSocketCalls, awaited: AwaitedSockets) -> APIRouter:
    """Return the route, to be mounted behind access control.

    Parameters ``caller``, ``name`` and ``called`` of the URL describe the caller, ``call`` is the id of the
    call instead of the channel's connection id; all are variables.
    """
    router = APIRouter()

    @router.websocket(ASTERISK_PATH)
    async def media(socket: WebSocket) -> None:
        variables = dict(socket.query_params)
        call_id = variables.get("call", "")
        accept = accept_later(socket, [SUBPROTOCOL])
        if call_id in awaited:
            await awaited.deliver(call_id, await accept())
            return
        caller = Caller(
            number=variables.get("caller", ""),
            name=variables.get("name", ""),
            called=variables.get("called", ""),
            variables=variables,
        )
        options = WebSocketCallOptions(KnownCaller(caller=caller), DialPlanTransfers())
        connection = AsteriskStreamConnection(call_id)
        await calls.serve(ASTERISK, connection, accept, peer=peer_of(socket), options=options)

    return router
