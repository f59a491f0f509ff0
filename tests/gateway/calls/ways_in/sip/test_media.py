"""Where media may go, and what is agreed on, without sockets."""

import pytest

from vivavoce.adapters.sip.session import SipRejected
from vivavoce.gateway.access.networks import AddressSet
from vivavoce.gateway.calls.ways_in.sip.media import MediaNegotiation, MediaPolicy


def negotiation(host: str, *, networks: tuple[str, ...] = ()) -> MediaNegotiation:
    policy = MediaPolicy(("ulaw", "alaw", "g722"), "optional", AddressSet.parse(networks))
    return MediaNegotiation(policy, ("10.0.0.5", 4000), host)


def offer(host: str, *lines: str, types: str = "0") -> bytes:
    head = [
        "v=0",
        f"o=- 1 1 IN IP4 {host}",
        "s=-",
        f"c=IN IP4 {host}",
        "t=0 0",
        f"m=audio 5000 RTP/AVP {types}",
    ]
    return "\r\n".join([*head, *lines, ""]).encode()


@pytest.mark.parametrize(
    ("signals", "described", "goes_to"),
    [
        ("198.51.100.7", "198.51.100.7", "198.51.100.7"),
        ("8.8.4.4", "192.168.1.20", "8.8.4.4"),  # behind NAT
        ("8.8.4.4", "127.0.0.1", "8.8.4.4"),
        ("127.0.0.1", "192.168.1.20", "127.0.0.1"),  # a phone of this machine
        ("8.8.4.4", "0.0.0.0", "8.8.4.4"),  # hold, as of RFC 2543
        ("8.8.4.4", "9.9.9.9", None),  # somebody else
        ("10.0.0.7", "10.0.0.8", None),
        ("8.8.4.4", "media.example.com", None),
    ],
)
def test_media_go_to_the_host_that_signals(signals: str, described: str, goes_to: str | None) -> None:
    media = negotiation(signals)
    if goes_to is None:
        with pytest.raises(SipRejected) as refused:
            media.answer(offer(described))
        assert refused.value.status == 488
        return
    media.answer(offer(described))
    assert media.agreed is not None
    assert media.agreed.rtp.peer == (goes_to, 5000)


def test_media_may_go_to_networks_of_the_settings() -> None:
    media = negotiation("8.8.4.4", networks=("9.9.9.0/24",))
    media.answer(offer("9.9.9.9"))
    assert media.agreed is not None
    assert media.agreed.rtp.peer == ("9.9.9.9", 5000)


def test_a_change_keeps_the_rate_of_the_audio() -> None:
    media = negotiation("10.0.0.7")
    media.answer(offer("10.0.0.7", types="0 8"))
    answer = media.answer(offer("10.0.0.7", types="9 8"))  # G.722 has another rate
    assert b"m=audio 4000 RTP/AVP 8\r\n" in answer
    with pytest.raises(SipRejected):
        media.answer(offer("10.0.0.7", types="9"))


@pytest.mark.parametrize(
    ("theirs", "ours", "is_held"),
    [
        ("sendrecv", "sendrecv", False),
        ("sendonly", "recvonly", True),
        ("inactive", "inactive", True),
        ("recvonly", "sendonly", False),
    ],
)
def test_a_direction_is_mirrored(theirs: str, ours: str, is_held: bool) -> None:
    media = negotiation("10.0.0.7")
    assert f"a={ours}\r\n".encode() in media.answer(offer("10.0.0.7", f"a={theirs}"))
    assert media.agreed is not None
    assert (media.agreed.is_held, media.agreed.rtp.sends) == (is_held, not is_held)
