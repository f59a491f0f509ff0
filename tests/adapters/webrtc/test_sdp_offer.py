"""What of a stranger's offer is read, and what is refused."""

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
AUDIO = ["m=audio 9 UDP/TLS/RTP/SAVPF 111", "c=IN IP4 0.0.0.0", "a=rtpmap:111 opus/48000/2"]
VIDEO = ["m=video 9 UDP/TLS/RTP/SAVPF 96", "a=rtpmap:96 VP8/90000"]


def offer(*lines: str) -> str:
    return "\r\n".join([*HEAD, *lines]) + "\r\n"


def host(number: int, address: str = "192.0.2.1", protocol: str = "udp") -> str:
    return f"a=candidate:{number} 1 {protocol} 2122260223 {address} {50_000 + number} typ host"


def test_an_offer_with_nothing_wrong_comes_back_as_it_was() -> None:
    sdp = offer(*AUDIO, host(1), "a=sendrecv", *VIDEO)
    assert sanitize_offer(sdp) == sdp


@pytest.mark.parametrize(
    ("sdp", "complaint"),
    [
        ("", "no SDP"),
        ("hello", "no SDP"),
        (offer(), "no audio"),
        (offer(*VIDEO), "no audio"),
        (offer("m=application 9 UDP/DTLS/SCTP webrtc-datachannel"), "no audio"),
        (offer(*AUDIO, "a=sendonly"), "does not receive"),
        (offer(*AUDIO, "a=inactive"), "does not receive"),
        (offer(*AUDIO * (MAX_MEDIA_SECTIONS + 1)), f"at most {MAX_MEDIA_SECTIONS}"),
        (offer(*AUDIO, "a=x:" + "y" * 1_000_000), f"at most {MAX_OFFER_CHARACTERS}"),
    ],
)
def test_an_offer_from_which_no_call_can_come_is_refused_with_a_sentence(sdp: str, complaint: str) -> None:
    with pytest.raises(InvalidOffer, match=complaint):
        sanitize_offer(sdp)


def test_of_very_many_candidates_the_first_are_kept() -> None:
    kept = sanitize_offer(offer(*AUDIO, *(host(number) for number in range(200)), "a=mid:0")).splitlines()
    assert [line for line in kept if "candidate" in line] == [host(n) for n in range(MAX_CANDIDATES)]
    assert kept[-1] == "a=mid:0"


@pytest.mark.parametrize(
    "useless",
    [host(1, "4ad1.local"), host(1, "4AD1.LOCAL"), host(1, protocol="tcp"), "a=candidate:1 1 udp 5"],
)
def test_candidates_that_lead_nowhere_are_left_out_and_do_not_count(useless: str) -> None:
    kept = sanitize_offer(offer(*AUDIO, *[useless] * 100, host(7)))
    assert kept == offer(*AUDIO, host(7))


@pytest.mark.parametrize("prefix", ["", "candidate:", "a=candidate:"])
def test_a_trickled_candidate_is_read_with_or_without_its_name(prefix: str) -> None:
    bare = host(1).removeprefix("a=candidate:")
    assert sanitize_candidate(prefix + bare) == bare


def test_a_trickled_candidate_of_no_use_is_none_and_one_without_end_is_refused() -> None:
    assert sanitize_candidate(host(1, "ab.local")) is None
    with pytest.raises(InvalidOffer, match="at most 512"):
        sanitize_candidate(host(1) + " x" * 500)


@given(st.lists(st.sampled_from([*HEAD, *AUDIO, *VIDEO, host(1), "a=sendonly", "", "m=", "m=audio ", "\0"])))
def test_garbage_of_real_lines_is_an_offer_or_a_bad_offer_and_nothing_else(lines: list[str]) -> None:
    try:
        sanitize_offer("\n".join(lines))
    except InvalidOffer as error:
        assert str(error)
