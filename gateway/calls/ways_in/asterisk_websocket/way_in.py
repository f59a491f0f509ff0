"""Asterisk's chan_websocket as a way in."""

from ....access.keys import Scope
from ....web.app import Mount
from ..way_in import CallHost, OpenWayIn, WayIn
from .external_media import WebSocketExternalMedia
from .routes import asterisk_routes
from .sockets import AwaitedSockets


async def _open(host: CallHost) -> OpenWayIn:
    settings, awaited = host.settings, AwaitedSockets()
    return OpenWayIn(
        mounts=(Mount(asterisk_routes(host.websockets, awaited), Scope.CALLS_ALL),),
        external_media=WebSocketExternalMedia(
            host.websockets, awaited, settings.ari_codec, settings.ari_websocket_client or ""
        ),
    )


ASTERISK_WEBSOCKET = WayIn("asterisk_websocket", _open)
