"""The setting ``browser.ice_servers``: STUN and TURN servers, as URLs or with their credentials."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from .....adapters.ice_server import IceServer

_HOST = r"[^?:/\s]+(:[0-9]{1,5})?"
_Url = Annotated[
    str,
    Field(
        pattern=rf"^(stuns?:{_HOST}|turn:{_HOST}(\?transport=(udp|tcp))?|turns:{_HOST}(\?transport=tcp)?)$"
    ),
]


class IceServerSetting(BaseModel):
    """One server: ``"stun:HOST:PORT"``, or a table, for TURN with username and credential, or secret.

    secret: coturn's static-auth-secret, of which each call's credentials are made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    urls: Annotated[tuple[_Url, ...], Field(min_length=1)]
    username: Annotated[str, Field(min_length=1)] | None = None
    credential: Annotated[SecretStr, Field(min_length=1)] | None = None
    secret: Annotated[SecretStr, Field(min_length=16)] | None = None

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
        server = self.server()
        has_credentials = bool(self.username and self.credential)
        if server.turn_urls and has_credentials == bool(server.secret):
            raise ValueError("TURN needs either username and credential, or secret")
        return self

    def server(self) -> IceServer:
        """Return the server with its secrets in the clear."""
        return IceServer(self.urls, self.username, _in_the_clear(self.credential), _in_the_clear(self.secret))


def _in_the_clear(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()
