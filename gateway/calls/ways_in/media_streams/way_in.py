"""The media streams of carriers and of FreeSWITCH as a way in."""

from ....web.app import Mount
from ..way_in import CallHost, OpenWayIn, WayIn
from .carrier_access import CarrierAccess
from .routes import media_stream_routes


async def _open(host: CallHost) -> OpenWayIn:
    settings = host.settings
    tokens: dict[str, str] = {
        name: token.get_secret_value() for name, token in settings.media_streams.tokens.items()
    }
    access = CarrierAccess(tokens, settings.http.public_url or "", host.access)
    return OpenWayIn(mounts=(Mount(media_stream_routes(host.websockets, access), None, tag="Carriers"),))


MEDIA_STREAMS = WayIn("media_streams", _open)
