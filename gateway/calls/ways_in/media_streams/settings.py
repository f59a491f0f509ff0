"""Settings of carriers' media streams."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from ....configuration.settings_table import JSON, SettingsTable


@dataclass(frozen=True, slots=True)
class CarrierSettings:
    """How carriers are authenticated; a text that is "" is not set."""

    public_url: str = ""  # of the server as carriers see it, without path; "": of each request
    token: str = ""  # in the URLs of carriers that do not sign
    twilio_auth_token: str = ""
    plivo_auth_token: str = ""


class MediaStreamsTable(SettingsTable):
    """Calls from carriers over WebSockets."""

    # A part of URLs, because most carriers send no headers of their own. Without it, they need an API key.
    token: Annotated[
        Annotated[SecretStr, Field(min_length=16)] | None,
        Field(title="a text of at least 16 characters"),
    ] = Field(
        default=None,
        description="token that carriers without signatures must have in their URLs, at least 16 letters, "
        "digits, - and _",
    )
    auth_tokens: Annotated[
        dict[Literal["twilio", "plivo"], SecretStr],
        JSON,
        Field(title="a table of the auth tokens of accounts, {twilio = ..., plivo = ...}"),
    ] = Field(
        default={},
        description="auth tokens of the accounts at `twilio` and `plivo`, whose requests must then be "
        "signed, for `http.public_url`",
    )
