"""The one clock of all calls: wakes on an absolute grid and lets every leg send what is due.

A period (20 ms) is cut into phases, and each leg sits in one, so that a hundred calls do not send at the same
instant. Wake-ups are computed from the grid's origin, never from the last wake-up: an error of sleep does not
add up. It is no pacer: which packets are due is each call's ``Playout`` to say.

    origin      +5 ms       +10 ms      +15 ms      +20 ms
    | phase 0   | phase 1   | phase 2   | phase 3   | phase 0   | ...

Source: aiortc mediastreams.py (pacing against start + n / rate, so that errors of sleep do not add up).
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from ...tts_engine.metrics import Metrics

PERIOD_S = 0.020  # one packet


class ClockedLeg(Protocol):
    """Something that sends packets in time with the clock."""

    def tick(self, now: float) -> int:
        """Send what is due at ``now`` (monotonic s); answers how many packets were sent. Must not block."""
        ...

    def fail(self, error: Exception) -> None:
        """Log ``error``, which ``tick`` raised, and end this leg. Must not raise."""
        ...


class Clock:
    """Ticks every leg once a period, each in the phase it sits in.

    After a stall each leg is ticked once, at the true time, and the missed ticks are left out: a ``Playout``
    decides what is still worth sending. A leg that raises leaves the clock and is told so; no other notices.
    """

    def __init__(
        self,
        *,
        metrics: Metrics,
        phases: int = 4,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._metrics = metrics
        self._now = now
        self._sleep = sleep
        self._phases: list[list[ClockedLeg]] = [[] for _ in range(phases)]
        self._step_s = PERIOD_S / phases
        self._origin = now()
        self._next_line = 0  # number of the grid line that comes next; phase = number modulo phases
        self._occupied = asyncio.Event()

    def join(self, leg: ClockedLeg) -> float:
        """Seat ``leg`` in the emptiest phase; answers the monotonic second of its first line."""
        phase = min(range(len(self._phases)), key=lambda index: len(self._phases[index]))
        self._phases[phase].append(leg)
        self._occupied.set()
        line = self._lines_passed(self._now())
        return self._line_at(line + (phase - line) % len(self._phases))

    def leave(self, leg: ClockedLeg) -> None:
        """Tick ``leg`` no more; a leg that is not seated is no error."""
        for legs in self._phases:
            if leg in legs:
                legs.remove(leg)
        if not any(self._phases):
            self._occupied.clear()

    async def run(self) -> None:
        """Tick until cancelled; sleeps through the time in which nobody is seated."""
        while True:
            await self._occupied.wait()
            await self._sleep(max(0.0, self._line_at(self._next_line) - self._now()))
            self.advance(self._now())

    def advance(self, now: float) -> None:
        """Tick the phases whose lines have passed at ``now``, each at most once."""
        passed = self._lines_passed(now)
        first = max(self._next_line, passed - len(self._phases))
        self._next_line = max(self._next_line, passed)
        sent = sum(self._tick_phase(line % len(self._phases), now) for line in range(first, passed))
        if sent:
            self._metrics.packets.inc(sent)

    def _lines_passed(self, now: float) -> int:
        return math.floor((now - self._origin) / self._step_s + 1e-6) + 1

    def _line_at(self, number: int) -> float:
        return self._origin + number * self._step_s

    def _tick_phase(self, phase: int, now: float) -> int:
        sent = 0
        for leg in tuple(self._phases[phase]):
            try:
                sent += leg.tick(now)
            except Exception as error:  # boundary: one connection's fault must not reach the others
                self.leave(leg)
                leg.fail(error)
        return sent
