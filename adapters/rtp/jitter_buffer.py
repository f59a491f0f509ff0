"""Jitter buffer of the caller's audio: packets in any order in, audio in order out, with gaps concealed.

The consumers are speech detection and recognition, not a loudspeaker. Audio is therefore returned as soon as
it is in order, and only a gap is waited for: until its packet should have arrived, by the spread of the
arrivals of the last seconds. A packet that is not there by then is concealed.

    arrived    1   2   4   5   .   3   6
    returned   1   2           3 4 5   6       3 arrived within the wait; else it is concealed

A caller whose phone pauses (no packets, no gap in the numbers) is silent: silence is returned in real time,
and packets that were only delayed follow after it. Nothing that arrives is dropped, unless its place has been
concealed. No clock: times are monotonic seconds.

Source: RFC 3550, A.1 (numbers), A.8 (jitter).
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from .concealment import LossConcealer

_MIN_WAIT_S: Final = 0.040
_MAX_WAIT_S: Final = 0.240
_FIRST_WAIT_S: Final = 0.100  # until enough has arrived to measure
_WAIT_MARGIN_S: Final = 0.020  # arrivals are seen once a packet period
_TRANSITS: Final = 128  # 2.6 s of packets, so that a drift of the caller's clock is followed
_MEASURE_EVERY: Final = 16  # packets
_MAX_WAITING: Final = 50  # packets behind a gap: a second
_MAX_JUMP: Final = 150  # packets; a greater jump begins another stream (RFC 3550: 3,000, of video too)
_MAX_MISORDER: Final = 100
_PAUSE_S: Final = 0.200  # without a packet, until silence is returned
_MAX_PAUSE_S: Final = 2.0  # of silence returned; speech detection has noticed the end by then
_MAX_FILL_S: Final = 1.0  # of silence at once, for a pause in the timestamps


@dataclass(slots=True)
class JitterCounters:
    """Counters of one stream."""

    received: int = 0  # packets, without duplicates
    lost: int = 0  # concealed
    late: int = 0  # arrived after they were concealed
    duplicates: int = 0
    restarts: int = 0  # jumps of the numbers


class JitterBuffer:
    """Orders and completes one stream of s16le mono. Not thread-safe."""

    def __init__(self, sample_rate: int) -> None:
        self.counters = JitterCounters()
        self.jitter = 0.0  # of the time between arrivals, in samples
        self._sample_rate = sample_rate
        self._concealer = LossConcealer(sample_rate)
        self._out: list[bytes] = []
        # Numbers and timestamps are counted on past 2**16 and 2**32, from the first ones.
        self._next: int | None = None  # number of the next packet to return
        self._next_timestamp = 0  # of the next audio to return
        self._first = 0
        self._highest = 0
        self._waiting: dict[int, tuple[int, bytes | None]] = {}  # behind a gap: timestamp, audio
        self._bad_next = -1  # a number that would confirm a jump
        self._packet_samples = sample_rate // 50
        self._transits: deque[float] = deque(maxlen=_TRANSITS)
        self._transit = 0.0  # least of them: arrival less timestamp, seconds
        self._wait_s = _FIRST_WAIT_S
        self._arrived_at = 0.0
        self._pause_s = 0.0  # silence returned since the last packet
        self._concealed_from: deque[tuple[int, int]] = deque(maxlen=_MAX_MISORDER)  # number, up to

    @property
    def highest_sequence(self) -> int:
        """The highest number so far, with its cycles."""
        return self._highest

    @property
    def expected(self) -> int:
        """Packets from the first number to the highest."""
        return self._highest - self._first + 1 if self._next is not None else 0

    @property
    def wait_s(self) -> float:
        """Time for which a gap is waited for after its packet was due."""
        return self._wait_s

    def push(self, sequence: int, timestamp: int, pcm: bytes | None, now: float) -> bool:
        """Take a packet; ``pcm`` is None if it has no audio, as that of a key. Return whether it is new."""
        if self._next is None:
            self._start(sequence, timestamp)
        assert self._next is not None
        step = (sequence - self._next + 0x8000) % 0x10000 - 0x8000
        if not -_MAX_MISORDER <= step <= _MAX_JUMP:
            if sequence != self._bad_next:
                self._bad_next = (sequence + 1) % 0x10000  # one packet proves nothing
                return False
            self._restart(sequence, timestamp)
            step = 0
        number = self._next + step
        if step < 0 or number in self._waiting:
            self._count_old(number)
            return False
        timestamp = self._next_timestamp + (timestamp - self._next_timestamp + 2**31) % 2**32 - 2**31
        self._highest = max(self._highest, number)
        self.counters.received += 1
        if pcm is not None:
            self._measure(timestamp, now)
        if step == 0:
            self._return(timestamp, pcm)
        else:
            self._waiting[number] = (timestamp, pcm)
        if self._waiting:
            self._return_waiting()
        return True

    def pull(self, now: float) -> bytes:
        """Return the audio that is ready, with gaps that are over at ``now`` concealed."""
        while self._waiting and (len(self._waiting) > _MAX_WAITING or now >= self._gap_over_at()):
            self._conceal_one()
            self._return_waiting()
        if self._next is not None and not self._waiting:
            self._fill_pause(now)
        if not self._out:
            return b""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    def _start(self, sequence: int, timestamp: int) -> None:
        self._next = self._first = self._highest = sequence
        self._next_timestamp = timestamp
        self._wait_s = _FIRST_WAIT_S
        self._transits.clear()

    def _restart(self, sequence: int, timestamp: int) -> None:
        for _, pcm in (self._waiting[number] for number in sorted(self._waiting)):
            if pcm:
                self._out.append(pcm)
        self._waiting.clear()
        self._concealed_from.clear()
        self._concealer.reset()
        self.counters.restarts += 1
        self._bad_next = -1
        self._start(sequence, timestamp)

    def _count_old(self, number: int) -> None:
        if any(begin <= number < end for begin, end in self._concealed_from):
            self.counters.late += 1
        else:
            self.counters.duplicates += 1

    def _measure(self, timestamp: int, now: float) -> None:
        transit = now - timestamp / self._sample_rate
        transits = self._transits
        if transits:
            change = abs(transit - transits[-1]) * self._sample_rate
            self.jitter += (change - self.jitter) / 16
            self._transit = min(self._transit, transit)
        else:
            self._transit = transit
        transits.append(transit)
        self._arrived_at = now
        if self.counters.received % _MEASURE_EVERY == 0:
            ordered = sorted(transits)
            self._transit = ordered[0]
            spread = ordered[-1 - len(ordered) // 100] - ordered[0]
            self._wait_s = min(max(spread + _WAIT_MARGIN_S, _MIN_WAIT_S), _MAX_WAIT_S)

    def _return(self, timestamp: int, pcm: bytes | None) -> None:
        """Return the next packet, after silence for a pause in the timestamps."""
        assert self._next is not None
        self._next += 1
        if not pcm:
            return
        paused = timestamp - self._next_timestamp
        if paused > 0:
            fill = min(paused / self._sample_rate, _MAX_FILL_S) - self._pause_s
            self._add_silence(round(fill * self._sample_rate))
        self._pause_s = 0.0
        self._out.append(self._concealer.push(pcm))
        self._packet_samples = len(pcm) // 2
        self._next_timestamp = timestamp + self._packet_samples

    def _return_waiting(self) -> None:
        while self._waiting and self._next in self._waiting:
            self._return(*self._waiting.pop(self._next))

    def _gap_over_at(self) -> float:
        return self._transit + self._next_timestamp / self._sample_rate + self._wait_s

    def _conceal_one(self) -> None:
        """Conceal the next packet; its length is its share of the gap in the timestamps."""
        assert self._next is not None
        number = min(self._waiting)
        missing = number - self._next
        gap = self._waiting[number][0] - self._next_timestamp
        samples = gap // missing
        if not 0 < samples <= 2 * self._packet_samples:  # it held no audio, or a pause is a part of the gap
            samples = max(0, min(gap, self._packet_samples))
        if samples:
            self._out.append(self._concealer.conceal(samples))
        if self._concealed_from and self._concealed_from[-1][1] == self._next:
            begin, _ = self._concealed_from.pop()
        else:
            begin = self._next
        self._concealed_from.append((begin, self._next + 1))
        self.counters.lost += 1
        self._next += 1
        self._next_timestamp += samples

    def _fill_pause(self, now: float) -> None:
        due_s = min(now - self._arrived_at - _PAUSE_S, _MAX_PAUSE_S) - self._pause_s
        if due_s > 0 and self._transits:
            samples = round(due_s * self._sample_rate)
            self._add_silence(samples)
            self._pause_s += samples / self._sample_rate

    def _add_silence(self, samples: int) -> None:
        if samples > 0:
            self._out.append(bytes(2 * samples))
            self._concealer.reset()
