"""Limits of a key: token buckets for requests and characters, and what may be open at once."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import RateLimited, RequestTooLarge
from .keys import KeyLimits

_MINUTE_S = 60.0
# A stream is a few seconds of speech, so a retry soon succeeds; a call or a socket lasts minutes.
_STREAM_RETRY_AFTER_S = 1.0
_CALL_RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Charged:
    """What was charged to a key."""

    requests: int = 0
    characters: int = 0


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

    def drain(self, amount: float, now: float) -> None:
        """Take an amount that was spent elsewhere, at most what is left."""
        self._refill(now)
        self._tokens -= min(amount, max(0.0, self._tokens))

    def _refill(self, now: float) -> None:
        self._tokens = min(
            self.capacity, self._tokens + (now - self._refilled_at) * self.capacity / _MINUTE_S
        )
        self._refilled_at = now


class OpenCount:
    """How many of one kind a key has open.

    Args:
        noun: of the kind, for the refusal.
        retry_after_s: after which one is likely to have ended.
    """

    def __init__(self, noun: str, retry_after_s: float) -> None:
        self.here = 0
        self.elsewhere = 0  # at other gateways, when they were last heard of
        self._noun = noun
        self._retry_after_s = retry_after_s

    def add(self, max_open: int | None) -> None:
        """Count one more, which ``remove`` takes back; raise RateLimited if there are ``max_open``."""
        open_now = self.here + self.elsewhere
        if max_open is not None and open_now >= max_open:
            raise RateLimited(
                f"{open_now} {self._noun} of this key are open; {max_open} are allowed", self._retry_after_s
            )
        self.here += 1

    def remove(self) -> None:
        """Count one less."""
        self.here -= 1


class KeyRateLimiter:
    """Enforces the limits of one key. Belongs to an event loop."""

    def __init__(self, limits: KeyLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.streams = OpenCount("streams", _STREAM_RETRY_AFTER_S)
        self.calls = OpenCount("calls", _CALL_RETRY_AFTER_S)  # that the key opened
        self.programs = OpenCount("programs on calls", _CALL_RETRY_AFTER_S)
        self.sockets = OpenCount("sockets", _CALL_RETRY_AFTER_S)
        self._unreported = Charged()  # to other gateways
        self._clock = clock
        self.set_limits(limits)

    @property
    def open_counts(self) -> tuple[OpenCount, ...]:
        """What is counted of all gateways."""
        return self.streams, self.calls, self.programs, self.sockets

    def set_limits(self, limits: KeyLimits) -> None:
        """Enforce other limits from now on; what is open stays counted."""
        self.limits, now = limits, self._clock()
        self._requests = _make_bucket(limits.requests_per_minute, now)
        self._characters = _make_bucket(limits.characters_per_minute, now)

    def charge_request(self) -> None:
        """Count one request; raise RateLimited, or RequestTooLarge if none is allowed."""
        self._charge(self._requests, 1, "requests")
        self.restore_unreported(Charged(requests=1))

    def charge_characters(self, characters: int) -> None:
        """Count characters to be spoken; raise RateLimited or RequestTooLarge."""
        self._charge(self._characters, characters, "characters")
        self.restore_unreported(Charged(characters=characters))

    def take_unreported(self) -> Charged:
        """What was charged since the last call, for other gateways."""
        charged, self._unreported = self._unreported, Charged()
        return charged

    def restore_unreported(self, charged: Charged) -> None:
        """Add to what ``take_unreported`` returns."""
        before = self._unreported
        self._unreported = Charged(before.requests + charged.requests, before.characters + charged.characters)

    def charge_elsewhere(self, charged: Charged) -> None:
        """Count what other gateways charged to the key."""
        now = self._clock()
        if self._requests is not None:
            self._requests.drain(charged.requests, now)
        if self._characters is not None:
            self._characters.drain(charged.characters, now)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count an open stream while the block runs; raise RateLimited."""
        self.streams.add(self.limits.streams)
        try:
            yield
        finally:
            self.streams.remove()

    @contextmanager
    def program(self) -> Iterator[None]:
        """Count a program on a call, or one that waits, while the block runs; raise RateLimited."""
        # Each may speak one utterance at a time.
        self.programs.add(self.limits.streams if self.limits.max_sockets is None else None)
        try:
            yield
        finally:
            self.programs.remove()

    def add_call(self) -> None:
        """Count a call that the key opened, until ``calls.remove``; raise RateLimited."""
        max_calls = self.limits.max_calls
        self.calls.add(self.limits.streams if max_calls is None else max_calls)

    def add_socket(self) -> None:
        """Count a WebSocket, until ``sockets.remove``; raise RateLimited."""
        self.sockets.add(self.limits.max_sockets)

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
