"""Bookkeeping that legs of every kind share: their call, their tasks, and the end of all legs of a server.

A leg (``registry.CallLeg``) is a connection that carries a call: AudioSocket, WebRTC and others. It has one
``LegCall`` and belongs to one ``LegGroup``. No protocol is known here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from ....adapters.media.call_media import CallMedia
from ..agents.agent import Agent
from ..call import Call
from ..call_options import NO_OWNER, UNKNOWN_CALLER, Caller, CallOwner, CallSettings
from ..registry import ActiveCall, CallLeg
from ..transfers import CallTransfers
from ..ways_in.way_in import CallServices

logger = logging.getLogger(__name__)

AnyLeg = TypeVar("AnyLeg", bound=CallLeg)


class LegGroup(Generic[AnyLeg]):
    """The legs of one listener and their tasks. Every task is awaited by ``aclose``."""

    def __init__(self) -> None:
        self.legs: set[AnyLeg] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, leg: AnyLeg) -> None:
        """Add a leg when its connection begins."""
        self.legs.add(leg)
        self._idle.clear()

    def remove(self, leg: AnyLeg) -> None:
        """Remove a leg when its connection is gone; no error if it was not added."""
        self.legs.discard(leg)
        self._update_idle()

    def start_task(self, awaitable: Awaitable[None]) -> asyncio.Task[None]:
        """Run ``awaitable`` as a task of the group."""
        task = asyncio.ensure_future(awaitable)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._on_task_done)
        return task

    async def wait_idle(self) -> None:
        """Wait until there are no legs and no tasks."""
        await self._idle.wait()

    async def aclose(self) -> None:
        """End every leg, and wait until the group is idle."""
        for leg in tuple(self.legs):
            leg.end("shutting down")
        await self._idle.wait()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._update_idle()

    def _update_idle(self) -> None:
        if not self.legs and not self._tasks:
            self._idle.set()


class LegCall:
    """The call of one leg, from its opening to the end, and the tasks that run on it.

    Boundary: an exception in ``guard`` or in a task fails this leg and no other.

    Args:
        kind: of the leg, as ``ActiveCall.kind``.
        peer: network address of the caller.
        caller: who is calling.
        transfers: of the caller; None: a call of this kind cannot be transferred.
        owner: whose the call is.
    """

    def __init__(
        self,
        leg: AnyLeg,
        group: LegGroup[AnyLeg],
        services: CallServices,
        settings: CallSettings,
        *,
        kind: str,
        peer: str,
        caller: Caller = UNKNOWN_CALLER,
        transfers: CallTransfers | None = None,
        owner: CallOwner = NO_OWNER,
    ) -> None:
        self.call: Call | None = None  # from ``open`` on
        self.is_over = False
        self._leg: CallLeg = leg
        self._start_task = group.start_task
        self._services = services
        self._settings = settings
        self._kind = kind
        self._peer = peer
        self._caller = caller
        self._transfers = transfers
        self._owner = owner
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, call_id: str, media: CallMedia, caller: Caller | None = None) -> ActiveCall:
        """Open the call of the leg, which must be admitted; ``caller`` replaces the one known before."""
        services, settings = self._services, self._settings
        self.call = Call(
            call_id,
            engine=services.engine,
            media=media,
            close=self._leg.end,
            transfers=self._transfers,
            caller=caller or self._caller,
            recordings=services.recordings,
            sounds=services.sounds,
            speech=settings.speech,
            lead_s=settings.lead_s,
            linger_s=settings.linger_s,
            pressure=services.registry.pressure,
        )
        self.call.listening.caller_speech_action = settings.caller_speech_action
        active_call = services.registry.open(
            self._leg, self.call, kind=self._kind, peer=self._peer, owner=self._owner
        )
        if services.recordings is not None and services.recordings.records_all:
            self.call.recording.begin()
        return active_call

    def start_task(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run a task on the call; it is cancelled when the call ends, and fails the leg if it raises."""
        self._tasks.append(self._start_task(self._run_guarded(run)))

    def close(self, reason: str) -> None:
        """End the call and its tasks because the connection is gone. Twice is no error."""
        if self.is_over:
            return
        self.is_over = True
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        if self.call is None:
            logger.info("Connection from %s ended without a call: %s", self._peer, reason)
        self._services.registry.remove(self._leg, reason)
        del self._leg  # else both would wait for the garbage collector

    def fail(self, error: Exception) -> None:
        """Log a fault of the server and end the leg."""
        name = f"from {self._peer}" if self.call is None else self.call.call_id
        logger.error("Call %s failed", name, exc_info=error)
        if not self.is_over:
            self._leg.end("internal error")

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Fail the leg if the context raises."""
        try:
            yield
        except Exception as error:  # boundary
            self.fail(error)

    async def _run_guarded(self, run: Callable[[], Awaitable[None]]) -> None:
        with self.guard():
            await run()  # called here: a coroutine of a task cancelled before it starts is never awaited


async def run_agent(call: Call, agent: Agent) -> None:
    """Run an agent on a phone call, and hang up when it has nothing more to say."""
    try:
        await agent.run(call)
        await call.end.finish()
    finally:
        call.end.hang_up("its agent returned")
