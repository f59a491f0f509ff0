"""Encrypted RTP calls: both directions, reports, and datagrams that are not the peer's."""

import random
from dataclasses import replace

import pytest

from shared.calls.rtp_stream import PEER, RtpSource
from vivavoce.adapters.audio.formats.g711 import ulaw_encode
from vivavoce.adapters.rtp.codec import CODECS
from vivavoce.adapters.rtp.connection import RtpConnection, RtpEnd, RtpFault, RtpOptions
from vivavoce.adapters.rtp.packet import encode_packet, parse_packet
from vivavoce.adapters.rtp.rtcp import encode_bye
from vivavoce.adapters.rtp.srtp import SrtpKeys, SrtpSession, SrtpSuite

PCM = bytes(range(160)) * 2
REPORTS = (PEER[0], PEER[1] + 1)
OURS = SrtpKeys("AES_CM_128_HMAC_SHA1_80", local=bytes(range(30)), remote=bytes(range(30, 60)))


def keys_of_peer(keys: SrtpKeys = OURS) -> SrtpKeys:
    return replace(keys, local=keys.remote, remote=keys.local)


def connection(keys: SrtpKeys = OURS) -> RtpConnection:
    return RtpConnection(RtpOptions(CODECS["ulaw"], PEER, srtp=keys), random.Random(1))


@pytest.mark.parametrize("suite", ["AES_CM_128_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32"])
def test_both_sides_hear_each_other(suite: SrtpSuite) -> None:
    keys = replace(OURS, suite=suite)
    call, peer, source = connection(keys), SrtpSession(keys_of_peer(keys)), RtpSource()
    for _ in range(10):  # the numbers wrap around
        call.receive(peer.protect(encode_packet(source.next(ulaw_encode(PCM)))), PEER, 1.0)
    assert call.counters.received == 10 and call.faults == {}
    sent = call.encode_packet(PCM)
    assert ulaw_encode(PCM) not in sent
    opened = peer.unprotect(sent)
    assert opened is not None and parse_packet(opened).payload == ulaw_encode(PCM)


def test_packets_without_encryption_of_another_key_or_changed_are_ignored() -> None:
    call, source = connection(), RtpSource()
    plain = encode_packet(source.next(ulaw_encode(PCM)))
    stranger = SrtpSession(replace(keys_of_peer(), local=bytes(30)))
    protected = SrtpSession(keys_of_peer()).protect(plain)
    changed = protected[:20] + bytes((protected[20] ^ 1,)) + protected[21:]
    for datagram in (
        plain,
        stranger.protect(plain),
        protected[:-1],
        changed,
        b"",
    ):
        call.receive(datagram, PEER, 1.0)
    assert call.counters.received == 0
    assert call.faults == {RtpFault.UNPROTECTED: 5}
    call.receive(protected, PEER, 1.0)
    assert call.counters.received == 1
    call.receive(protected, PEER, 1.0)  # again
    assert call.faults == {RtpFault.UNPROTECTED: 6}


def test_reports_are_encrypted_and_only_those_of_the_peer_end_the_call() -> None:
    call, peer, source = connection(), SrtpSession(keys_of_peer()), RtpSource()
    call.receive(peer.protect(encode_packet(source.next(ulaw_encode(PCM)))), PEER, 1.0)
    list(call.events())
    call.receive_report(encode_bye(source.ssrc, "forged"), REPORTS, 1.0)
    assert RtpEnd() not in list(call.events())
    call.receive_report(peer.protect_report(encode_bye(source.ssrc, "peer")), REPORTS, 1.0)
    assert list(call.events()) == [RtpEnd()]
    assert peer.unprotect_report(call.encode_end()) is not None


def test_keys_are_not_shown() -> None:
    assert "local" not in repr(OURS) and "x1e" not in repr(OURS)
