"""Errors of access control. Each API answers them in its own format.

BadRequest
├── KeyRefused       no key, an unknown or a revoked one
│   └── GrantEnded   the key of something that is open is not valid any more
├── ScopeMissing     a valid key without the required scope
├── DestinationRefused  a valid key that may not call there
├── RateLimited      a limit of the key is reached
├── RequestTooLarge  more in one request than a limit of the key allows in a minute
├── OriginRefused    a web page of an origin that is not allowed
├── SignatureRefused a request of a carrier without a valid signature or token
└── UrlRefused       a URL that the server does not fetch
"""

from ...tts_engine.errors import BadRequest


class KeyRefused(BadRequest):
    """There is no key, or it is unknown or revoked; the message does not say which."""

    def __init__(
        self, message: str = "no valid API key; send one as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
    ) -> None:
        super().__init__(message)


class GrantEnded(KeyRefused):
    """The key was valid when it opened this."""

    def __init__(self) -> None:
        super().__init__("this API key was revoked, has expired or was changed")


class ScopeMissing(BadRequest):
    """The key is valid but lacks a scope."""


class DestinationRefused(BadRequest):
    """The key is valid but may not call or transfer there."""


class RateLimited(BadRequest):
    """A limit of the key is reached; the same request may be accepted after ``retry_after_s`` seconds."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestTooLarge(BadRequest):
    """One request needs more than the key is allowed in a minute, so no later attempt can succeed."""


class OriginRefused(BadRequest):
    """The request comes from a web page of an origin that is not allowed."""


class SignatureRefused(BadRequest):
    """A request claims to come from a carrier, and its signature or token is missing or wrong."""


class UrlRefused(BadRequest):
    """A URL of a client is not fetched or its fetch failed; the message says why."""
