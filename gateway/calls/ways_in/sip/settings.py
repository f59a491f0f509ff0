"""The table ``[sip]`` of the configuration."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from ....configuration.settings_table import JSON, Host, Network, Port, SettingsTable

CodecName = Literal["ulaw", "alaw", "slin", "slin16", "g722", "opus"]
Codecs = Annotated[tuple[CodecName, ...], Field(min_length=1)]
Networks = Annotated[
    tuple[Network, ...], JSON, Field(title='a list of IP addresses and networks, such as ["10.0.0.0/24"]')
]
Encryption = Literal["off", "optional", "required"]


class SipMediaTable(SettingsTable):
    """Media of phones and telephone systems."""

    codecs: Codecs = ("g722", "ulaw", "alaw", "slin16", "slin", "opus")  # the best one first
    srtp: Encryption = "optional"  # taken where it is offered, and offered over TLS
    networks: tuple[Network, ...] = ()  # where media may go, beside the host that signals


class SipTable(SettingsTable):
    """Calls over SIP, without a telephone system between."""

    enabled: bool = Field(default=False, description="answer SIP")
    # Loopback by default: a port that answers SIP is found by scanners within minutes.
    host: Host = Field(default="127.0.0.1", description="address of SIP and of its media")
    port: Port = Field(default=5060, description="port of SIP over UDP and TCP; 0 chooses a free one")

    public_host: Annotated[str | None, Field(title="an IP address")] = Field(
        default=None, description="address that peers are told, if a router translates that of the machine"
    )
    peers: Networks = Field(
        default=("127.0.0.0/8", "::1"),
        description="addresses and networks of phones and telephone systems that call without a password",
    )
    users: Annotated[
        dict[Annotated[str, Field(pattern=r"^[^\s<>\"@:;]{1,64}$")], SecretStr],
        JSON,
        Field(title="passwords by user"),
    ] = Field(default={}, description='passwords of phones elsewhere, by user, `{anna = "..."}`')

    media: Annotated[
        SipMediaTable | None, JSON, Field(title='a table, {codecs = ["ulaw"], srtp = "off", networks = []}')
    ] = Field(
        default=None,
        description="`codecs`, `srtp` and `networks` of media: see [SIP](#sip)",
    )

    @property
    def is_on(self) -> bool:
        """Whether SIP is answered."""
        return self.enabled
