"""Both sides of a call on one time axis, for a recording.

Audio of a side follows its last audio; if it comes more than 100 ms after that has ended, the time between is
silence. The telephone system that paces itself gets speech ahead of time and may be told to drop it. No I/O,
no clock: times are arguments (monotonic seconds).
"""

from enum import IntEnum
from typing import Final

import numpy as np

_MAX_JITTER_S: Final = 0.1  # of audio that is not a pause
_MAX_CALLER_AHEAD_S: Final = 0.25  # of the caller's audio after a stall; more would shift all that follows
_MAX_AGENT_AHEAD_S: Final = 5.0


class CallSide(IntEnum):
    """A side of a call, and its channel in the recording."""

    CALLER = 0
    AGENT = 1


class CallTimeline:
    """Collects s16le mono of both sides at ``sample_rate`` (Hz); ``start``: time of the first sample."""

    def __init__(self, *, start: float, sample_rate: int) -> None:
        self._start = start
        self._sample_rate = sample_rate
        self._taken = 0  # samples of each side that ``take`` has returned
        self._sides = {side: bytearray() for side in CallSide}
        max_ahead_s = {CallSide.CALLER: _MAX_CALLER_AHEAD_S, CallSide.AGENT: _MAX_AGENT_AHEAD_S}
        self._max_ahead = {side: round(seconds * sample_rate) for side, seconds in max_ahead_s.items()}
        self._max_jitter = round(_MAX_JITTER_S * sample_rate)

    def add(self, side: CallSide, pcm: bytes, at: float) -> None:
        """Add audio that was sent or received at ``at``."""
        position, waiting = self._position(at), self._sides[side]
        end = self._taken + len(waiting) // 2
        if position > end + self._max_jitter:
            waiting += bytes(2 * (position - end))
            end = position
        if end - position <= self._max_ahead[side]:
            waiting += pcm

    def cut(self, side: CallSide, at: float) -> None:
        """Drop audio of a side that would be heard after ``at``."""
        del self._sides[side][2 * max(0, self._position(at) - self._taken) :]

    def take(self, until: float) -> bytes:
        """Return interleaved s16le of both sides up to ``until``, with silence where there is no audio."""
        samples = self._position(until) - self._taken
        if samples <= 0:
            return b""
        self._taken += samples
        both = np.zeros((samples, len(CallSide)), "<i2")
        for side, waiting in self._sides.items():
            head = np.frombuffer(bytes(waiting[: 2 * samples]), "<i2")
            both[: len(head), side] = head
            del waiting[: 2 * samples]
        return both.tobytes()

    def _position(self, at: float) -> int:
        return max(0, round((at - self._start) * self._sample_rate))
