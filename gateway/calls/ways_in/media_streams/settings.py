"""Settings of carriers' media streams."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, SecretStr

from ....configuration.settings_table import JSON, SettingsTable

CarrierName = Literal[
    "twilio", "telnyx", "plivo", "vonage", "exotel", "jambonz", "mod_audio_fork", "mod_audio_stream"
]

_SIGNING: Final = ("twilio", "plivo")
_MIN_TOKEN_CHARACTERS: Final = 16  # of one that a URL carries


def _check_tokens(tokens: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for carrier, token in tokens.items():
        if carrier not in _SIGNING and len(token.get_secret_value()) < _MIN_TOKEN_CHARACTERS:
            raise ValueError(f"the token of {carrier} is too short")
    return tokens


class MediaStreamsTable(SettingsTable):
    """Calls from carriers over WebSockets."""

    # In URLs of those that do not sign, because most of them send no headers of their own.
    tokens: Annotated[
        dict[CarrierName, Annotated[SecretStr, Field(min_length=1)]], JSON, AfterValidator(_check_tokens)
    ] = Field(
        default={},
        title="a table of tokens by carrier, {twilio = ..., telnyx = ...}; of carriers that do not sign, "
        f"of at least {_MIN_TOKEN_CHARACTERS} characters",
        description="tokens by carrier: of `twilio` and `plivo` the auth token of the account, with which "
        "requests must then be signed, for `http.public_url`; of others a token of at least 16 letters, "
        "digits, - and _ that must be in their URLs",
    )

    @property
    def signing(self) -> tuple[str, ...]:
        """The carriers that must sign."""
        return tuple(carrier for carrier in self.tokens if carrier in _SIGNING)
