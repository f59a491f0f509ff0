"""One clock for all calls: wakes on an absolute grid and ticks every call once a packet period.

A period (20 ms) is divided into phases, and each call is assigned one, so that a hundred calls do not send at
the same instant. Wake-ups are computed from the grid's origin, never from the last wake-up, so that errors of
sleep do not add up. The clock is not the pacer: each call's ``Playout`` decides which packets are due.

    origin      +5 ms       +10 ms      +15 ms      +20 ms
    | phase 0   | phase 1   | phase 2   | phase 3   | phase 0   | ...

Source: aiortc mediastreams.py (pacing against start + n / rate, so that errors of sleep do not add up).
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

PERIOD_S = 0.020  # one packet
# With 4, 100 calls send in groups of 25 every 5 ms: no burst of packets, and few wake-ups.
_PHASES: Final = 4
_ROUNDING = 1e-6  # of a step: a wake-up exactly on a line counts as after it


class Ticked(Protocol):
    """A call, as the clock sees it."""

    def tick(self, now: float, /) -> None:
        """Send the packets due at ``now`` (monotonic s). Must not block."""

    def fail(self, error: Exception, /) -> None:
        """Log ``error``, which ``tick`` raised, and end the call. Must not raise."""


class Clock:
    """Ticks every call once a period, in the call's phase.

    After a stall each call is ticked once, at the current time; missed ticks are left out, and the
    ``Playout`` decides what is still sent. A call whose ``tick`` raises is removed and failed; others go on.
    """

    def __init__(
        self,
        *,
        phases: int = _PHASES,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._phases: list[list[Ticked]] = [[] for _ in range(phases)]
        self._step_s = PERIOD_S / phases
        self._origin = now()
        self._next_line = 0  # number of the next grid line; phase = number modulo phases
        self._occupied = asyncio.Event()

    @property
    def is_occupied(self) -> bool:
        """Whether it ticks calls now."""
        return self._occupied.is_set()

    def join(self, call: Ticked) -> float:
        """Add ``call`` to the phase with the fewest calls; return the monotonic second of its first tick."""
        phase = min(range(len(self._phases)), key=lambda index: len(self._phases[index]))
        self._phases[phase].append(call)
        self._occupied.set()
        line = self._lines_passed(self._now())
        return self._line_at(line + (phase - line) % len(self._phases))

    def leave(self, call: Ticked) -> None:
        """Remove ``call``; no error if it was not added."""
        for calls in self._phases:
            if call in calls:
                calls.remove(call)
        if not any(self._phases):
            self._occupied.clear()

    async def run(self) -> None:
        """Tick until cancelled; sleeps while there are no calls."""
        while True:
            await self._occupied.wait()
            await self._sleep(max(0.0, self._line_at(self._next_line) - self._now()))
            self.advance(self._now())

    def advance(self, now: float) -> None:
        """Tick the phases whose lines have passed at ``now``, each at most once."""
        passed = self._lines_passed(now)
        first = max(self._next_line, passed - len(self._phases))
        self._next_line = max(self._next_line, passed)
        for line in range(first, passed):
            self._tick_phase(line % len(self._phases), now)

    def _lines_passed(self, now: float) -> int:
        return math.floor((now - self._origin) / self._step_s + _ROUNDING) + 1

    def _line_at(self, number: int) -> float:
        return self._origin + number * self._step_s

    def _tick_phase(self, phase: int, now: float) -> None:
        for call in tuple(self._phases[phase]):
            try:
                call.tick(now)
            except Exception as error:  # boundary: one connection's fault must not reach the others
                self.leave(call)
                call.fail(error)
