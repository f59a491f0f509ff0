"""The table ``[rtp]`` of the configuration."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from .....adapters.udp_ports import MAX_PORT, MIN_PORT, MediaPorts
from .....tts_engine.errors import BadRequest
from ....configuration.settings_table import Host, SettingsTable


def _parse_ports(value: object) -> object:
    if value is None or isinstance(value, MediaPorts):
        return value
    try:
        return MediaPorts.parse(str(value))
    except BadRequest as error:
        raise ValueError(str(error)) from None


UdpPorts = Annotated[
    MediaPorts | None,
    BeforeValidator(_parse_ports),
    Field(title=f'a range of UDP ports within {MIN_PORT}-{MAX_PORT}, such as "40000-40999"'),
]


class RtpTable(SettingsTable):
    """Calls over RTP."""

    # Loopback by default, because RTP has no authentication.
    host: Host = Field(
        default="127.0.0.1", description="address of RTP calls: one of this machine, which the peers are told"
    )
    ports: UdpPorts = Field(
        default=None,  # needs no firewall rule on one machine
        description='range of the UDP ports of RTP, SIP and browser calls, `"16384-16999"`, two for each '
        "call; unset: any free port",
    )
