"""Session timers: both sides of a call learn that the other one is gone, although it said nothing.

One side refreshes at half of the interval; the other ends the call if no refresh comes.

Source: RFC 4028.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .message import SipHeaders
from .timers import Timer, TimerQueue

MIN_INTERVAL_S: Final = 90
DEFAULT_INTERVAL_S: Final = 1800
_VALUE: Final = re.compile(r"(\d{1,9})\s*(?:;.*)?", re.DOTALL)


class IntervalTooSmall(Exception):
    """The peer asks for refreshes that are too frequent: 422 with Min-SE."""


@dataclass(frozen=True, slots=True)
class SessionInterval:
    """What both sides agreed on."""

    seconds: int
    refresher: str  # "uac" or "uas" of the request that agreed on it

    def header(self) -> tuple[str, str]:
        """Session-Expires."""
        return ("session-expires", f"{self.seconds};refresher={self.refresher}")


def parse_interval(headers: SipHeaders) -> SessionInterval | None:
    """Return what Session-Expires says; None: nothing, or nothing that can be read."""
    value = headers.get("session-expires")
    found = _VALUE.fullmatch(value)
    if found is None:
        return None
    refresher = re.search(r";\s*refresher\s*=\s*(uac|uas)\b", value, re.IGNORECASE)
    return SessionInterval(int(found[1]), refresher[1].lower() if refresher else "")


def accept_interval(headers: SipHeaders) -> SessionInterval | None:
    """Return the interval for the answer to an INVITE or UPDATE; None: the call has no timer.

    Raises IntervalTooSmall.
    """
    wanted = parse_interval(headers)
    if wanted is None:
        return None
    if wanted.seconds < MIN_INTERVAL_S:
        raise IntervalTooSmall
    if "timer" not in headers.tokens("supported"):
        return SessionInterval(wanted.seconds, "uas")
    return SessionInterval(wanted.seconds, wanted.refresher or "uac")


class SessionTimer:
    """The timer of one call.

    Args:
        refresh: sends a refresh.
        expire: ends the call.
    """

    def __init__(self, timers: TimerQueue, refresh: Callable[[], None], expire: Callable[[], None]) -> None:
        self.interval: SessionInterval | None = None
        self.we_refresh = False
        self._timers = timers
        self._refresh = refresh
        self._expire = expire
        self._timer: Timer | None = None

    def start(self, interval: SessionInterval | None, *, as_uac: bool) -> None:
        """Start again, with what the last INVITE or UPDATE agreed on. as_uac: it was ours."""
        self.stop()
        self.interval = interval
        if interval is None:
            return
        self.we_refresh = (interval.refresher == "uac") is as_uac
        if self.we_refresh:
            self._timer = self._timers.set(interval.seconds / 2, self._refresh)
        else:
            early_s = min(32, interval.seconds / 3)
            self._timer = self._timers.set(interval.seconds - early_s, self._expire)

    def stop(self) -> None:
        """Stop it: the call is over."""
        if self._timer is not None:
            self._timer.cancel()
