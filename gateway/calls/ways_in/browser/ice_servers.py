"""The setting ``browser.ice_servers``: STUN and TURN servers, as a URL or with user and credential."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from .....adapters.ice_settings import IceServer

_HOST = r"[^?:/\s]+(:[0-9]{1,5})?"
_Url = Annotated[
    str,
    Field(
        pattern=rf"^(stuns?:{_HOST}|turn:{_HOST}(\?transport=(udp|tcp))?|turns:{_HOST}(\?transport=tcp)?)$"
    ),
]


class IceServerSetting(BaseModel):
    """One server: ``"stun:HOST:PORT"``, or a table with urls, and for TURN with username and credential."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    urls: Annotated[tuple[_Url, ...], Field(min_length=1)]
    username: Annotated[str, Field(min_length=1)] | None = None
    credential: Annotated[SecretStr, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand_url(cls, value: object) -> object:
        if isinstance(value, str):
            return {"urls": [value]}
        if isinstance(value, dict) and isinstance(value.get("urls"), str):
            return {**value, "urls": [value["urls"]]}
        return value

    @model_validator(mode="after")
    def _require_credential(self) -> Self:
        if self.server().turn_urls and not (self.username and self.credential):
            raise ValueError("TURN needs username and credential")
        return self

    def server(self) -> IceServer:
        """Return the server with its credential in the clear."""
        secret = None if self.credential is None else self.credential.get_secret_value()
        return IceServer(self.urls, self.username, secret)
