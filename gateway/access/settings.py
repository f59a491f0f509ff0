"""The tables ``[http]`` and ``[access]``: where the server answers, and who may reach it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ..configuration.settings_table import JSON, Host, Network, Port, SettingsTable

_Origin = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://(\*\.)?[^/\s*]+$")]


class HttpTable(SettingsTable):
    """Where the server answers HTTP, and how browsers, carriers and proxies reach it."""

    # Loopback by default: the page and the calls API give access to every call.
    host: Host = Field(default="127.0.0.1", description="address of HTTP")
    port: Port = Field(default=8080, description="port of HTTP; 0 chooses a free one")
    public_url: Annotated[str, Field(pattern=r"^https?://[^/\s?#]+$")] | None = Field(
        default=None,  # signatures of carriers cover it
        title='a URL without path, such as "https://voice.example.org"',
        description="the server's URL as carriers and browsers behind a proxy see it, "
        '`"https://voice.example.org"`; unset: host and scheme of each request',
    )
    allowed_origins: Annotated[tuple[_Origin, ...] | None, JSON] = Field(
        default=None,
        title='a list of origins, such as ["https://app.example.org", "https://*.example.org", '
        '"app://obsidian.md"], as browsers send them: no path, no slash at the end',
        description='origins of pages and apps that may use this server, `"https://app.example.org"`, '
        '`"app://obsidian.md"`, `"chrome-extension://ID"`, `"https://*.example.org"` for all hosts below a '
        "domain; its own page needs no entry",
    )
    trusted_proxies: Annotated[tuple[Network, ...], JSON] = Field(
        default=("127.0.0.1", "::1"),  # a proxy on this machine
        title='a list of IP addresses and networks, such as ["10.0.0.0/24"]',
        description="addresses and networks of reverse proxies, whose `X-Forwarded-For` and "
        "`X-Forwarded-Proto` are believed",
    )


class AccessTable(SettingsTable):
    """Who may reach the server, and with which key."""

    # A second, explicit switch, so that a mistyped host does not open the server to a network.
    listen_beyond_loopback: bool = Field(
        default=False,
        description="allow `http`, `audiosocket` and `rtp` to have hosts that other machines can reach",
    )
    # Without a file, no key is required, which is allowed on loopback only.
    keys_file: Path | None = Field(
        default=None,
        title="the file that 'vivavoce keys add' writes",
        description="require API keys, from this file",
    )
    # Open WebUI asks for the lists without its key.
    without_key: Literal["nothing", "lists", "everything"] = Field(
        default="nothing",
        title="nothing, lists or everything",
        description="what a client without a key may do: `lists`, read those of models and of the bundle's "
        "voices; `everything`, if there is no `keys_file`, also beyond loopback",
    )
