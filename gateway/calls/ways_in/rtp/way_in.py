"""RTP as a way in."""

from functools import partial
from typing import Final

from .....adapters.rtp.codec import CODECS
from .....adapters.rtp.wire import RtpOpening
from ....web.openapi.operations import json_response
from ...api.placed_calls import PlacedCalls
from ...kits.rtp_calls import RtpCallServer, RtpCallSettings
from ..way_in import CallHost, OpenWayIn, WayIn
from .external_media import RtpExternalMedia
from .placed_calls import RtpCallPlace, RtpCallRequest, place_call

_FIRST_PACKET_S: Final = 30.0  # a program asks for the call before it tells the peer
_SILENT_S: Final = 120.0  # a peer that is gone does not say so


async def _open(host: CallHost) -> OpenWayIn:
    settings = host.settings
    policy = RtpCallSettings(
        kind="rtp",
        host=settings.rtp.host,
        ports=settings.rtp.ports,
        first_packet_s=_FIRST_PACKET_S,
        silent_s=_SILENT_S,
        call=host.call_settings,
    )
    server = RtpCallServer(media=host.media, services=host.services, agent=host.agents.phone, policy=policy)
    return OpenWayIn(
        server,
        place_call=partial(place_call, server),
        external_media=RtpExternalMedia(server, CODECS[settings.ari.codec]),
    )


RTP = WayIn(
    "rtp",
    _open,
    wire=RtpOpening,
    placed_calls=PlacedCalls(RtpCallRequest, json_response(RtpCallPlace, 201, "The call over RTP is up.")),
)
