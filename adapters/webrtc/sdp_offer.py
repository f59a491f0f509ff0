"""What a browser may ask for: its SDP offer and its ICE candidates, bounded and looked through before use.

Pure text in, text out; the negotiation itself is ``webrtc``'s. Offers come from strangers: what is too long
is refused, candidates that lead nowhere are left out, and an offer with nobody to hear us gets a sentence.

Source: RFC 8866 (SDP), RFC 8839 (ICE in SDP), RFC 8840 (trickle), RFC 8829 section 5.8.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ...tts_engine.errors import BadRequest

MAX_OFFER_CHARACTERS: Final = 64 * 1024  # five times a browser's longest with screen and camera
MAX_MEDIA_SECTIONS: Final = 8
MAX_CANDIDATES: Final = 24  # of one offer, the first ones: browsers write the best first
MAX_CANDIDATE_CHARACTERS: Final = 512
_CANDIDATE: Final = "a=candidate:"
_NOT_RECEIVING: Final = ("a=sendonly", "a=inactive")


class InvalidOffer(BadRequest):
    """The offer or a candidate cannot be used; the message says why."""


def sanitize_offer(sdp: str) -> str:
    """The offer without candidates that are of no use; raises InvalidOffer if no call can come of it."""
    if len(sdp) > MAX_OFFER_CHARACTERS:
        raise InvalidOffer(f"an offer of {len(sdp)} characters; at most {MAX_OFFER_CHARACTERS} are read")
    lines = sdp.splitlines()
    if not lines or not lines[0].startswith("v="):
        raise InvalidOffer('the offer is no SDP: it begins with "v=0"')
    media = list(_media_sections(lines))
    if len(media) > MAX_MEDIA_SECTIONS:
        raise InvalidOffer(f"an offer of {len(media)} media; at most {MAX_MEDIA_SECTIONS} are read")
    audio = [section for section in media if section[0].startswith("m=audio ")]
    if not audio:
        raise InvalidOffer("the offer has no audio; a call needs an audio line that receives")
    if any(line in _NOT_RECEIVING for line in audio[0]):
        raise InvalidOffer("the offer's audio does not receive; it must be sendrecv or recvonly")
    return "\r\n".join(_without_unusable_candidates(lines)) + "\r\n"


def is_usable_candidate(candidate: str) -> bool:
    """Whether a candidate ("candidate:..." and so on) is UDP at an address that needs no look-up.

    A browser that hides its address behind an mDNS name needs no look-up either: it calls us, and its checks
    tell us where it is.
    """
    words = candidate.split()
    return len(words) >= 8 and words[2].lower() == "udp" and not words[4].lower().endswith(".local")


def sanitize_candidate(candidate: str) -> str | None:
    """A trickled candidate as SDP has it, without its name; None for one of no use. Raises InvalidOffer."""
    if len(candidate) > MAX_CANDIDATE_CHARACTERS:
        raise InvalidOffer(
            f"a candidate of {len(candidate)} characters; at most {MAX_CANDIDATE_CHARACTERS} are read"
        )
    candidate = candidate.removeprefix("a=").removeprefix("candidate:")
    return candidate if is_usable_candidate(candidate) else None


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
