"""Keys of RTP calls and of Asterisk's REST interface, a part of ``gateway.settings.Settings``."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from ..adapters.ice_settings import MAX_PORT, MIN_PORT, MediaPorts
from ..tts_engine.errors import BadRequest

SECRET_PHONE_SYSTEM_SETTINGS = frozenset({"ari_password"})


def parse_ports(value: object) -> object:
    """Return the ports of a range as text; other values are left to pydantic."""
    if value is None or isinstance(value, MediaPorts):
        return value
    try:
        return MediaPorts.parse(str(value))
    except BadRequest as error:
        raise ValueError(str(error)) from None


class PhoneSystemSettings(BaseModel):
    """Where RTP comes in, and where Asterisk's REST interface is."""

    # Loopback by default, because RTP has no authentication.
    rtp_host: Annotated[
        str, Field(min_length=1, max_length=253, description="a host name or an IP address of this machine")
    ] = "127.0.0.1"
    rtp_ports: Annotated[
        MediaPorts | None,
        NoDecode,  # not JSON in the environment
        BeforeValidator(parse_ports),
        Field(description=f'a range of UDP ports within {MIN_PORT}-{MAX_PORT}, such as "16384-16999"'),
    ] = None  # any free port, which needs no firewall rule on one machine

    ari_url: Annotated[
        Annotated[str, Field(pattern=r"^https?://\S+$")] | None,
        Field(description="the URL of Asterisk's REST interface, http://127.0.0.1:8088/ari"),
    ] = None  # without one, Asterisk hands over no calls in this way
    ari_user: Annotated[str, Field(min_length=1, description="a user of ari.conf")] = "vivavoce"
    ari_password: Annotated[SecretStr | None, Field(description="the password of that user")] = None
    ari_password_file: Annotated[
        Path | None, Field(description="a file whose first line is the password")
    ] = None
    ari_app: Annotated[
        str, Field(pattern=r"^[\w.-]{1,80}$", description="the name of a Stasis application")
    ] = "vivavoce"
    ari_codec: Annotated[
        Literal["ulaw", "alaw", "slin", "slin16"], Field(description="ulaw, alaw, slin or slin16")
    ] = "ulaw"  # as most phones speak it
    ari_media: Annotated[
        Literal["auto", "websocket", "audiosocket", "rtp"],
        Field(description="auto, websocket, audiosocket or rtp"),
    ] = "auto"  # the first that Asterisk has
    ari_websocket_client: Annotated[
        Annotated[str, Field(pattern=r"^[\w.-]{1,80}$")] | None,
        Field(description="the name of a connection in websocket_client.conf"),
    ] = None  # without one, the gateway connects to Asterisk
