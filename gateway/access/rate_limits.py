"""How much a key has used lately: token buckets that refill with time, and streams that are open now."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import RateLimited
from .keys import KeyLimits

_MINUTE_S = 60.0
_STREAM_RETRY_AFTER_S = 1.0


class TokenBucket:
    """Holds a minute's worth, refills evenly. ``now`` is monotonic seconds."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.capacity = self._tokens = float(per_minute)
        self._refilled_at = now

    def seconds_until(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken; 0 when it may now, infinity when it never fits."""
        self._refill(now)
        if amount > self.capacity:
            return math.inf
        return max(0.0, amount - self._tokens) * _MINUTE_S / self.capacity

    def take(self, amount: float, now: float) -> None:
        """Take what ``wait_s`` answered 0 for."""
        self._refill(now)
        self._tokens -= amount

    def _refill(self, now: float) -> None:
        self._tokens = min(
            self.capacity, self._tokens + (now - self._refilled_at) * self.capacity / _MINUTE_S
        )
        self._refilled_at = now


class KeyRateLimiter:
    """What one key has left; belongs to one event loop."""

    def __init__(self, limits: KeyLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.open_streams = 0
        self._clock = clock
        self._requests = _make_bucket(limits.requests_per_minute, clock())
        self._characters = _make_bucket(limits.characters_per_minute, clock())

    def charge_request(self) -> None:
        """Count one request; raises RateLimited."""
        self._charge(self._requests, 1, "requests")

    def charge_characters(self, characters: int) -> None:
        """Count text to be spoken; raises RateLimited."""
        self._charge(self._characters, characters, "characters")

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Hold one of the streams that may be open at once; raises RateLimited."""
        max_streams = self.limits.streams
        if max_streams is not None and self.open_streams >= max_streams:
            raise RateLimited(
                f"{self.open_streams} streams of this key are open; {max_streams} are allowed",
                _STREAM_RETRY_AFTER_S,
            )
        self.open_streams += 1
        try:
            yield
        finally:
            self.open_streams -= 1

    def _charge(self, bucket: TokenBucket | None, amount: int, unit: str) -> None:
        if bucket is None:
            return
        now = self._clock()
        wait_s = bucket.seconds_until(amount, now)
        if wait_s:
            raise RateLimited(
                f"this key is allowed {bucket.capacity:.0f} {unit} a minute", min(wait_s, _MINUTE_S)
            )
        bucket.take(amount, now)


def _make_bucket(per_minute: int | None, now: float) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket(per_minute, now)
