"""The guard of outgoing calls: where they may go, how many at once, how many minutes a day."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from ......tts_engine.errors import BadRequest, Overloaded

_DAY_S: Final = 86_400.0
_RETRY_AFTER_S: Final = 30.0


class DestinationNotAllowed(BadRequest):
    """The settings allow no call to that number or address."""


@dataclass(slots=True)
class CostGuard:
    """Counts what calls cost; all of a server share one.

    Args:
        destinations: prefixes of numbers and patterns of addresses.
    """

    destinations: tuple[str, ...]
    max_calls: int
    minutes_per_day: int
    now: Callable[[], float] = time.monotonic
    _begun: dict[str, float] = field(default_factory=dict)  # answered or ringing calls, by id
    _past: deque[tuple[float, float]] = field(default_factory=deque)  # end and seconds

    def require_allowed(self, target: str) -> None:
        """Raise DestinationNotAllowed unless calls may go to a number, or to a ``sip:`` address."""
        if any(matches(pattern, target) for pattern in self.destinations):
            return
        allowed = ", ".join(self.destinations) or "none"
        raise DestinationNotAllowed(
            f"got {target!r}; destinations of calls are in sip.outgoing.destinations: {allowed}"
        )

    def begin(self, call_id: str) -> None:
        """Count a call that is placed; raises Overloaded."""
        if len(self._begun) >= self.max_calls:
            raise Overloaded(
                f"{self.max_calls} calls of the gateway over SIP are up, which is sip.outgoing.max_calls",
                reason="outgoing_calls",
                retry_after_s=_RETRY_AFTER_S,
            )
        if self.seconds() >= 60 * self.minutes_per_day:
            raise Overloaded(
                f"{self.minutes_per_day} minutes of calls over SIP were made in 24 hours, which is "
                "sip.outgoing.minutes_per_day",
                reason="outgoing_minutes",
                retry_after_s=_DAY_S / 24,
            )
        self._begun[call_id] = self.now()

    def answer(self, call_id: str) -> None:
        """Note that a call is answered: it costs from now on."""
        if call_id in self._begun:
            self._begun[call_id] = self.now()

    def end(self, call_id: str, *, was_answered: bool) -> None:
        """Count a call no more; no error if it was not."""
        begun = self._begun.pop(call_id, None)
        if begun is not None and was_answered:
            self._past.append((self.now(), self.now() - begun))

    def seconds(self) -> float:
        """Return the seconds of calls in the last 24 hours, those that are up included."""
        now = self.now()
        while self._past and self._past[0][0] < now - _DAY_S:
            self._past.popleft()
        return sum(seconds for _, seconds in self._past) + sum(now - begun for begun in self._begun.values())


def matches(pattern: str, target: str) -> bool:
    """Return whether a destination of the settings allows a target.

    A number matches a prefix; an address, ``sip:user@host``, matches a pattern of addresses only.
    """
    if pattern.startswith(("sip:", "sips:")):
        return fnmatchcase(target.partition(";")[0].lower(), pattern.lower())
    return not target.startswith(("sip:", "sips:")) and target.startswith(pattern)
