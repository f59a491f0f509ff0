"""Results of calls, which the dial plan of a telephone system reads after a call."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .caller import CallOwner

_KEPT_S: Final = 600.0  # after the end of the call
_MAX_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a program decided on a call."""

    value: str = ""
    transfer_to: str = ""  # number or extension; "": no transfer


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended lately."""

    result: CallResult
    owner: CallOwner


class CallResults:
    """Results of calls that ended within the last 10 minutes, of 10,000 calls at most."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        # By call id, with when each expires; oldest first.
        self._kept: dict[str, tuple[float, EndedCall]] = {}

    def add(self, call_id: str, ended: EndedCall) -> None:
        """Keep the result of a call that ended; an earlier one of the same id is forgotten."""
        now = self._now()
        self._kept.pop(call_id, None)
        self._kept[call_id] = (now + _KEPT_S, ended)
        while len(self._kept) > _MAX_KEPT or next(iter(self._kept.values()))[0] <= now:
            del self._kept[next(iter(self._kept))]

    def get(self, call_id: str) -> EndedCall | None:
        """Return the result of a call; None if no such call has ended lately."""
        expires_at, ended = self._kept.get(call_id, (self._now(), None))
        return ended if expires_at > self._now() else None
