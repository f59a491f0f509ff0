"""Asterisk's chan_websocket as a way in."""

from ....access.keys import Scope
from ....web.app import Mount
from ..way_in import CallHost, OpenWayIn, WayIn
from .external_media import WebSocketExternalMedia
from .routes import asterisk_routes
from .sockets import AwaitedSockets


async def _open(host: CallHost) -> OpenWayIn:
    ari, awaited = host.settings.ari, AwaitedSockets()
    return OpenWayIn(
        mounts=(Mount(asterisk_routes(host.websockets, awaited), Scope.CALLS_ALL),),
        external_media=WebSocketExternalMedia(host.websockets, awaited, ari.codec, ari.connection),
    )


ASTERISK_WEBSOCKET = WayIn("asterisk_websocket", _open)
