"""The ARI controller, by the server's settings."""

import ipaddress
from dataclasses import dataclass

from .....adapters.rtp.codec import CODECS
from .....tts_engine.errors import VivavoceError
from ....phone_system_settings import PhoneSystemSettings
from ...legs.websocket_calls import WebSocketCalls
from ...registry import CallRegistry
from ..audiosocket.call_server import AudioSocketCallServer
from ..rtp.call_server import RtpCallServer
from .client import AriAccess, AriClient
from .controller import AriController
from .external_media import (
    AudioSocketExternalMedia,
    ExternalMedia,
    RtpExternalMedia,
    WebSocketExternalMedia,
)


class AriPasswordUnreadable(VivavoceError):
    """The file of the password cannot be read; the message is a sentence for the operator."""


@dataclass(frozen=True, slots=True)
class ExternalMediaServers:
    """What serves the calls of the external media."""

    registry: CallRegistry
    rtp: RtpCallServer
    websockets: WebSocketCalls
    audiosocket: AudioSocketCallServer
    audiosocket_address: tuple[str, int]


def open_ari(settings: PhoneSystemSettings, servers: ExternalMediaServers) -> AriController | None:
    """Return a controller, which connects by itself; None without ``ari_url``.

    Raises AriPasswordUnreadable.
    """
    if settings.ari_url is None:
        return None
    access = AriAccess(settings.ari_url, settings.ari_user, settings.ari_app, _read_password(settings))
    client = AriClient(access)
    return AriController(client, _ways(settings, client, servers), servers.registry)


def _ways(
    settings: PhoneSystemSettings, client: AriClient, servers: ExternalMediaServers
) -> list[ExternalMedia]:
    codec = CODECS[settings.ari_codec]
    host, port = servers.audiosocket_address
    # Asterisk cannot connect to "every address".
    host = settings.rtp_host if ipaddress.ip_address(host).is_unspecified else host
    ways: dict[str, ExternalMedia] = {
        "websocket": WebSocketExternalMedia(
            client, servers.websockets, codec.name, settings.ari_websocket_client or ""
        ),
        "audiosocket": AudioSocketExternalMedia(servers.audiosocket, (host, port), codec),
        "rtp": RtpExternalMedia(servers.rtp, codec),
    }
    return list(ways.values()) if settings.ari_media == "auto" else [ways[settings.ari_media]]


def _read_password(settings: PhoneSystemSettings) -> str:
    if settings.ari_password is not None:
        return settings.ari_password.get_secret_value()
    if settings.ari_password_file is None:
        return ""
    try:
        return settings.ari_password_file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AriPasswordUnreadable(
            f"ari_password_file: cannot read {settings.ari_password_file}: {error}"
        ) from None
