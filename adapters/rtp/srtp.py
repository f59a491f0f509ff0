"""SRTP of one call: packets and reports encrypted and authenticated with keys that signalling exchanged.

Each side names the key that it sends with, as in a description of the session (SDES). libsrtp does the rest.

Source: RFC 3711 (SRTP), RFC 4568, 6.2 (suites and keys of a description).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pylibsrtp import Error, Policy, Session

SrtpSuite = Literal["AES_CM_128_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32"]
SRTP_KEY_BYTES: Final = 30  # 16 of the master key, 14 of the salt
_PROFILES: Final[Mapping[SrtpSuite, int]] = {
    "AES_CM_128_HMAC_SHA1_80": Policy.SRTP_PROFILE_AES128_CM_SHA1_80,
    "AES_CM_128_HMAC_SHA1_32": Policy.SRTP_PROFILE_AES128_CM_SHA1_32,
}


@dataclass(frozen=True, slots=True)
class SrtpKeys:
    """The keys of both sides, key and salt each."""

    suite: SrtpSuite  # as RFC 4568 names it
    local: bytes = field(repr=False)  # of what we send
    remote: bytes = field(repr=False)


class SrtpSession:
    """Both directions of one call."""

    def __init__(self, keys: SrtpKeys) -> None:
        profile = _PROFILES[keys.suite]
        self._sending = Session(
            Policy(key=keys.local, ssrc_type=Policy.SSRC_ANY_OUTBOUND, srtp_profile=profile)
        )
        self._receiving = Session(
            Policy(key=keys.remote, ssrc_type=Policy.SSRC_ANY_INBOUND, srtp_profile=profile)
        )

    def protect(self, packet: bytes) -> bytes:
        """Return a packet as it is sent."""
        return self._sending.protect(packet)

    def protect_report(self, report: bytes) -> bytes:
        """Return a compound packet of RTCP as it is sent."""
        return self._sending.protect_rtcp(report)

    def unprotect(self, datagram: bytes) -> bytes | None:
        """Return the packet in a datagram; None if it is not the peer's, or was received before."""
        try:
            return self._receiving.unprotect(datagram)
        except Error:
            return None

    def unprotect_report(self, datagram: bytes) -> bytes | None:
        """Return the RTCP in a datagram; None as ``unprotect``."""
        try:
            return self._receiving.unprotect_rtcp(datagram)
        except Error:
            return None
