"""Bound on what the peer of a call may send: control messages, other messages, seconds of audio.

Each is a token bucket, full at first. It fills faster than an ordinary call empties it, and holds what comes
at once after a stall of half a minute, so only a peer that goes on sending too fast finds it empty. No clock:
times are monotonic seconds.

Source: the token bucket of RFC 2697.
"""

from collections.abc import Callable
from typing import Final

CONTROL_PER_S: Final = 20.0  # a call has five marks a second while it speaks, and keys
CONTROL_BURST: Final = 400.0
MESSAGES_PER_S: Final = 150.0  # packets of 10 ms, or of 20 ms in both directions, half as fast again
MESSAGES_BURST: Final = 3_000.0
AUDIO_SPEED: Final = 1.5  # seconds of audio a second
AUDIO_BURST_S: Final = 30.0


class _TokenBucket:
    __slots__ = ("_burst", "_rate", "_taken_at", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._tokens, self._taken_at = rate, burst, burst, now

    def take(self, amount: float, now: float) -> bool:
        """Take tokens if there are as many; return whether there were."""
        self._tokens = min(self._burst, self._tokens + (now - self._taken_at) * self._rate)
        self._taken_at = now
        if amount > self._tokens:
            return False
        self._tokens -= amount
        return True


class CallRateLimit:
    """What the peer of one call may send; methods raise an error when it sends more, which is not counted.

    Args:
        make_error: makes the error from its text: the ``ProtocolError`` of the peer's protocol.
    """

    def __init__(self, now: float, make_error: Callable[[str], Exception]) -> None:
        self._make_error = make_error
        self._control = _TokenBucket(CONTROL_PER_S, CONTROL_BURST, now)
        self._messages = _TokenBucket(MESSAGES_PER_S, MESSAGES_BURST, now)
        self._audio = _TokenBucket(AUDIO_SPEED, AUDIO_BURST_S, now)

    def take_control(self, now: float) -> None:
        """Count an event that is not audio."""
        if not self._control.take(1, now):
            raise self._make_error(
                f"got more than {CONTROL_BURST:g} control messages at once and {CONTROL_PER_S:g} a second"
            )

    def take_audio(self, seconds: float, now: float) -> None:
        """Count a message of audio, or with 0 s one that means nothing here."""
        if not self._messages.take(1, now):
            raise self._make_error(
                f"got more than {MESSAGES_BURST:g} messages at once and {MESSAGES_PER_S:g} a second"
            )
        if not self._audio.take(seconds, now):
            raise self._make_error(
                f"got more than {AUDIO_BURST_S:g} s of audio at once and {AUDIO_SPEED:g} s a second"
            )
