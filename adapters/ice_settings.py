"""Network settings of WebRTC connections: STUN and TURN servers, and the range of UDP ports.

Values only: ``webrtc.peer`` passes them to aiortc, the gateway passes the servers to browsers.

Source: W3C WebRTC 1.0 (RTCIceServer), RFC 7064 (stun: URLs), RFC 7065 (turn: URLs).
"""

import hmac
import random
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from ..tts_engine.errors import BadRequest

# Longer than a call: the server checks the time again whenever a relay is kept open.
_CREDENTIAL_LIFETIME_S: Final = 86_400
MIN_PORT: Final = 1024
MAX_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class IceServer:
    """One server under one or more URLs. ``repr`` does not show the credential."""

    urls: tuple[str, ...]
    username: str | None = None  # of TURN
    credential: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)  # shared with the TURN server, instead of both

    @property
    def turn_urls(self) -> tuple[str, ...]:
        """The URLs of TURN; the others are of STUN."""
        return tuple(url for url in self.urls if url.startswith("turn"))

    def dated(self, unix_s: float) -> "IceServer":
        """Return the server with a username and credential that it takes for a day from ``unix_s`` on.

        A server without a secret is returned as it is.

        Source: draft-uberti-behave-turn-rest-00, section 2.2; coturn's use-auth-secret.
        """
        if self.secret is None:
            return self
        username = f"{int(unix_s) + _CREDENTIAL_LIFETIME_S}:vivavoce"
        digest = hmac.digest(self.secret.encode(), username.encode(), "sha1")
        return IceServer(self.urls, username, b64encode(digest).decode("ascii"))

    def fields(self) -> dict[str, object]:
        """Return the RTCIceServer of a browser, credential included."""
        fields: dict[str, object] = {"urls": list(self.urls)}
        if self.username is not None and self.credential is not None:
            fields |= {"username": self.username, "credential": self.credential}
        return fields


@dataclass(frozen=True, slots=True)
class MediaPorts:
    """The UDP ports ``first`` to ``last``, both included. A call uses one port on each local address."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``"40000-40999"``. Raises BadRequest."""
        first, dash, last = text.partition("-")
        if not (dash and first.isdecimal() and last.isdecimal()):
            raise BadRequest(f"got {text!r}; a range of ports is FIRST-LAST")
        if not MIN_PORT <= int(first) <= int(last) <= MAX_PORT:
            raise BadRequest(f"got the ports {text}; allowed are {MIN_PORT} to {MAX_PORT}, the lower first")
        return cls(int(first), int(last))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def in_turn(self) -> Iterator[int]:
        """Yield every port once, from a random one on: a port just freed may still get packets."""
        count = self.last - self.first + 1
        start = random.randrange(count)
        return (self.first + (start + step) % count for step in range(count))
