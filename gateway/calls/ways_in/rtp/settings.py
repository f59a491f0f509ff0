"""The table ``[rtp]`` of the configuration."""

from pydantic import Field

from ....configuration.settings_table import Host, SettingsTable, UdpPorts


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
