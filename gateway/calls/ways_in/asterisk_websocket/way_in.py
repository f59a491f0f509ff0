"""Asterisk's chan_websocket as a way in, and the route that it connects to.

WS    /v1/asterisk/media    subprotocol "media"
"""

from typing import Final

from fastapi import APIRouter, WebSocket

from .....adapters.media_streams.asterisk import SUBPROTOCOL, AsteriskStreamConnection
from ....access.keys import Scope
from ....web.app import Mount
from ...call_options import Caller
from ...kits.message_socket import accept_later, peer_of
from ...kits.transfers import DialPlanTransfers
from ...kits.websocket_calls import WebSocketCalls, open_websocket_calls
from ...kits.websocket_leg import KnownCaller, WebSocketCallOptions
from ..way_in import CallHost, OpenWayIn, WayIn
from .external_media import WebSocketExternalMedia
from .sockets import ASTERISK, AwaitedSockets

ASTERISK_PATH: Final = "/v1/asterisk/media"
_MAX_RECENT_IDS: Final = 10_000


class RecentIds:
    """The last 10,000 ids."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}  # oldest first

    def add(self, id_: str) -> bool:
        """Add an id; return whether it is new."""
        is_new = id_ not in self._ids
        self._ids[id_] = None
        if len(self._ids) > _MAX_RECENT_IDS:
            del self._ids[next(iter(self._ids))]
        return is_new


def asterisk_routes(calls: WebSocketCalls, awaited: AwaitedSockets) -> APIRouter:
    """Return the route, to be mounted behind access control.

    Parameters ``caller``, ``name`` and ``called`` of the URL describe the caller, ``call`` is the id of the
    call instead of the channel's id; all are variables. Asterisk sends those of an earlier call again if a
    call has none (``res_websocket_client.c`` keeps them): they are ignored without a ``call``, or with one
    that was used.
    Variables of the channel (``VIVAVOCE_CALL``) come before all of them.
    """
    router, used_ids = APIRouter(), RecentIds()

    @router.websocket(ASTERISK_PATH)
    async def media(socket: WebSocket) -> None:
        variables = dict(socket.query_params)
        call_id = variables.get("call", "")
        accept = accept_later(socket, [SUBPROTOCOL])
        if call_id in awaited:
            await awaited.deliver(call_id, await accept())
            return
        if not (call_id and used_ids.add(call_id)):
            call_id, variables = "", {}
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


async def _open(host: CallHost) -> OpenWayIn:
    ari, awaited, calls = host.settings.ari, AwaitedSockets(), open_websocket_calls(host)
    return OpenWayIn(
        calls,
        mounts=(Mount(asterisk_routes(calls, awaited), Scope.CALLS_ALL),),
        external_media=WebSocketExternalMedia(calls, awaited, ari.codec, ari.connection),
    )


ASTERISK_WEBSOCKET = WayIn("asterisk_websocket", _open)
