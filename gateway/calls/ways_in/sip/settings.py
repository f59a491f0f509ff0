"""The table ``[sip]`` of the configuration, with those inside it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from ....configuration.settings_table import JSON, Host, Integer, Network, Port, SettingsTable

CodecName = Literal["ulaw", "alaw", "slin", "slin16", "g722", "opus"]
Codecs = Annotated[tuple[CodecName, ...], Field(min_length=1)]
Networks = Annotated[
    tuple[Network, ...], JSON, Field(title='a list of IP addresses and networks, such as ["10.0.0.0/24"]')
]
Encryption = Literal["off", "optional", "required"]
_TrunkName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
_Name = Annotated[str, Field(pattern=r"^[^\s<>\"@]{0,100}$")]


class SipMediaTable(SettingsTable):
    """Media of phones and telephone systems."""

    codecs: Codecs = ("g722", "ulaw", "alaw", "slin16", "slin", "opus")  # the best one first
    srtp: Encryption = "optional"  # taken where it is offered, and offered over TLS
    networks: tuple[Network, ...] = ()  # where media may go, beside the host that signals


class SipTlsTable(SettingsTable):
    """SIP over TLS."""

    port: Port = 5061
    certificate: Path  # PEM, with its chain
    key: Path | None = None  # PEM; None: in the same file


class SipOutgoingTable(SettingsTable):
    """Where calls and transfers may go, and what they may cost."""

    # Prefixes of numbers, "+4930", and patterns of addresses, "sip:*@pbx.example.com"; none: nowhere.
    destinations: tuple[Annotated[str, Field(pattern=r"^[^\s<>]{1,200}$")], ...] = ()
    max_calls: Annotated[Integer, Field(ge=0, le=10_000)] = 4  # at once
    # In 24 hours; then no call is made, and none is ended.
    minutes_per_day: Annotated[Integer, Field(ge=0, le=1_000_000)] = 120


class SipTrunkTable(SettingsTable):
    """A provider, or another telephone system, that takes our calls and gives us its own."""

    host: Annotated[str, Field(pattern=r"^([^\s@:/\[\]]{1,253}|[0-9A-Fa-f:]{2,45})$")]  # or its domain
    port: Annotated[Integer, Field(ge=1, le=65_535)] | None = None  # None: by SRV, else 5060, with TLS 5061
    transport: Literal["auto", "udp", "tcp", "tls"] = "auto"  # TLS if the domain has an SRV record for it
    user: _Name = ""  # of the account; "": the trunk knows the gateway by its address
    password: SecretStr | None = None
    login: _Name = ""  # user for authentication, if it is another one
    number: _Name = ""  # that our calls show; "": the user
    expires_s: Annotated[Integer, Field(ge=0, le=86_400)] = 300  # of a registration; 0: none
    outbound_proxy: Annotated[str, Field(pattern=r"^[^\s/<>]{1,300}$")] | None = None  # HOST or HOST:PORT
    networks: tuple[Network, ...] = ()  # its calls come from, beside the servers of ``host``
    media_networks: tuple[Network, ...] = ()  # of its media, beside the host that signals
    authorities: Path | None = None  # PEM, to check its certificate with; None: the system's
    srtp: Encryption = "optional"
    codecs: Codecs = ("alaw", "ulaw")
    agent: str = ""  # name in ``agents``; "": that of all calls


class SipTable(SettingsTable):
    """Calls over SIP, without a telephone system between."""

    # Loopback by default: a port that answers SIP is found by scanners within minutes.
    host: Host = Field(default="127.0.0.1", description="address of SIP and of its media")
    port: Port | None = Field(
        default=None,
        title="a port from 0 (any free one) to 65535",
        description="port of SIP over UDP and TCP, usually 5060, which is that of trunks alone; 0 chooses a "
        "free one; unset, and without a trunk: SIP is not answered",
    )
    tls: Annotated[SipTlsTable | None, JSON] = Field(
        default=None,
        title='a table, {certificate = "FILE", key = "FILE", port = 5061}',
        description="SIP over TLS: `certificate`, `key` and `port`, 5061 if unset",
    )
    public_host: str | None = Field(
        default=None,
        title="an IP address",
        description="address that peers are told, if a router translates that of the machine",
    )
    peers: Networks = Field(
        default=("127.0.0.0/8", "::1"),
        description="addresses and networks of phones and telephone systems that call without a password",
    )
    users: Annotated[dict[Annotated[str, Field(pattern=r"^[^\s<>\"@:;]{1,64}$")], SecretStr], JSON] = Field(
        default={},
        title="passwords by user",
        description='passwords of phones elsewhere, by user, `{anna = "..."}`; they may register, to be '
        "called",
    )
    media: Annotated[SipMediaTable | None, JSON] = Field(
        default=None,
        title='a table, {codecs = ["ulaw"], srtp = "off", networks = []}',
        description="`codecs`, `srtp` and `networks` of media of all but trunks: see [SIP](#sip)",
    )
    outgoing: Annotated[SipOutgoingTable | None, JSON] = Field(
        default=None,
        title='a table, {destinations = ["+49"], max_calls = 4}',
        description="where calls and transfers may go: `destinations`, `max_calls` and `minutes_per_day`",
    )
    trunks: Annotated[dict[_TrunkName, SipTrunkTable], JSON] = Field(
        default={},
        title="tables [sip.trunks.NAME] with host = ...",
        description="providers, by name: `host`, `user`, `password` and [others](#trunks); set the password "
        "in the environment, `VIVAVOCE_SIP_TRUNKS_NAME_PASSWORD`",
    )

    @property
    def is_on(self) -> bool:
        """Whether SIP is answered."""
        return self.port is not None or bool(self.trunks)
