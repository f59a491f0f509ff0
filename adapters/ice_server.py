"""STUN and TURN servers of WebRTC connections.

Values only: ``webrtc.peer`` passes them to aiortc, the gateway passes them to browsers.

Source: W3C WebRTC 1.0 (RTCIceServer), RFC 7064 (stun: URLs), RFC 7065 (turn: URLs).
"""

import hmac
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final

# Longer than a call: the server checks the time again whenever a relay is kept open.
_CREDENTIAL_LIFETIME_S: Final = 86_400


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
