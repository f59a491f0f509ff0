"""What is answered to those who may not; each API says it in its own words.

BadRequest
├── KeyRefused       no key, a wrong one, or a revoked one: never says which
├── ScopeMissing     a good key that may not do this
├── RateLimited      a good key that asks for too much; says after how many seconds to try again
├── OriginRefused    a web page of another origin
└── UrlRefused       a URL that is not fetched for a client
"""

from ...tts_engine.errors import BadRequest


class KeyRefused(BadRequest):
    """No key, a wrong one, or a revoked one."""

    def __init__(self) -> None:
        super().__init__("no valid API key; send one as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")


class ScopeMissing(BadRequest):
    """The key may not do this."""


class RateLimited(BadRequest):
    """The key asks for too much. retry_after_s: when the same may be asked again."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OriginRefused(BadRequest):
    """A web page of another origin asks."""


class UrlRefused(BadRequest):
    """The URL is not fetched; the message says why."""
