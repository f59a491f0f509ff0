"""The media streams of carriers and of FreeSWITCH as a way in."""

from ....settings import Settings
from ....web.app import Mount
from ..way_in import CallHost, OpenWayIn, WayIn
from .carrier_access import CarrierAccess
from .routes import media_stream_routes
from .settings import CarrierSettings


async def _open(host: CallHost) -> OpenWayIn:
    access = CarrierAccess(_make_settings(host.settings), host.access)
    return OpenWayIn(mounts=(Mount(media_stream_routes(host.websockets, access), None),))


def _make_settings(settings: Settings) -> CarrierSettings:
    secrets = (settings.media_streams_token, settings.twilio_auth_token, settings.plivo_auth_token)
    values = ("" if secret is None else secret.get_secret_value() for secret in secrets)
    return CarrierSettings(settings.public_url or "", *values)


MEDIA_STREAMS = WayIn("media_streams", _open)
