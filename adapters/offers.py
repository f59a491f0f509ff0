"""What a browser may ask for: its SDP offer and its ICE candidates, bounded and looked through before use.

Pure text in, text out; the negotiation itself is ``webrtc``'s. Offers come from strangers: what is too long
is refused, candidates that lead nowhere are left out, and an offer with nobody to hear us gets a sentence.

Source: RFC 8866 (SDP), RFC 8839 (ICE in SDP), RFC 8840 (trickle), RFC 8829 section 5.8.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ..tts_engine.errors import BadRequest

MOST_OFFER_CHARACTERS: Final = 64 * 1024  # five times a browser's longest with screen and camera
MOST_MEDIA: Final = 8
MOST_CANDIDATES: Final = 24  # of one offer, the first ones: browsers write the best first
MOST_CANDIDATE_CHARACTERS: Final = 512
_CANDIDATE: Final = "a=candidate:"
_DEAF: Final = ("a=sendonly", "a=inactive")


class BadOffer(BadRequest):
    """The offer or a candidate cannot be used; the message says why."""


def readable_offer(sdp: str) -> str:
    """The offer without candidates that are of no use; raises BadOffer if no call can come of it."""
    if len(sdp) > MOST_OFFER_CHARACTERS:
        raise BadOffer(f"an offer of {len(sdp)} characters; at most {MOST_OFFER_CHARACTERS} are read")
    lines = sdp.splitlines()
    if not lines or not lines[0].startswith("v="):
        raise BadOffer('the offer is no SDP: it begins with "v=0"')
    media = list(_media(lines))
    if len(media) > MOST_MEDIA:
        raise BadOffer(f"an offer of {len(media)} media; at most {MOST_MEDIA} are read")
    audio = [section for section in media if section[0].startswith("m=audio ")]
    if not audio:
        raise BadOffer("the offer has no audio; a call needs an audio line that receives")
    if any(line in _DEAF for line in audio[0]):
        raise BadOffer("the offer's audio does not receive; it must be sendrecv or recvonly")
    return "\r\n".join(_without_useless_candidates(lines)) + "\r\n"


def is_useful(candidate: str) -> bool:
    """Whether a candidate ("candidate:..." and so on) is UDP at an address that needs no look-up.

    A browser that hides its address behind an mDNS name needs no look-up either: it calls us, and its checks
    tell us where it is.
    """
    words = candidate.split()
    return len(words) >= 8 and words[2].lower() == "udp" and not words[4].lower().endswith(".local")


def readable_candidate(candidate: str) -> str | None:
    """A trickled candidate as SDP has it, without its name; None for one of no use. Raises BadOffer."""
    if len(candidate) > MOST_CANDIDATE_CHARACTERS:
        raise BadOffer(
            f"a candidate of {len(candidate)} characters; at most {MOST_CANDIDATE_CHARACTERS} are read"
        )
    candidate = candidate.removeprefix("a=").removeprefix("candidate:")
    return candidate if is_useful(candidate) else None


def _media(lines: list[str]) -> Iterator[list[str]]:
    starts = [index for index, line in enumerate(lines) if line.startswith("m=")]
    for start, stop in pairwise([*starts, len(lines)]):
        yield lines[start:stop]


def _without_useless_candidates(lines: list[str]) -> Iterator[str]:
    kept = 0
    for line in lines:
        if line.startswith(_CANDIDATE):
            if kept >= MOST_CANDIDATES or not is_useful(line.removeprefix(_CANDIDATE)):
                continue
            kept += 1
        yield line
