"""Registry of the calls of this process, of every kind: admission, listing, attachment, and the end.

A connection that may become a call is admitted first (``admit``); admitted connections are what ``max_calls``
counts. When the caller is identified, its call is opened (``open``); ``remove`` ends either. At most one
program is attached to a call at a time, because the utterances of two would alternate; the page of a browser
call does not count as a program.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ...adapters.playback.background import Awaited
from ...tts_engine.errors import Overloaded
from ...tts_engine.records.spans import Span
from ..access.access_control import Grant
from ..operation.log_fields import set_log_fields
from ..web.errors import ResourceConflict, ResourceNotFound
from .call import Call
from .call_end import EndedCall, RecentlyEnded
from .call_options import NO_OWNER, CallOwner
from .outgoing.outgoing_calls import OutgoingCalls
from .pressure.call_pressure import CallPressure
from .pressure.processor_load import MAX_LOAD, ProcessorLoad
from .pressure.processor_time import ProcessorUse

if TYPE_CHECKING:
    from ...tts_engine.speech_engine import SpeechEngine

logger = logging.getLogger(__name__)

_END_TIMEOUT_S = 2.0  # for connections to end after they were told to
_SHUTTING_DOWN: Final = "shutting down"
_FINISHED: Final = "shutting down after its sentence"
_RETRY_AFTER_S = 5.0  # a call lasts minutes, but of a hundred calls one ends soon
GRANT_ENDED: Final = "its API key is not valid any more"  # why a call ends


class CallLeg(Protocol):
    """The connection that carries a call, as the registry sees it."""

    def end(self, reason: str) -> None:
        """Hang up at once; the leg removes itself from the registry."""


class CallUnknown(ResourceNotFound):
    """No call of that id is up."""


class CallAlreadyAttached(ResourceConflict):
    """Another program is attached to that call."""


@dataclass(slots=True, eq=False)
class ActiveCall:
    """A call that is up."""

    call: Call
    kind: str  # "audiosocket", "webrtc", ...
    peer: str  # network address of the caller
    opened_at: float  # Unix s
    opened_monotonic_s: float  # the same moment on the monotonic clock
    owner: CallOwner = NO_OWNER
    attached: bool = False  # whether a program is attached to it
    # Called when the recording that a key began is over.
    release_recording: Callable[[], None] = lambda: None


class CallRegistry:
    """Calls, oldest first, and the connections that are admitted and not calls yet.

    Args:
        engine: refuses calls when it is overloaded; its metrics count calls and refusals.
        max_calls: connections admitted at a time, for calls of every kind together.
        process_ids: of the processes that serve calls beside this one.
    """

    def __init__(
        self,
        engine: "SpeechEngine",
        *,
        max_calls: int,
        process_ids: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        self._engine = engine
        self._max_calls = max_calls
        self._calls_by_leg: dict[CallLeg, ActiveCall | None] = {}  # None: admitted, not opened
        self._releases: dict[CallLeg, Callable[[], None]] = {}  # of the keys that opened them
        self.pressure = CallPressure(
            ProcessorLoad(
                lambda: ProcessorUse.read((*process_ids(), *engine.process_ids)),
                lambda: engine.metrics.rendered_s,
                lambda: sum(active_call.call.speech.is_speaking for active_call in self),
            )
        )
        engine.metrics.load.set_function(lambda: self.load)
        self._ended: RecentlyEnded[EndedCall] = RecentlyEnded()
        self.outgoing = OutgoingCalls()  # that ways in of this server make
        self._draining = False
        self._changed = asyncio.Event()

    def __iter__(self) -> Iterator[ActiveCall]:
        return (active_call for active_call in tuple(self._calls_by_leg.values()) if active_call is not None)

    def __len__(self) -> int:
        return sum(active_call is not None for active_call in self._calls_by_leg.values())

    # Admission and the end

    def refusal(self) -> Overloaded | None:
        """Return why another call would be refused; None if it would be admitted."""
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
        return self.pressure.refusal(time.monotonic()) or self._engine.refusal()

    @property
    def load(self) -> float:
        """The part of the capacity that is in use, 0 to 1; 1: another call would be refused."""
        if self.refusal() is not None:
            return 1.0
        shares = (
            len(self._calls_by_leg) / self._max_calls,
            self._engine.active_streams / max(1, self._engine.max_streams),
            self.pressure.processor.share(0, time.monotonic()) / MAX_LOAD,
        )
        return min(1.0, max(shares))

    def require_place(self, *, peer: str) -> None:
        """Raise Overloaded, which is counted and logged here, if another call would be refused."""
        refusal = self.refusal()
        if refusal is not None:
            self.report_refusal(refusal, peer=peer)
            raise refusal

    def admit(self, leg: CallLeg, *, peer: str, grant: Grant | None = None) -> None:
        """Admit a connection; raises Overloaded as ``require_place`` does.

        grant: of the key that opens the call, which counts it and ends it; raises RateLimited then.
        """
        self.require_place(peer=peer)
        if grant is not None:
            self._releases[leg] = grant.open_call(partial(leg.end, GRANT_ENDED))
        self._calls_by_leg[leg] = None

    def report_refusal(self, refusal: Overloaded, *, peer: str) -> None:
        """Count and log that a connection was refused."""
        self._engine.metrics.refusals.labels(refusal.reason).inc()
        logger.warning("Call from %s refused: %s", peer, refusal)

    def replace(self, leg: CallLeg, successor: CallLeg) -> None:
        """Let ``successor`` take the place of an admitted connection."""
        self._calls_by_leg[successor] = self._calls_by_leg.pop(leg)

    def open(
        self, leg: CallLeg, call: Call, *, kind: str, peer: str, owner: CallOwner = NO_OWNER
    ) -> ActiveCall:
        """Open the call of an admitted connection."""
        active_call = ActiveCall(call, kind, peer, time.time(), time.monotonic(), owner)
        self._calls_by_leg[leg] = active_call
        self._engine.metrics.active_calls.inc()
        set_log_fields(call=call.call_id, trace=call.call_id)
        logger.info("Call %s opened from %s", call.call_id, peer)
        self._changed.set()
        return active_call

    def remove(self, leg: CallLeg, reason: str) -> None:
        """Remove a connection and end its call; no error if it was not admitted."""
        active_call = self._calls_by_leg.pop(leg, None)
        if (release := self._releases.pop(leg, None)) is not None:
            release()
        self._changed.set()
        if active_call is not None:
            active_call.release_recording()
            active_call.call.on_closed()
            self._ended.add(
                active_call.call.call_id, EndedCall(active_call.call.end.result, active_call.owner)
            )
            self._engine.metrics.active_calls.dec()
            _log_numbers(active_call, reason)
            if (on_span := self._engine.metrics.on_span) is not None:
                on_span(_span_of(active_call, reason))

    def refuse_calls(self) -> None:
        """Admit no more calls; those that are up go on."""
        self._draining = True

    async def finish_calls(self, within_s: float) -> None:
        """Admit no more calls, let every call finish its sentence, and end the rest after ``within_s``."""
        self.refuse_calls()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(
                    *(active_call.call.end.finish(_FINISHED) for active_call in self),
                    return_exceptions=True,
                )
        for leg in tuple(self._calls_by_leg):
            leg.end(_SHUTTING_DOWN)
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_TIMEOUT_S):
                while self._calls_by_leg:
                    self._changed.clear()
                    await self._changed.wait()

    # Lookup and attachment

    def get(self, call_id: str) -> ActiveCall:
        """Return the call of that id, the newest if an id was used again; raises CallUnknown."""
        active_call = next(
            (active_call for active_call in reversed(tuple(self)) if active_call.call.call_id == call_id),
            None,
        )
        if active_call is None:
            raise CallUnknown(f"no call {call_id!r} is up")
        return active_call

    def ended(self, call_id: str) -> EndedCall | None:
        """Return a call that has ended within the last minutes; None if there was none of that id."""
        return self._ended.get(call_id)

    async def next_unattached(
        self, is_wanted: Callable[[ActiveCall], bool] = lambda active_call: True
    ) -> ActiveCall:
        """Return the oldest call without a program that is wanted; wait until there is one."""
        while True:
            unattached = next((one for one in self if not one.attached and is_wanted(one)), None)
            if unattached is not None:
                return unattached
            self._changed.clear()
            await self._changed.wait()

    @contextmanager
    def attach(self, active_call: ActiveCall) -> Iterator[None]:
        """Attach a program to a call for the duration of the context; raises CallAlreadyAttached."""
        if active_call.attached:
            raise CallAlreadyAttached(
                f"another program is attached to call {active_call.call.call_id!r}; one can be at a time"
            )
        active_call.attached = True
        try:
            with active_call.call.speech.awaiting(Awaited.PROGRAM):
                yield
        finally:
            active_call.attached = False
            self._changed.set()


def _log_numbers(active_call: ActiveCall, reason: str) -> None:
    report = active_call.call.media.report
    stats = report.stats
    logger.info(
        "Call %s closed after %.1f s, %s: %d packets, %d late, %d skipped, %d dropped, %d underruns, "
        "%.0f ms discarded",
        active_call.call.call_id,
        time.monotonic() - active_call.opened_monotonic_s,
        reason,
        stats.packets,
        stats.late_packets,
        stats.skipped_packets,
        report.dropped,
        stats.underruns,
        active_call.call.speech.discarded_ms,
        extra={"call": active_call.call.call_id, "trace": active_call.call.call_id},
    )


def _span_of(active_call: ActiveCall, reason: str) -> Span:
    call, stats = active_call.call, active_call.call.media.report.stats
    return Span(
        f"call {active_call.kind}",
        call.call_id,
        active_call.opened_monotonic_s,
        time.monotonic(),
        id=call.speech.span_id,
        attributes={"end": reason, "packets": stats.packets, "underruns": stats.underruns},
    )
