"""The table ``[ari]`` of the configuration."""

import re
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr

from ....configuration.settings_table import SettingsTable


class AriTable(SettingsTable):
    """Asterisk's REST interface, through which it hands over calls."""

    url: Annotated[str, Field(pattern=r"^https?://([^\s@/:]+@)?[^\s@]+$")] | None = Field(
        default=None,  # Asterisk hands over no calls in this way
        title="the URL of Asterisk's REST interface, http://127.0.0.1:8088/ari",
        description='Asterisk\'s REST interface, `"http://127.0.0.1:8088/ari"`; a user of `ari.conf` other '
        'than `vivavoce` comes first, `"http://USER@127.0.0.1:8088/ari"`',
    )
    password: SecretStr | None = Field(
        default=None,
        title="the password of the user in ari.conf",
        description="the password of that user; set it in the environment",
    )
    app: str = Field(
        default="vivavoce",
        pattern=r"^[\w.-]{1,80}$",
        title="the name of a Stasis application",
        description="the name of the Stasis application",
    )
    codec: Literal["ulaw", "alaw", "slin", "slin16"] = Field(
        default="ulaw",  # as most phones speak it
        title="ulaw, alaw, slin or slin16",
        description="of the external media: `ulaw`, `alaw`, `slin` or `slin16`; AudioSocket carries linear "
        "audio of the same rate",
    )
    media: str = Field(
        default="auto",
        pattern=r"^(auto|websocket(:[\w.-]{1,80})?|audiosocket|rtp)$",
        title="auto, websocket, websocket:CONNECTION, audiosocket or rtp",
        description="external media over `websocket`, `audiosocket` or `rtp`; `auto`: the first of these "
        "whose module Asterisk runs; `websocket:CONNECTION`: Asterisk connects to the gateway with this "
        "connection of `websocket_client.conf`",
    )

    @property
    def user(self) -> str:
        """The user in ``ari.conf``."""
        return unquote(urlsplit(self.url or "").username or "vivavoce")

    @property
    def medium(self) -> str:
        """Of the external media, without the connection."""
        return self.media.partition(":")[0]

    @property
    def connection(self) -> str:
        """In ``websocket_client.conf``, with which Asterisk connects; "": the gateway does."""
        return self.media.partition(":")[2]

    @property
    def url_without_user(self) -> str:
        """The URL to connect to."""
        return re.sub(r"//[^@/]*@", "//", self.url or "")
