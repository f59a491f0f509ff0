"""The media streams of carriers and of FreeSWITCH as a way in."""

from ....web.app import Mount
from ..way_in import CallHost, OpenWayIn, WayIn
from .carrier_access import CarrierAccess
from .routes import media_stream_routes
from .settings import CarrierSettings, MediaStreamsTable


async def _open(host: CallHost) -> OpenWayIn:
    settings = host.settings
    carriers = _make_settings(settings.media_streams, settings.http.public_url)
    access = CarrierAccess(carriers, host.access)
    return OpenWayIn(mounts=(Mount(media_stream_routes(host.websockets, access), None, tag="Carriers"),))


def _make_settings(table: MediaStreamsTable, public_url: str | None) -> CarrierSettings:
    auth_tokens = {name: token.get_secret_value() for name, token in table.auth_tokens.items()}
    return CarrierSettings(
        public_url=public_url or "",
        token=table.token.get_secret_value() if table.token else "",
        twilio_auth_token=auth_tokens.get("twilio", ""),
        plivo_auth_token=auth_tokens.get("plivo", ""),
    )


MEDIA_STREAMS = WayIn("media_streams", _open)
