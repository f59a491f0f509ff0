"""Validation of a browser's SDP offer and ICE candidates before aiortc applies them.

Pure functions over text; the negotiation is in ``peer``. Offers are untrusted: sizes are bounded, candidates
that cannot be used are removed, and an offer without an audio section that receives raises InvalidOffer. So
does an offer of which aiortc would apply a part before it fails: a connection in that state cannot be closed.

Source: RFC 8866 (SDP), RFC 8839 (ICE in SDP), RFC 8840 (trickle), RFC 8829 section 5.8, RFC 9143 (BUNDLE);
aiortc 1.16 (rtcpeerconnection.py, setRemoteDescription).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from itertools import pairwise
from typing import Final

from aiortc.exceptions import InternalError, InvalidAccessError, InvalidStateError, OperationError
from aiortc.sdp import SessionDescription

from ...tts_engine.errors import BadRequest
from ..udp_ports import MAX_PORT

MAX_OFFER_CHARACTERS: Final = 64 * 1024  # five times the longest offer of a browser, with screen and camera
MAX_MEDIA_SECTIONS: Final = 8
MAX_CANDIDATES: Final = 24  # the first of an offer are kept; browsers send the best first
MAX_CANDIDATE_CHARACTERS: Final = 512
_MAX_FAULT_CHARACTERS: Final = 200  # an error may quote the offer
# Exceptions that aiortc raises for SDP that it cannot parse or match.
_SDP_ERRORS: Final = (
    ValueError,
    AssertionError,
    LookupError,
    AttributeError,
    TypeError,
    StopIteration,
    InternalError,
    InvalidAccessError,
    InvalidStateError,
    OperationError,
)
_CANDIDATE: Final = "a=candidate:"
_NOT_RECEIVING: Final = ("a=sendonly", "a=inactive")


class InvalidOffer(BadRequest):
    """An offer or a candidate is invalid or cannot lead to a call."""


def sanitize_offer(sdp: str) -> str:
    """Return the offer without unusable candidates; raises InvalidOffer if it is not an offer of a call."""
    if len(sdp) > MAX_OFFER_CHARACTERS:
        raise InvalidOffer(f"got {len(sdp)} characters of SDP; at most {MAX_OFFER_CHARACTERS} are allowed")
    lines = sdp.splitlines()
    if not lines or not lines[0].startswith("v="):
        raise InvalidOffer('the offer is not SDP, which begins with "v=0"')
    media = list(_media_sections(lines))
    if len(media) > MAX_MEDIA_SECTIONS:
        raise InvalidOffer(f"got {len(media)} media sections; at most {MAX_MEDIA_SECTIONS} are allowed")
    audio = [section for section in media if section[0].startswith("m=audio ")]
    if not audio:
        raise InvalidOffer("the offer has no audio section; a call needs one that receives")
    if any(line in _NOT_RECEIVING for line in audio[0]):
        raise InvalidOffer("the offer's audio does not receive; it must be sendrecv or recvonly")
    sanitized = "\r\n".join(_without_unusable_candidates(lines)) + "\r\n"
    _check_transports(sanitized)
    return sanitized


@contextmanager
def refusing_sdp(fault: str) -> Iterator[None]:
    """Raise InvalidOffer, which begins with ``fault``, for what aiortc raises about SDP in the context."""
    try:
        yield
    except _SDP_ERRORS as error:
        reason = str(error)[:_MAX_FAULT_CHARACTERS] or type(error).__name__
        raise InvalidOffer(f"{fault}: {reason}") from None


def is_usable_candidate(candidate: str) -> bool:
    """Whether the fields of a candidate name UDP, an address instead of a host, and a port that exists.

    Browsers hide local addresses behind mDNS names. These need no look-up: the browser's connectivity checks
    reach us and reveal its address.
    """
    words = candidate.split()
    return len(words) >= 8 and words[2].lower() == "udp" and _is_address(words[4]) and _is_port(words[5])


def sanitize_candidate(candidate: str) -> str | None:
    """Return the fields of a trickled candidate, or None if unusable; raises InvalidOffer if too long."""
    if len(candidate) > MAX_CANDIDATE_CHARACTERS:
        raise InvalidOffer(
            f"got a candidate of {len(candidate)} characters; at most {MAX_CANDIDATE_CHARACTERS} are allowed"
        )
    candidate = candidate.removeprefix("a=").removeprefix("candidate:")
    return candidate if is_usable_candidate(candidate) else None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    """Whether a text is a port, or no number, which the parser refuses."""
    if not text.removeprefix("-").isdecimal():
        return True
    return len(text) <= len(str(MAX_PORT)) and 1 <= int(text) <= MAX_PORT


def _check_transports(sdp: str) -> None:
    with refusing_sdp("the offer cannot be parsed"):
        description = SessionDescription.parse(sdp)
    mids = [media.rtp.muxId for media in description.media]
    bundled = [mid for group in description.group if group.semantic == "BUNDLE" for mid in group.items]
    if len(set(mids)) < len(mids):
        raise InvalidOffer("two media sections have the same mid")
    if not set(map(str, bundled)) <= set(mids):
        raise InvalidOffer("the BUNDLE group names a mid that no media section has")
    if any(media.dtls is None for media in description.media):
        raise InvalidOffer("a media section has no DTLS role, a=setup")
    if bundled and bundled[0] not in _mids_with_transport(description):
        raise InvalidOffer("the BUNDLE group begins with a media section that has no transport")


def _mids_with_transport(description: SessionDescription) -> set[str]:
    """Of the sections for which aiortc makes a transport: audio, video, the first one of data."""
    kinds = [media.kind for media in description.media]
    data = kinds.index("application") if "application" in kinds else -1
    return {
        media.rtp.muxId
        for index, media in enumerate(description.media)
        if media.kind in ("audio", "video") or index == data
    }


def _media_sections(lines: list[str]) -> Iterator[list[str]]:
    starts = [index for index, line in enumerate(lines) if line.startswith("m=")]
    for start, stop in pairwise([*starts, len(lines)]):
        yield lines[start:stop]


def _without_unusable_candidates(lines: list[str]) -> Iterator[str]:
    kept = 0
    for line in lines:
        if line.startswith(_CANDIDATE):
            if kept >= MAX_CANDIDATES or not is_usable_candidate(line.removeprefix(_CANDIDATE)):
                continue
            kept += 1
        yield line
