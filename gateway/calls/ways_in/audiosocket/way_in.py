"""AudioSocket as a way in."""

import ipaddress

from .....adapters.audiosocket.wire import AudioSocketOpening
from ....configuration.settings import Settings
from ....listening_sockets import address_unavailable, bound_address
from ..way_in import CallHost, OpenWayIn, TcpListener, WayIn
from .call_server import AudioSocketCallServer, AudioSocketCallSettings
from .external_media import AudioSocketExternalMedia


def _listens(settings: Settings) -> TcpListener:
    table = settings.audiosocket
    return TcpListener("AudioSocket", table.host, table.port, "--audiosocket-port")


async def _open(host: CallHost) -> OpenWayIn:
    settings, sock = host.settings, host.sockets["audiosocket"]
    server = AudioSocketCallServer(
        media=host.media,
        services=host.services,
        agent=host.agents.phone,
        expected=host.expected,
        policy=_make_policy(host),
    )
    address, port = bound_address(sock)
    try:
        await server.listen(sock)
    except OSError as error:
        raise address_unavailable((address, port), error, flag=_listens(settings).flag) from None
    # Asterisk cannot connect to "every address".
    reachable = settings.rtp.host if ipaddress.ip_address(address).is_unspecified else address
    sample_rate = 16_000 if settings.ari.codec == "slin16" else 8_000
    return OpenWayIn(server, external_media=AudioSocketExternalMedia(server, (reachable, port), sample_rate))


def _make_policy(host: CallHost) -> AudioSocketCallSettings:
    rate = host.settings.audiosocket.rate
    return AudioSocketCallSettings(
        sample_rate=None if rate == "caller" else rate,
        lead_s=host.call_settings.lead_s,
        speech=host.call_settings.speech,
        caller_speech_action=host.call_settings.caller_speech_action,
    )


AUDIOSOCKET = WayIn("audiosocket", _open, listens=_listens, wire=AudioSocketOpening)
