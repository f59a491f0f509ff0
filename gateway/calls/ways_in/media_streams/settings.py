"""Settings of carriers' media streams."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CarrierSettings:
    """How carriers are authenticated; a text that is "" is not set."""

    public_url: str = ""  # of the server as carriers see it, without path; "": of each request
    token: str = ""  # in the URLs of carriers that do not sign
    twilio_auth_token: str = ""
    plivo_auth_token: str = ""
