"""The jitter buffer: order, gaps, pauses and delays, in virtual time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.calls.rtp_stream import RtpSource, through_network
from vivavoce.adapters.rtp.concealment import LossConcealer
from vivavoce.adapters.rtp.jitter_buffer import JitterBuffer
from vivavoce.adapters.rtp.packet import RtpPacket

RATE, SAMPLES, PTIME_S = 8_000, 160, 0.02


def numbered(count: int) -> list[RtpPacket]:
    """Packets whose samples are all their number, from 1."""
    source = RtpSource()
    return [source.next(np.full(SAMPLES, number, "<i2").tobytes()) for number in range(1, count + 1)]


def play(buffer: JitterBuffer, arrivals: list[tuple[float, RtpPacket]], until: float) -> np.ndarray:
    """Push each packet in the tick after its arrival; return all samples."""
    out, ready, ticks = [], list(arrivals), 0
    while (now := ticks * PTIME_S) <= until:
        while ready and ready[0][0] <= now:
            packet = ready.pop(0)[1]
            buffer.push(packet.sequence, packet.timestamp, packet.payload or None, now)
        out.append(buffer.pull(now))
        ticks += 1
    return np.frombuffer(b"".join(out), "<i2")


def on_time(packets: list[RtpPacket]) -> list[tuple[float, RtpPacket]]:
    return [(index * PTIME_S, packet) for index, packet in enumerate(packets)]


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_packets_with_jitter_come_out_once_and_in_order(seed: int) -> None:
    packets = numbered(150)
    buffer = JitterBuffer(RATE)
    heard = play(buffer, through_network(packets, seed, loss=0, jitter_s=0.04), 3.2)
    assert heard.tolist() == np.repeat(np.arange(1, 151), SAMPLES).tolist()
    assert (buffer.counters.lost, buffer.counters.late, buffer.counters.received) == (0, 0, 150)


@given(st.integers(0, 10_000), st.floats(0.01, 0.3))
@settings(max_examples=30, deadline=None)
def test_lost_packets_are_replaced_by_as_many_samples(seed: int, loss: float) -> None:
    packets = numbered(150)
    arrivals = through_network(packets, seed, loss=loss, jitter_s=0.04)
    received = {packet.sequence - 65_530 & 0xFFFF for _, packet in arrivals}
    count = max(received) + 1
    buffer = JitterBuffer(RATE)
    heard = play(buffer, arrivals, 3.1)
    assert buffer.counters.lost == count - len(received)
    assert len(heard) == SAMPLES * count
    whole = heard.reshape(-1, SAMPLES)[:, -1]  # the beginning after a loss is cross-faded
    assert all(whole[number] == number + 1 for number in received)


def test_a_packet_in_order_is_returned_at_once_and_a_gap_waits_for_the_measured_jitter() -> None:
    packets = numbered(100)
    buffer = JitterBuffer(RATE)
    arrivals = on_time(packets)
    play(buffer, arrivals[:60], 59 * PTIME_S)
    assert buffer.wait_s == pytest.approx(0.04)  # there is no jitter
    now = 61 * PTIME_S
    buffer.push(packets[61].sequence, packets[61].timestamp, packets[61].payload, now)
    assert buffer.pull(now) == b""
    assert buffer.pull(60 * PTIME_S + 0.039) == b""
    assert len(buffer.pull(60 * PTIME_S + 0.041)) == 2 * 2 * SAMPLES
    late = packets[60]
    assert not buffer.push(late.sequence, late.timestamp, late.payload, now + 0.1)
    assert (buffer.counters.lost, buffer.counters.late) == (1, 1)


def test_a_replayed_packet_is_dropped() -> None:
    packets = numbered(20)
    buffer = JitterBuffer(RATE)
    heard = play(buffer, sorted(on_time(packets) + on_time(packets[:10]), key=lambda one: one[0]), 0.4)
    assert heard.tolist() == np.repeat(np.arange(1, 21), SAMPLES).tolist()
    assert buffer.counters.duplicates == 10


@pytest.mark.parametrize("late", [[5], [5, 6], [6, 5]], ids=str)
def test_packets_that_come_after_they_were_concealed_are_late_and_no_duplicates(late: list[int]) -> None:
    packets = numbered(30)
    arrivals = [each for index, each in enumerate(on_time(packets)) if index not in late]
    buffer = JitterBuffer(RATE)
    play(buffer, arrivals + [(0.58, packets[index]) for index in late], 0.6)
    assert (buffer.counters.lost, buffer.counters.late, buffer.counters.duplicates) == (
        len(late),
        len(late),
        0,
    )


def test_a_caller_whose_phone_pauses_is_silent_in_real_time() -> None:
    source = RtpSource()
    before = [source.next(b"\1\1" * SAMPLES) for _ in range(10)]
    source.pause(50)
    after = [source.next(b"\1\1" * SAMPLES, marker=True) for _ in range(10)]
    arrivals = on_time(before) + [(1.2 + at, packet) for at, packet in on_time(after)]
    buffer = JitterBuffer(RATE)
    assert len(play(buffer, arrivals[:10], 0.8)) == pytest.approx(
        SAMPLES * (10 + 0.42 / PTIME_S), abs=SAMPLES
    )
    whole = JitterBuffer(RATE)
    assert len(play(whole, arrivals, 1.4)) == SAMPLES * 70
    assert whole.counters.lost == 0


def test_packets_that_were_held_up_for_a_second_are_all_heard() -> None:
    packets = numbered(100)
    arrivals = [(at if at < 0.5 else max(at, 1.5), packet) for at, packet in on_time(packets)]
    buffer = JitterBuffer(RATE)
    heard = play(buffer, arrivals, 2.0)
    assert heard[heard > 0].tolist() == np.repeat(np.arange(1, 101), SAMPLES).tolist()
    assert buffer.counters.lost == 0


def test_silence_ends_after_two_seconds_of_a_pause() -> None:
    buffer = JitterBuffer(RATE)
    assert len(play(buffer, on_time(numbered(5)), 60.0)) == SAMPLES * (5 + 100)


def test_a_jump_of_the_numbers_is_followed_after_two_packets() -> None:
    packets, other = numbered(10), RtpSource(sequence=30_000, timestamp=77)
    rest = [other.next(np.full(SAMPLES, 9, "<i2").tobytes()) for _ in range(5)]
    buffer = JitterBuffer(RATE)
    heard = play(buffer, on_time(packets + rest), 0.4)
    assert (heard == 9).sum() == SAMPLES * (1 + 4)  # one of the first stream has that value
    assert buffer.counters.restarts == 1


def test_a_packet_of_a_key_is_no_gap() -> None:
    source = RtpSource()
    packets = [source.next(b"\1\1" * SAMPLES) for _ in range(5)]
    begun = source.timestamp
    packets += [source.key(b"", begun) for _ in range(5)]
    source.pause(5)
    packets += [source.next(b"\1\1" * SAMPLES) for _ in range(5)]
    buffer = JitterBuffer(RATE)
    assert len(play(buffer, on_time(packets), 0.4)) == SAMPLES * 15
    assert buffer.counters.lost == 0


def test_the_jitter_is_that_of_rfc_3550() -> None:
    buffer = JitterBuffer(RATE)
    expected, last = 0.0, 0.0
    for index, packet in enumerate(numbered(50)):
        late_s = 0.005 * (index % 3)
        if index:
            expected += (abs(late_s - last) * RATE - expected) / 16
        last = late_s
        buffer.push(packet.sequence, packet.timestamp, packet.payload, 10 + index * PTIME_S + late_s)
    assert buffer.jitter == pytest.approx(expected, rel=1e-6)


def test_a_lost_packet_of_a_tone_sounds_like_the_tone() -> None:
    tone = np.rint(8000 * np.sin(2 * np.pi * 200 * np.arange(4000) / RATE)).astype("<i2")
    concealer = LossConcealer(RATE)
    heard = [concealer.push(tone[at : at + SAMPLES].tobytes()) for at in range(0, 1600, SAMPLES)]
    heard.append(concealer.conceal(SAMPLES))
    heard.append(concealer.push(tone[1760:1920].tobytes()))
    error = np.frombuffer(b"".join(heard), "<i2")[1600:1760].astype(float) - tone[1600:1760]
    assert np.sqrt(np.mean(error**2)) < 0.2 * np.sqrt(np.mean(tone.astype(float) ** 2))


def test_a_long_loss_fades_to_silence_within_60_ms() -> None:
    concealer = LossConcealer(RATE)
    concealer.push(b"\x00\x20\x00\xe0" * 400)
    concealed = np.frombuffer(concealer.conceal(SAMPLES * 5), "<i2")
    assert np.abs(concealed[:80]).max() > 4000
    assert not concealed[480:].any()
