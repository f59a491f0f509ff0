"""Both sides of a call on one time axis."""

import numpy as np
import pytest

from vivavoce.adapters.audio.call_timeline import CallSide, CallTimeline

RATE = 8_000
START = 100.0
PACKET_S = 0.02


def packet(level: int, seconds: float = PACKET_S) -> bytes:
    return np.full(round(seconds * RATE), level, "<i2").tobytes()


def levels(pcm: bytes) -> dict[CallSide, list[int]]:
    """The level of each side, every 20 ms (at the middle)."""
    both = np.frombuffer(pcm, "<i2").reshape(-1, 2)
    return {side: both[80::160, side].tolist() for side in CallSide}


def timeline() -> CallTimeline:
    return CallTimeline(start=START, sample_rate=RATE)


@pytest.mark.parametrize("side", CallSide)
def test_packets_that_come_irregularly_follow_each_other(side: CallSide) -> None:
    line, rng = timeline(), np.random.default_rng(1)
    for number in range(100):
        line.add(side, packet(number + 1), START + number * PACKET_S + rng.uniform(0, 0.08))
    taken = levels(line.take(START + 2.0))
    assert [level for level in taken[side] if level] == list(range(1, 101))[: len(taken[side])]
    assert taken[side].count(0) <= 4
    assert set(taken[CallSide(1 - side)]) == {0}


def test_a_pause_is_silence_of_its_length() -> None:
    line = timeline()
    line.add(CallSide.AGENT, packet(5), START)
    line.add(CallSide.AGENT, packet(6), START + 1.0)
    assert levels(line.take(START + 1.04))[CallSide.AGENT] == [5, *[0] * 49, 6, 0]


def test_both_sides_are_at_their_times_whatever_the_pieces_taken() -> None:
    whole, pieces = timeline(), timeline()
    for line in (whole, pieces):
        line.add(CallSide.CALLER, packet(3, 0.5), START + 0.2)
        line.add(CallSide.AGENT, packet(4, 0.3), START + 0.6)
    times = np.linspace(START, START + 1.5, 37)
    taken = b"".join(pieces.take(at) for at in times)
    assert taken == whole.take(START + 1.5)
    assert levels(taken) == {
        CallSide.CALLER: [0] * 10 + [3] * 25 + [0] * 40,
        CallSide.AGENT: [0] * 30 + [4] * 15 + [0] * 30,
    }
    assert pieces.take(START) == b""


def test_speech_that_the_peer_drops_is_not_in_the_recording() -> None:
    line = timeline()
    line.add(CallSide.AGENT, packet(7, 1.0), START)  # sent ahead of time
    line.cut(CallSide.AGENT, START + 0.4)
    line.add(CallSide.AGENT, packet(8), START + 0.4)
    assert levels(line.take(START + 1.0))[CallSide.AGENT] == [7] * 20 + [8] + [0] * 29


def test_a_burst_of_the_caller_after_a_stall_does_not_shift_what_follows() -> None:
    line = timeline()
    for _ in range(100):  # 2 s that were held up by the network
        line.add(CallSide.CALLER, packet(1), START + 2.0)
    for number in range(50):
        line.add(CallSide.CALLER, packet(2), START + 2.02 + number * PACKET_S)
    caller = levels(line.take(START + 3.5))[CallSide.CALLER]
    assert caller.index(1) <= 1 and caller.count(1) in (99, 100)  # in the time in which it was spoken
    assert caller.index(2) in (100, 101)


def test_no_word_is_lost_in_a_stall_of_five_seconds() -> None:
    line, taken, waiting = timeline(), b"", list[int]()
    for number in range(1_000):  # 20 s
        at = START + number * PACKET_S
        waiting.append(number + 1)
        if not 250 <= number < 500:  # the network stalls, and then all comes at once
            for level in waiting:
                line.add(CallSide.CALLER, packet(level), at)
            waiting.clear()
        line.add(CallSide.AGENT, packet(number + 1), at)
        if number % 50 == 49:
            taken += line.take(line.settled(at))
    sides = levels(taken + line.take(START + 20.0))
    heard = [level for level in sides[CallSide.CALLER] if level]
    assert heard == sorted(set(heard)) and len(heard) >= 998
    apart = [
        abs(caller - agent)
        for caller, agent in zip(sides[CallSide.CALLER], sides[CallSide.AGENT], strict=True)
        if caller
    ]
    assert max(apart) <= 1  # packets of 20 ms


@pytest.mark.parametrize("ppm", [-200, 200])
def test_the_sides_stay_together_although_the_callers_clock_is_another(ppm: int) -> None:
    # An hour of packets of 60 ms; the rate is low to spare the processor.
    rate, packet_s, packets = 1_000, 0.06 * (1 + ppm / 1e6), 60_000
    line, pieces = CallTimeline(start=START, sample_rate=rate), list[bytes]()
    times = START + packet_s * np.arange(packets) + np.random.default_rng(1).uniform(0, 0.06, packets)
    for number, at in enumerate(times.tolist()):
        line.add(CallSide.CALLER, np.full(60, number % 30_000 + 1, "<i2").tobytes(), at)
        if number % 500 == 0:
            pieces.append(line.take(line.settled(at)))
    pieces.append(line.take(times[-1]))
    caller = np.frombuffer(b"".join(pieces), "<i2").reshape(-1, 2)[:, CallSide.CALLER].astype(int)
    begins = np.flatnonzero(np.diff(caller) > 0)[20:] + 1  # of packets, after the first second
    numbers = caller[begins] - 1 + 30_000 * (begins > 30_000 * packet_s * rate)
    assert len(begins) > 59_900
    assert np.abs(begins / rate - numbers * packet_s).max() < 0.02
