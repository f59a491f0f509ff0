"""RTP calls, by the server's settings."""

from typing import Final

from ..adapters.media.media_servers import MediaServers
from .calls.agents import Agent
from .calls.leg import CallServices, CallSettings
from .calls.rtp import RtpCallServer, RtpCallSettings
from .settings import Settings

_FIRST_PACKET_S: Final = 30.0  # a program asks for the call before it tells the peer
_SILENT_S: Final = 120.0  # without the setting ``silent_s``; a peer that is gone does not say so


def make_rtp_server(
    settings: Settings, media: MediaServers, services: CallServices, agent: Agent, call: CallSettings
) -> RtpCallServer:
    """Return the server, without a call yet."""
    policy = RtpCallSettings(
        host=settings.rtp_host,
        ports=settings.rtp_ports,
        first_packet_s=_FIRST_PACKET_S,
        silent_s=settings.silent_s or _SILENT_S,
        stalled_s=settings.stalled_s,
        call=call,
    )
    return RtpCallServer(media=media, services=services, agent=agent, policy=policy)
