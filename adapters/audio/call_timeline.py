"""Both sides of a call on one time axis, for a recording.

Audio of a side follows its last audio; if it comes more than 100 ms after that has ended, the time between is
silence. What comes faster than it was spoken, as after a stall of the network, is moved into that silence, so
that its last sample is heard when it comes. The clock of a caller is not ours: a sample in a packet is left
out or doubled where the caller's audio is ahead or behind for seconds. The telephone system that paces itself
gets speech ahead of time and may be told to drop it. No I/O, no clock: times are arguments (monotonic s).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np

_MAX_JITTER_S: Final = 0.1  # of audio that is not a pause
_MAX_CALLER_AHEAD_S: Final = 0.25  # of the caller's audio after a stall; more would shift all that follows
_MAX_AGENT_AHEAD_S: Final = 5.0
_MAX_LATE_S: Final = 1.0  # after which audio is taken for missing
_MAX_PIECE_S: Final = 2.0  # that is taken at once
_MAX_STALL_S: Final = 6.0  # of a caller who was heard before
_DRIFT_S: Final = 0.005  # that is corrected
_DRIFT_WINDOW: Final = 250  # packets in which one comes without delay


class CallSide(IntEnum):
    """A side of a call, and its channel in the recording."""

    CALLER = 0
    AGENT = 1


@dataclass(slots=True)
class _Track:
    """Audio of one side that was not taken; positions are samples in it."""

    waiting: bytearray = field(default_factory=bytearray)
    silence: int = 0  # length of the last silence, which ends at ``silence_stop``
    silence_stop: int = 0
    ahead: int | None = None  # of the clock, the most in this window: the packet with the least delay
    packets: int = 0  # in this window
    was_heard: bool = False
    drift: int = 0  # samples ahead of the clock, to be corrected

    def take(self, samples: int) -> bytes:
        """Return and remove the first samples."""
        head = bytes(self.waiting[: 2 * samples])
        del self.waiting[: 2 * samples]
        self.silence_stop = max(0, self.silence_stop - samples)
        self.silence = min(self.silence, self.silence_stop)
        return head

    def pause(self, samples: int) -> None:
        """Add silence."""
        self.waiting += bytes(2 * samples)
        self.silence, self.silence_stop = samples, len(self.waiting) // 2

    def shorten_silence(self, samples: int) -> int:
        """Remove up to ``samples`` of the last silence; return how many."""
        removed = min(samples, self.silence)
        del self.waiting[2 * (self.silence_stop - removed) : 2 * self.silence_stop]
        self.silence -= removed
        self.silence_stop -= removed
        return removed

    def corrected(self, pcm: bytes, ahead: int, tolerance: int) -> bytes:
        """Return a packet with a sample more or less, if its side drifts; it is ``ahead`` of the clock."""
        self.ahead = ahead if self.ahead is None else max(self.ahead, ahead)
        self.packets += 1
        if self.packets == _DRIFT_WINDOW:
            self.drift = self.ahead if abs(self.ahead) > tolerance else 0
            self.ahead, self.packets = None, 0
        if self.drift > 0:
            self.drift -= 1
            return pcm[:-2]
        if self.drift < 0:
            self.drift += 1
            return pcm + pcm[-2:]
        return pcm


class CallTimeline:
    """Collects s16le mono of both sides at ``sample_rate`` (Hz); ``start``: time of the first sample."""

    def __init__(self, *, start: float, sample_rate: int) -> None:
        self._start = start
        self._sample_rate = sample_rate
        self._taken = 0  # samples of each side that ``take`` has returned
        self._tracks = {side: _Track() for side in CallSide}
        max_ahead_s = {CallSide.CALLER: _MAX_CALLER_AHEAD_S, CallSide.AGENT: _MAX_AGENT_AHEAD_S}
        self._max_ahead = {side: round(seconds * sample_rate) for side, seconds in max_ahead_s.items()}
        self._max_jitter = round(_MAX_JITTER_S * sample_rate)
        self._max_drift = round(_DRIFT_S * sample_rate)

    def add(self, side: CallSide, pcm: bytes, at: float) -> None:
        """Add audio that was sent or received at ``at``."""
        position, track = self._position(at), self._tracks[side]
        ahead = self._taken + len(track.waiting) // 2 - position
        if ahead < -self._max_jitter:
            track.pause(-ahead)
            ahead = 0
        elif side is CallSide.CALLER and ahead > self._max_drift:
            ahead -= track.shorten_silence(ahead)
        if ahead > self._max_ahead[side]:
            return
        if side is CallSide.CALLER:
            pcm = track.corrected(pcm, ahead, self._max_drift)
        track.waiting += pcm
        track.was_heard = True

    def cut(self, side: CallSide, at: float) -> None:
        """Drop audio of a side that would be heard after ``at``."""
        del self._tracks[side].waiting[2 * max(0, self._position(at) - self._taken) :]

    def settled(self, now: float) -> float:
        """Return the time up to which nothing more is expected, at ``now``.

        That is a second before, unless a caller who was heard has been silent for less than 6 s: after a
        stall of the network, the audio of that time comes at once.
        """
        track, until = self._tracks[CallSide.CALLER], now - _MAX_LATE_S
        heard_until = self._start + (self._taken + len(track.waiting) // 2) / self._sample_rate
        if track.was_heard and now - heard_until < _MAX_STALL_S:
            return min(until, heard_until)
        return until

    def pieces(self, until: float) -> Iterator[bytes]:
        """Yield what ``take`` would return, at most two seconds at once."""
        while pcm := self.take(min(until, self._start + self._taken / self._sample_rate + _MAX_PIECE_S)):
            yield pcm

    def take(self, until: float) -> bytes:
        """Return interleaved s16le of both sides up to ``until``, with silence where there is no audio."""
        samples = self._position(until) - self._taken
        if samples <= 0:
            return b""
        self._taken += samples
        both = np.zeros((samples, len(CallSide)), "<i2")
        for side, track in self._tracks.items():
            head = np.frombuffer(track.take(samples), "<i2")
            both[: len(head), side] = head
        return both.tobytes()

    def _position(self, at: float) -> int:
        return max(0, round((at - self._start) * self._sample_rate))
