"""Rate limits of a key: token buckets for requests and characters, and the number of open streams."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import RateLimited, RequestTooLarge
from .keys import KeyLimits

_MINUTE_S = 60.0
# A stream is a few seconds of speech, so a retry soon succeeds.
_STREAM_RETRY_AFTER_S = 1.0


class TokenBucket:
    """A token bucket with the capacity of one minute, refilled evenly. ``now`` is monotonic seconds."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.capacity = self._tokens = float(per_minute)
        self._refilled_at = now

    def seconds_until(self, amount: float, now: float) -> float:
        """Return the seconds until ``amount`` can be taken; infinity if it exceeds the capacity."""
        self._refill(now)
        if amount > self.capacity:
            return math.inf
        return max(0.0, amount - self._tokens) * _MINUTE_S / self.capacity

    def take(self, amount: float, now: float) -> None:
        """Take an amount for which ``seconds_until`` returned 0."""
        self._refill(now)
        self._tokens -= amount

    def _refill(self, now: float) -> None:
        self._tokens = min(
            self.capacity, self._tokens + (now - self._refilled_at) * self.capacity / _MINUTE_S
        )
        self._refilled_at = now


class KeyRateLimiter:
    """Enforces the limits of one key. Belongs to an event loop."""

    def __init__(self, limits: KeyLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.open_streams = 0
        self._clock = clock
        self._requests = _make_bucket(limits.requests_per_minute, clock())
        self._characters = _make_bucket(limits.characters_per_minute, clock())

    def charge_request(self) -> None:
        """Count one request; raise RateLimited, or RequestTooLarge if none is allowed."""
        self._charge(self._requests, 1, "requests")

    def charge_characters(self, characters: int) -> None:
        """Count characters to be spoken; raise RateLimited or RequestTooLarge."""
        self._charge(self._characters, characters, "characters")

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count an open stream while the block runs; raise RateLimited."""
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
        if wait_s == math.inf:
            raise RequestTooLarge(
                f"got {amount} {unit} at once; this key is allowed {bucket.capacity:.0f} {unit} a minute, "
                "so send fewer"
            )
        if wait_s:
            raise RateLimited(f"this key is allowed {bucket.capacity:.0f} {unit} a minute", wait_s)
        bucket.take(amount, now)


def _make_bucket(per_minute: int | None, now: float) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket(per_minute, now)
