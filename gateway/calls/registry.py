"""The calls of this process, whatever carries them: admitted, counted, listed, held and ended in one place.

A connection that may become a call takes a place first (``admit``), and places are what ``max_calls`` counts;
when its caller is there, its call is opened on it (``open``), and the end of either is one and the same
(``leave``). A call is held by at most one program at a time: two that write into one ear would interleave
their words.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...tts_engine.errors import BadRequest, Overloaded
from .call import Call

if TYPE_CHECKING:
    from ...tts_engine.engine import Engine

logger = logging.getLogger(__name__)

_RETRY_AFTER_S = 5.0  # calls last minutes, but of a hundred one ends soon


class CallUnknown(BadRequest):
    """No call of that id is up."""


class CallAlreadyAttached(BadRequest):
    """Another program holds that call."""


class CallLeg(Protocol):
    """A connection that is a call or may become one."""

    @property
    def dropped(self) -> int:
        """Packets that its peer did not take in time."""

    def end(self, reason: str) -> None:
        """Hang up at once; the leg leaves the registry."""


@dataclass(slots=True, eq=False)
class ActiveCall:
    """A call that is up. ``kind``: "audiosocket", "webrtc", ...; ``opened_at``: Unix seconds, the same as
    ``since`` on the monotonic clock.
    """

    call: Call
    kind: str
    peer: str
    opened_at: float
    opened_monotonic_s: float
    attached: bool = False


class CallRegistry:
    """Lines, oldest first, and the places of those that are not calls yet.

    Args:
        engine: refuses calls when it is overloaded, and keeps the numbers.
        max_calls: places, for calls of every kind together.
    """

    def __init__(self, engine: "Engine", *, max_calls: int) -> None:
        self._engine = engine
        self._max_calls = max_calls
        self._calls_by_leg: dict[CallLeg, ActiveCall | None] = {}
        self._draining = False
        self._changed = asyncio.Event()

    def __iter__(self) -> Iterator[ActiveCall]:
        return (active_call for active_call in tuple(self._calls_by_leg.values()) if active_call is not None)

    def __len__(self) -> int:
        return sum(active_call is not None for active_call in self._calls_by_leg.values())

    # Coming and going

    def refusal(self) -> Overloaded | None:
        """Why one more call does not fit; None when it does."""
        if self._draining:
            return Overloaded(
                "the server is shutting down", reason="shutting_down", retry_after_s=_RETRY_AFTER_S
            )
        if len(self._calls_by_leg) >= self._max_calls:
            return Overloaded(
                f"{self._max_calls} calls are up, which is max_calls",
                reason="calls",
                retry_after_s=_RETRY_AFTER_S,
            )
        return self._engine.refusal()

    def admit(self, leg: CallLeg, *, peer: str) -> None:
        """Give a connection a place; raises Overloaded, which is counted and logged here."""
        refusal = self.refusal()
        if refusal is not None:
            self._engine.metrics.refusals.labels(refusal.reason).inc()
            logger.warning("Call from %s refused: %s", peer, refusal)
            raise refusal
        self._calls_by_leg[leg] = None

    def open(self, leg: CallLeg, call: Call, *, kind: str, peer: str) -> ActiveCall:
        """The caller of an admitted connection is there: its call is up."""
        active_call = self._calls_by_leg[leg] = ActiveCall(call, kind, peer, time.time(), time.monotonic())
        self._engine.metrics.active_calls.inc()
        logger.info("Call %s opened from %s", call.call_id, peer)
        self._changed.set()
        return active_call

    def remove(self, leg: CallLeg, reason: str) -> None:
        """A connection is over, and its call with it; one that has no place is no error."""
        active_call = self._calls_by_leg.pop(leg, None)
        if active_call is not None:
            active_call.call.on_closed()
            self._engine.metrics.active_calls.dec()
            _log_numbers(active_call, leg, reason)

    def refuse_calls(self) -> None:
        """Take no new calls from now on; those that are up go on."""
        self._draining = True

    async def finish_calls(self, within_s: float) -> None:
        """Take no new calls, let every call finish its sentence, and end what is left after ``within_s``."""
        self.refuse_calls()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(
                    *(active_call.call.finish() for active_call in self), return_exceptions=True
                )
        for leg in tuple(self._calls_by_leg):
            leg.end("shutting down")

    # Finding and holding

    def get(self, call_id: str) -> ActiveCall:
        """The line of that call, the newest if its caller used the id again; raises CallUnknown."""
        active_call = next(
            (active_call for active_call in reversed(tuple(self)) if active_call.call.call_id == call_id),
            None,
        )
        if active_call is None:
            raise CallUnknown(f"no call {call_id!r} is up")
        return active_call

    async def next_unattached(self) -> ActiveCall:
        """The oldest call that nobody holds; waits for one."""
        while True:
            unattached = next((active_call for active_call in self if not active_call.attached), None)
            if unattached is not None:
                return unattached
            self._changed.clear()
            await self._changed.wait()

    @contextmanager
    def attach(self, active_call: ActiveCall) -> Iterator[None]:
        """Hold a call for oneself; raises CallAlreadyAttached."""
        if active_call.attached:
            raise CallAlreadyAttached(f"call {active_call.call.call_id!r} is held by another program")
        active_call.attached = True
        try:
            yield
        finally:
            active_call.attached = False
            self._changed.set()


def _log_numbers(active_call: ActiveCall, leg: CallLeg, reason: str) -> None:
    stats = active_call.call.playout.stats
    logger.info(
        "Call %s closed after %.1f s, %s: %d packets, %d late, %d skipped, %d dropped, %d underruns, "
        "%.0f ms discarded",
        active_call.call.call_id,
        time.monotonic() - active_call.opened_monotonic_s,
        reason,
        stats.packets,
        stats.late_packets,
        stats.skipped_packets,
        leg.dropped,
        stats.underruns,
        active_call.call.discarded_ms,
    )
