"""The gateway's end: the streams that one replica speaks, their commands in batches, and its events.

One batch is on its way at a time, so that commands arrive in order, and all that came up meanwhile is in the
next one: a busy link sends few, large batches. A replica is lost when its transport says so, and when it
sends or takes nothing for ``MAX_SILENCE_S``: three signs of life are missing then, while a busy machine may
withhold one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol, TypeVar

from ....tts_engine.errors import VivavoceError
from ....tts_engine.voices.recording import Recording
from ...background_tasks import cancel_and_wait
from .messages import (
    ReplicaDescription,
    ReplicaEvent,
    ReplicaLoad,
    ReplicaLost,
    ReplicaMetrics,
    ReportPlayout,
    StreamChunk,
    StreamCommand,
    StreamFailed,
    WarmVoices,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_SILENCE_S = 3.5  # of a replica, which sends something every second
_MAX_TIMER_DELAY_S: Final = 0.02  # of a loop that does not stand still
_HEARTBEAT_S = 1.0  # between two batches of a link with nothing to say
_REPORT_INTERVAL_S = 0.05  # reports of playout wait for as long, to share a batch
_MAX_REPORTED_S = 0.5  # of audio taken; then the report is sent at once


class ReplicaChannel(Protocol):
    """A transport to one replica."""

    async def send(self, commands: tuple[StreamCommand, ...]) -> None:
        """Have a batch carried out. Raises ReplicaLost."""

    def events(self) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
        """Attach, and yield batches of events until closed. Raises ReplicaLost."""

    async def encode(self, recordings: Sequence[Recording], transcript: str) -> bytes | VivavoceError:
        """As ``ReplicaHost.encode``. Raises ReplicaLost."""


class LinkedStream(Protocol):
    """What a link needs of a stream."""

    @property
    def number(self) -> int:
        """The gateway's number of the stream."""

    def receive(self, event: StreamChunk | StreamFailed) -> None:
        """Take an event of the replica."""


class ReplicaLink:
    """A replica and the streams that it speaks.

    on_load: called when the replica reports its load. on_metrics: when it reports metrics.
    on_lost: called once, if the replica is lost.

    Attributes:
        streams: open streams by their number.
        load: as the replica reported it last.
        is_leaving: the replica takes no new stream; it ends when its streams have ended.
        prompts: ids of the prompts that the replica has, as far as known.
    """

    def __init__(
        self,
        description: ReplicaDescription,
        channel: ReplicaChannel,
        on_load: "Callable[[ReplicaLink], None]",
        on_metrics: Callable[[ReplicaMetrics], None],
        on_lost: "Callable[[ReplicaLink, ReplicaLost], None]",
    ) -> None:
        self.replica = description.replica
        self.description = description
        self.streams: dict[int, LinkedStream] = {}
        self.is_leaving = False
        self.prompts: frozenset[str] = frozenset()
        self._channel = channel
        self._on_load, self._on_metrics, self._on_lost = on_load, on_metrics, on_lost
        self.load = description.load
        self._commands: list[StreamCommand] = []
        self._reports: dict[int, ReportPlayout] = {}
        self._attached = asyncio.Event()
        self._urgent = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"replica {self.replica}")

    def open(self, stream: LinkedStream) -> None:
        """Add a stream, whose commands follow."""
        self.streams[stream.number] = stream

    def send(self, command: StreamCommand) -> None:
        """Send a command with the next batch. Reports of playout are added up and may wait a little."""
        if not isinstance(command.action, ReportPlayout):
            self._commands.append(command)
            self._urgent.set()
            return
        if not self._reports:
            asyncio.get_running_loop().call_later(_REPORT_INTERVAL_S, self._urgent.set)
        earlier = self._reports.get(command.stream, ReportPlayout(0.0, None))
        report = command.action
        taken_s = earlier.taken_s + report.taken_s
        lead_s = earlier.lead_s if report.lead_s is None else report.lead_s
        self._reports[command.stream] = ReportPlayout(taken_s, lead_s)
        if taken_s >= _MAX_REPORTED_S:
            self._urgent.set()

    async def encode(self, recordings: Sequence[Recording], transcript: str, within_s: float) -> bytes:
        """The file of the prompt of a voice's recordings. Raises BadRequest, SynthesisFailed, ReplicaLost."""
        try:
            async with asyncio.timeout(within_s):
                answer = await self._channel.encode(recordings, transcript)
        except TimeoutError:
            raise ReplicaLost(f"replica {self.replica} did not encode within {within_s:g} s") from None
        if isinstance(answer, VivavoceError):
            raise answer
        return answer

    def forget(self, stream: LinkedStream) -> None:
        """Drop a stream that ended or was cancelled; what was sent before is still carried out."""
        self.streams.pop(stream.number, None)
        self._reports.pop(stream.number, None)

    async def aclose(self) -> None:
        """Send what waits, then leave the replica, which cancels the streams that are left."""
        if self._commands and self._attached.is_set() and not self._task.done():
            with suppress(ReplicaLost, TimeoutError):
                async with asyncio.timeout(MAX_SILENCE_S):
                    await self._channel.send(self._take_batch())
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        both = {asyncio.ensure_future(self._receive_events()), asyncio.ensure_future(self._send_commands())}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
            results = await asyncio.gather(*both, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, ReplicaLost):
                logger.error("the link to replica %s failed", self.replica, exc_info=error)
        lost = next((each for each in results if isinstance(each, ReplicaLost)), None)
        self._on_lost(self, lost or ReplicaLost(f"the link to replica {self.replica} failed"))

    async def _send_commands(self) -> None:
        await self._within(self._attached.wait())
        while True:
            await self._wait_for_commands()
            await self._within(self._channel.send(self._take_batch()))

    async def _within(self, waiting: Coroutine[Any, Any, object]) -> None:
        try:
            await finish_within(waiting, MAX_SILENCE_S)
        except TimeoutError:
            raise ReplicaLost(f"replica {self.replica} took nothing for {MAX_SILENCE_S:g} s") from None

    async def _wait_for_commands(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_HEARTBEAT_S):
                await self._urgent.wait()
        self._urgent.clear()

    def _take_batch(self) -> tuple[StreamCommand, ...]:
        reports = (StreamCommand(number, report) for number, report in self._reports.items())
        batch = (*self._commands, *reports)
        self._commands = []
        self._reports = {}
        return batch

    async def _receive_events(self) -> None:
        async with aclosing(self._channel.events()) as batches:
            while True:
                events = await self._next_batch(batches)
                self._attached.set()
                for event in events:
                    self._receive(event)

    async def _next_batch(
        self, batches: AsyncGenerator[tuple[ReplicaEvent, ...], None]
    ) -> tuple[ReplicaEvent, ...]:
        try:
            return await finish_within(batches.__anext__(), MAX_SILENCE_S)
        except StopAsyncIteration:
            raise ReplicaLost(f"replica {self.replica} ended the link") from None
        except TimeoutError:
            raise ReplicaLost(f"replica {self.replica} sent nothing for {MAX_SILENCE_S:g} s") from None

    def _receive(self, event: ReplicaEvent) -> None:
        if isinstance(event, ReplicaLoad):
            self.load = event
            self.is_leaving |= event.is_draining
            self._on_load(self)
        elif isinstance(event, ReplicaMetrics):
            self._on_metrics(event)
        elif isinstance(event, WarmVoices):
            self.prompts = (self.prompts - event.removed) | event.added
        elif (stream := self.streams.get(event.stream)) is not None:
            stream.receive(event)


async def finish_within(waiting: Coroutine[Any, Any, T], limit_s: float) -> T:
    """Await what a peer does, for at most ``limit_s`` in which this loop does not stand still.

    When the machine or a long callback stops the loop, the peer may have answered long ago: then the loop
    gets as long again to receive it. Raises TimeoutError.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(waiting)
    try:
        remaining_s = limit_s
        while remaining_s > _MAX_TIMER_DELAY_S:
            deadline = loop.time() + remaining_s
            await asyncio.wait({task}, timeout=remaining_s)
            if task.done():
                return task.result()
            remaining_s = loop.time() - deadline
        raise TimeoutError
    finally:
        if not task.done():
            await cancel_and_wait(task)
