"""Validation of SDP offers and ICE candidates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.webrtc.sdp_offer import (
    MAX_CANDIDATES,
    MAX_MEDIA_SECTIONS,
    MAX_OFFER_CHARACTERS,
    InvalidOffer,
    sanitize_candidate,
    sanitize_offer,
)

HEAD = ["v=0", "o=- 1 2 IN IP4 127.0.0.1", "s=-", "t=0 0"]
AUDIO = [
    "m=audio 9 UDP/TLS/RTP/SAVPF 111",
    "c=IN IP4 0.0.0.0",
    "a=rtpmap:111 opus/48000/2",
    "a=setup:actpass",
]
VIDEO = ["m=video 9 UDP/TLS/RTP/SAVPF 96", "a=rtpmap:96 VP8/90000", "a=mid:1", "a=setup:actpass"]
DATA = ["m=application 9 UDP/DTLS/SCTP webrtc-datachannel", "a=mid:1", "a=sctp-port:5000"]
SECOND_DATA = [DATA[0], "a=mid:2", "a=sctp-port:5000", "a=setup:actpass"]
SETUP = "a=setup:actpass"
TEXT = ["m=text 9 UDP/TLS/RTP/SAVPF 96", "a=mid:t", "a=setup:actpass"]


def offer(*lines: str) -> str:
    return "\r\n".join([*HEAD, *lines]) + "\r\n"


def host(number: int, address: str = "192.0.2.1", protocol: str = "udp") -> str:
    return f"a=candidate:{number} 1 {protocol} 2122260223 {address} {50_000 + number} typ host"


def test_a_valid_offer_is_returned_unchanged() -> None:
    sdp = offer(*AUDIO, host(1), "a=sendrecv", *VIDEO)
    assert sanitize_offer(sdp) == sdp


@pytest.mark.parametrize(
    ("sdp", "reason"),
    [
        ("", "not SDP"),
        ("hello", "not SDP"),
        (offer(), "no audio"),
        (offer(*VIDEO), "no audio"),
        (offer("m=application 9 UDP/DTLS/SCTP webrtc-datachannel"), "no audio"),
        (offer(*AUDIO, "a=sendonly"), "does not receive"),
        (offer(*AUDIO, "a=inactive"), "does not receive"),
        (offer(*AUDIO, *DATA), "no DTLS role"),
        (offer(*AUDIO, *VIDEO, "a=mid:"), "same mid"),
        (offer("a=group:BUNDLE 7 1", *AUDIO, *VIDEO), "BUNDLE group"),
        (
            offer("a=group:BUNDLE t 1", *AUDIO, *VIDEO, *TEXT),
            "begins with a media section that has no transport",
        ),
        (offer("a=group:BUNDLE 2 1", *AUDIO, *DATA, SETUP, *SECOND_DATA), "that has no transport"),
        (offer(*AUDIO, "a=fmtp:96 apt=97"), "cannot be parsed: StopIteration"),
        (offer(*AUDIO, "a=fingerprint:sha-256"), "cannot be parsed"),
        (offer(*AUDIO * (MAX_MEDIA_SECTIONS + 1)), f"at most {MAX_MEDIA_SECTIONS}"),
        (offer(*AUDIO, "a=x:" + "y" * 1_000_000), f"at most {MAX_OFFER_CHARACTERS}"),
    ],
)
def test_an_unusable_offer_is_refused_with_the_reason(sdp: str, reason: str) -> None:
    with pytest.raises(InvalidOffer, match=reason):
        sanitize_offer(sdp)


def test_only_the_first_24_candidates_are_kept() -> None:
    kept = sanitize_offer(offer(*AUDIO, *(host(number) for number in range(200)), "a=mid:0")).splitlines()
    assert [line for line in kept if "candidate" in line] == [host(n) for n in range(MAX_CANDIDATES)]
    assert kept[-1] == "a=mid:0"


@pytest.mark.parametrize(
    "unusable",
    [
        host(1, "4ad1.local"),
        host(1, "4AD1.LOCAL"),
        host(1, "example.org"),
        host(1, protocol="tcp"),
        host(999_999_999_999),
        host(-50_000),
        "a=candidate:1 1 udp 5",
    ],
)
def test_unusable_candidates_are_removed_and_not_counted(unusable: str) -> None:
    kept = sanitize_offer(offer(*AUDIO, *[unusable] * 100, host(7)))
    assert kept == offer(*AUDIO, host(7))


@pytest.mark.parametrize("prefix", ["", "candidate:", "a=candidate:"])
def test_the_prefix_of_a_trickled_candidate_is_removed(prefix: str) -> None:
    bare = host(1).removeprefix("a=candidate:")
    assert sanitize_candidate(prefix + bare) == bare


def test_an_unusable_trickled_candidate_is_none_and_a_too_long_one_is_refused() -> None:
    assert sanitize_candidate(host(1, "ab.local")) is None
    with pytest.raises(InvalidOffer, match="at most 512"):
        sanitize_candidate(host(1) + " x" * 500)


@given(st.lists(st.sampled_from([*HEAD, *AUDIO, *VIDEO, host(1), "a=sendonly", "", "m=", "m=audio ", "\0"])))
def test_any_sequence_of_sdp_lines_is_accepted_or_raises_invalid_offer(lines: list[str]) -> None:
    try:
        sanitize_offer("\n".join(lines))
    except InvalidOffer as error:
        assert str(error)
