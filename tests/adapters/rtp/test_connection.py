"""One RTP call: what is sent, what is taken, and what is ignored."""

import random
from dataclasses import replace

import numpy as np
import pytest

from shared.audio.g711_tables import A_LAW, MU_LAW, G711Law
from shared.calls.rtp_stream import PEER, RtpSource
from vivavoce.adapters.audio.formats.g711 import ulaw_encode
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.adapters.rtp.codec import CODECS
from vivavoce.adapters.rtp.connection import (
    RtpConnection,
    RtpEnd,
    RtpFault,
    RtpFaultSeen,
    RtpKey,
    RtpOptions,
    RtpPeerMoved,
)
from vivavoce.adapters.rtp.packet import encode_packet, parse_packet
from vivavoce.adapters.rtp.rtcp import Bye, SenderReport, encode_bye, encode_sender_report, parse_rtcp
from vivavoce.adapters.rtp.telephone_events import encode_key

SAMPLES = 160
OTHER = ("203.0.113.7", 5000)
PEER_REPORTS = (PEER[0], PEER[1] + 1)
PCM = np.arange(-80, 80, dtype="<i2").tobytes()


def connection(**changes: object) -> RtpConnection:
    return RtpConnection(RtpOptions(CODECS["ulaw"], **changes), random.Random(7))  # type: ignore[arg-type]


def receive(call: RtpConnection, source: RtpSource, count: int = 1, address: tuple[str, int] = PEER) -> None:
    for _ in range(count):
        packet = source.next(ulaw_encode(b"\0\x10" * SAMPLES))
        call.receive(encode_packet(packet), address, 1.0)


@pytest.mark.parametrize("name", CODECS)
def test_packets_that_are_sent_count_on_with_one_marker(name: str) -> None:
    codec = CODECS[name]
    call = RtpConnection(RtpOptions(codec), random.Random(3))
    pcm = np.arange(codec.sample_rate // 50, dtype="<i2").tobytes()
    packets = [parse_packet(call.encode_packet(pcm)) for _ in range(5)]
    first = packets[0]
    for index, packet in enumerate(packets):
        assert packet.payload_type == codec.payload_type
        assert packet.sequence == (first.sequence + index) % 2**16
        assert (
            packet.timestamp
            == (first.timestamp + index * (codec.clock_rate or codec.sample_rate) // 50) % 2**32
        )
        assert (packet.ssrc, packet.marker) == (first.ssrc, index == 0)
        if codec.make_state is None:  # packets of the others depend on those before
            decoded = np.frombuffer(codec.decode(packet.payload), "<i2")
            assert np.allclose(decoded, range(len(pcm) // 2), atol=16)


@pytest.mark.parametrize("name", ["g722", "opus"])
def test_a_tone_survives_a_codec_with_a_state_for_each_call(name: str) -> None:
    codec = CODECS[name].for_call()
    rate = codec.sample_rate
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)).astype("<i2")
    packets = np.split(tone, 50)
    decoded = b"".join(codec.decode(codec.encode(packet.tobytes())) for packet in packets)
    heard = np.frombuffer(decoded, "<i2").astype(float)[rate // 2 :]
    spectrum = np.abs(np.fft.rfft(heard * np.hanning(len(heard))))
    assert np.argmax(spectrum) * rate / len(heard) == pytest.approx(440, abs=4)
    assert np.abs(heard).max() == pytest.approx(8000, rel=0.1)
    assert codec.decode(b"") == b""


@pytest.mark.parametrize(("name", "law"), [("ulaw", MU_LAW), ("alaw", A_LAW)])
def test_g711_is_that_of_the_recommendation_in_both_directions(name: str, law: G711Law) -> None:
    codec = CODECS[name]
    call = RtpConnection(RtpOptions(codec))
    down = Downsampler()
    filtered = down.push(np.arange(-32_768, 32_768).astype("<i2").tobytes()) + down.drain()
    packets = [filtered[start : start + 320] for start in range(0, len(filtered), 320)]
    sent = b"".join(parse_packet(call.encode_packet(packet)).payload for packet in packets)
    assert sent == law.encode(filtered) and len(set(sent)) > 200
    for payload in (bytes(range(128)), bytes(range(128, 256))):
        source = RtpSource(payload_type=codec.payload_type)
        call = RtpConnection(RtpOptions(codec, PEER))
        call.receive(encode_packet(source.next(payload)), PEER, 1.0)
        assert np.array_equal(np.frombuffer(call.audio_due(1.0), "<i2"), law.decode(payload))


def test_linear_audio_is_in_network_order() -> None:
    packet = parse_packet(RtpConnection(RtpOptions(CODECS["slin"])).encode_packet(b"\x01\x02\x03\x04"))
    assert packet.payload == b"\x02\x01\x04\x03"


def test_time_that_is_not_sent_advances_the_timestamp_alone() -> None:
    call = connection()
    before = parse_packet(call.encode_packet(PCM))
    call.skip(3 * SAMPLES)
    after = parse_packet(call.encode_packet(PCM))
    assert (after.sequence - before.sequence) % 2**16 == 1
    assert (after.timestamp - before.timestamp) % 2**32 == 4 * SAMPLES
    assert after.marker


def test_the_first_peer_is_kept_and_others_are_ignored_and_reported_once() -> None:
    call, source, foreign = connection(), RtpSource(), RtpSource(ssrc=99)
    receive(call, source, 5)
    receive(call, foreign, 5, OTHER)
    receive(call, foreign, 1, (PEER[0], PEER[1] + 2))
    receive(call, source)
    assert call.peer == PEER
    assert call.faults == {RtpFault.FOREIGN: 6}
    assert list(call.events()) == [RtpFaultSeen(RtpFault.FOREIGN, "203.0.113.7:5000")]
    assert call.counters.received == 6


def test_a_peer_that_was_named_may_use_another_port_but_no_other_host() -> None:
    call = connection(peer=(PEER[0], 9))
    assert call.peer == (PEER[0], 9)
    receive(call, RtpSource(ssrc=99), 3, OTHER)
    assert (call.peer, call.counters.received) == ((PEER[0], 9), 0)
    receive(call, RtpSource(), 3)
    assert (call.peer, call.counters.received) == (PEER, 3)


def test_another_stream_of_the_peer_is_taken_after_two_packets_in_order() -> None:
    call, source, other = connection(), RtpSource(), RtpSource(ssrc=0x5678, sequence=9)
    receive(call, source, 5)
    receive(call, other)
    receive(call, source)
    assert call.counters.received == 6
    receive(call, other, 3)
    assert call.counters.received == 3 - 1 + 1  # the second and third of them, and the one that was next
    assert call.faults == {RtpFault.UNKNOWN_STREAM: 1}


def test_another_payload_type_is_ignored_and_comfort_noise_is_no_audio() -> None:
    call, source = connection(peer=PEER), RtpSource()
    receive(call, source, 2)
    call.receive(encode_packet(replace(source.next(b"\0" * 160), payload_type=8)), PEER, 1.0)
    call.receive(encode_packet(replace(source.next(b"\x40"), payload_type=13)), PEER, 1.0)
    assert call.faults == {RtpFault.WRONG_TYPE: 1}
    assert len(call.audio_due(1.0)) == 2 * 2 * SAMPLES


def test_a_collision_of_identifiers_changes_ours_and_ends_the_old_one_with_bye() -> None:
    call = connection()
    ours = parse_packet(call.encode_packet(PCM)).ssrc
    receive(call, RtpSource(ssrc=ours))
    packet = parse_packet(call.encode_packet(PCM))
    assert packet.ssrc != ours and packet.marker
    (bye,) = call.reports_due(1.0, 0.0)
    assert Bye((ours,)) in parse_rtcp(bye)
    receive(call, RtpSource(ssrc=ours), 3)
    assert call.counters.received == 3


def test_our_own_packets_that_come_back_are_ignored_in_the_end() -> None:
    call = connection()
    identifiers = set()
    for _ in range(50):
        datagram = call.encode_packet(PCM)
        identifiers.add(parse_packet(datagram).ssrc)
        call.receive(datagram, PEER, 1.0)
    assert len(identifiers) == 4
    assert call.faults == {RtpFault.COLLISION: 50}


@pytest.mark.parametrize("dropped", [(), (0,), (0, 1, 2), (1, 2, 3, 4, 5)])
def test_a_key_is_reported_once_through_repeats_and_loss(dropped: tuple[int, ...]) -> None:
    call, source = connection(), RtpSource()
    receive(call, source, 3)
    digits = "55#A"
    for digit in digits:
        begun = source.timestamp
        for index in range(6):
            payload = encode_key(digit, duration=160 * (index + 1), is_end=index >= 3)
            packet = source.key(payload, begun, marker=index == 0)
            if index not in dropped:
                call.receive(encode_packet(packet), PEER, 1.0)
                call.receive(encode_packet(packet), PEER, 1.0)  # a duplicate
        source.pause(6)
    assert list(call.events()) == [RtpKey(digit) for digit in digits]


def test_a_delayed_packet_of_an_earlier_key_and_a_long_key_are_no_new_keys() -> None:
    call, source = connection(), RtpSource()
    first = source.key(encode_key("1", duration=160, is_end=False), 1000, marker=True)
    late = source.key(encode_key("1", duration=800, is_end=True), 1000)
    second = source.key(encode_key("2", duration=160, is_end=False), 2000, marker=True)
    longer = source.key(encode_key("2", duration=160, is_end=False), 2000 + 0xFFFF)
    for packet in (first, second, late, longer):
        call.receive(encode_packet(packet), PEER, 1.0)
    assert list(call.events()) == [RtpKey("1"), RtpKey("2")]


def test_keys_that_come_on_another_way_are_ignored() -> None:
    call, source = connection(key_type=None), RtpSource()
    call.receive(encode_packet(source.key(encode_key("1", duration=160, is_end=False), 7)), PEER, 1.0)
    assert list(call.events()) == [RtpFaultSeen(RtpFault.WRONG_TYPE, "got type 101, agreed was 0")]


def test_only_the_bye_of_the_peers_stream_ends_the_call() -> None:
    call, source = connection(peer=PEER), RtpSource()
    receive(call, source)
    call.receive_report(encode_bye(99, "other"), PEER_REPORTS, 1.0)
    call.receive_report(encode_bye(source.ssrc, "foreign"), OTHER, 1.0)
    call.receive_report(encode_bye(source.ssrc, "another port"), (PEER[0], PEER[1] + 2), 1.0)
    call.receive_report(encode_bye(source.ssrc, "port of RTP, to that of RTCP"), PEER, 1.0)
    call.receive(encode_bye(source.ssrc, "another port, to that of RTP"), PEER_REPORTS, 1.0)
    assert list(call.events()) == [RtpFaultSeen(RtpFault.FOREIGN, "203.0.113.7:5000")]
    assert call.faults == {RtpFault.FOREIGN: 4}
    call.receive(encode_bye(source.ssrc, "peer"), PEER, 1.0)  # on the port of RTP
    assert list(call.events()) == [RtpEnd()]
    call.receive_report(encode_bye(source.ssrc, "peer"), PEER_REPORTS, 1.0)
    assert list(call.events()) == [RtpEnd()]


def test_a_bye_before_the_peer_is_known_is_ignored() -> None:
    call, source = connection(), RtpSource()
    call.receive_report(encode_bye(source.ssrc, "stranger"), PEER_REPORTS, 1.0)
    call.receive(encode_bye(source.ssrc, "stranger"), PEER, 1.0)
    assert call.faults == {RtpFault.FOREIGN: 2}


def test_a_stray_packet_before_those_of_the_peer_does_not_get_the_call() -> None:
    call = connection()
    receive(call, RtpSource(ssrc=99), 2, OTHER)
    assert call.peer is None
    receive(call, RtpSource(), 3)
    assert (call.peer, call.counters.received) == (PEER, 3)


def test_a_peer_that_moves_is_followed_with_one_event_and_its_stream_goes_on() -> None:
    call, source = connection(peer=PEER), RtpSource()
    receive(call, source, 5)
    moved = (PEER[0], PEER[1] + 100)
    for _ in range(3):
        call.receive(encode_packet(source.next(ulaw_encode(PCM))), moved, 1.2)
    assert call.peer == moved and call.report_address == (moved[0], moved[1] + 1)
    assert list(call.events()) == [RtpPeerMoved(moved)]
    assert call.counters.received == 8 and call.counters.lost == 0


def test_strangers_cannot_make_us_change_our_identifier_in_a_call() -> None:
    call = connection(peer=PEER)
    receive(call, RtpSource())
    ours = parse_packet(call.encode_packet(PCM)).ssrc
    receive(call, RtpSource(ssrc=ours), 3, OTHER)
    assert parse_packet(call.encode_packet(PCM)).ssrc == ours
    assert call.faults == {RtpFault.FOREIGN: 3}


def test_sender_reports_come_about_every_five_seconds_and_say_what_was_lost() -> None:
    call, source = connection(), RtpSource()
    receive(call, source, 10)
    source.next(b"")  # lost
    receive(call, source, 10)
    call.receive_report(
        encode_sender_report(SenderReport(source.ssrc, 100.0, 0, 0, 0), "peer"), PEER_REPORTS, 1.0
    )
    times, last = [], None
    for tick in range(3000):
        now = 2.0 + tick * 0.02
        packet = parse_packet(call.encode_packet(PCM))
        for datagram in call.reports_due(now, 1000.0 + now):
            times.append(now)
            (last,) = parse_rtcp(datagram)
            assert isinstance(last, SenderReport)
            assert last.packets == tick + 1
            assert last.timestamp == (packet.timestamp + SAMPLES) % 2**32
            assert last.payload_bytes == 160 * last.packets
            (block,) = last.blocks
            assert (block.lost, block.last_report) == (1, ((2_208_988_800 + 100) % 2**16) << 16)
            assert block.delay_since_last_report == pytest.approx((now - 1.0) * 65_536, abs=2)
            assert block.fraction_lost == pytest.approx(1 / 21 if len(times) == 1 else 0, abs=1 / 256)
    assert last is not None and last.ntp_s == pytest.approx(1000.0 + times[-1])
    assert 8 <= len(times) <= 16
    assert min(np.diff(times)) >= 2.4


def test_lost_packets_that_the_peer_reports_are_noted() -> None:
    call, source = connection(peer=PEER), RtpSource()
    receive(call, source)
    (ours,) = {parse_packet(call.encode_packet(PCM)).ssrc}
    reporter = RtpConnection(RtpOptions(CODECS["ulaw"]), random.Random(9))
    for sequence in (1, 2, 5):
        packet = replace(source.next(b"\0" * 160), ssrc=ours, sequence=sequence)
        reporter.receive(encode_packet(packet), PEER, 1.0)
    reporter.encode_packet(PCM)
    reporter.reports_due(0.0, 0.0)
    (report,) = reporter.reports_due(10.0, 0.0)
    call.receive_report(report, PEER_REPORTS, 1.0)
    assert call.remote_lost == 2
