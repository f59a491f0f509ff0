"""Settings of carriers' media streams; a part of ``gateway.settings.Settings``."""

from typing import Annotated, Final

from pydantic import BaseModel, Field, SecretStr

SECRET_SETTINGS: Final = ("media_streams_token", "twilio_auth_token", "plivo_auth_token")


class MediaStreamSettings(BaseModel):
    """The description of a field is what it allows, as an error message shows it."""

    # None: host and scheme of each request, which a proxy must pass on unchanged. Signatures cover them.
    public_url: Annotated[
        Annotated[str, Field(pattern=r"^https?://[^/\s?#]+$")] | None,
        Field(description='a URL without path, such as "https://voice.example.org"'),
    ] = None
    # A part of URLs, because most carriers send no headers of their own. Without it, they need an API key.
    media_streams_token: Annotated[
        Annotated[SecretStr, Field(min_length=16)] | None,
        Field(description="at least 16 letters, digits, - and _"),
    ] = None
    twilio_auth_token: Annotated[SecretStr | None, Field(description="the auth token of the account")] = None
    plivo_auth_token: Annotated[SecretStr | None, Field(description="the auth token of the account")] = None
