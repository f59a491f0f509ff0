"""A WebSocket on which DashScope's tasks are spoken, one at a time. DashScope's API and PAI's share it.

One coroutine reads the socket, so a client that disconnects is noticed at once; a second one speaks while a
task is open. The engine's slot is free before task-finished is sent, because a pooled client sends its next
run-task within 1 ms.
"""

import asyncio
import functools
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, assert_never

from fastapi import WebSocket

from .....adapters.dashscope.connection import (
    DashScopeConnection,
    DashScopeProtocolError,
    DashScopeTimeouts,
    FrameCodec,
)
from .....adapters.dashscope.events import (
    CancelTask,
    ContinueTask,
    DashScopeErrorCode,
    DashScopeEvent,
    DashScopeIdleTimeout,
    DashScopeServerEvent,
    DashScopeTaskInput,
    FinishTask,
    FlushTask,
    RunTask,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from .....tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ....access.access_control import Grant
from ....access.errors import GrantEnded
from ....web.request_log import RequestRecord
from ....web.websocket import CLOSE_NORMAL
from ...shell.speech import EncodedStream
from ..websocket_connection import WebSocketConnection
from .errors import DASHSCOPE_ERRORS

ParametersT = TypeVar("ParametersT")  # of run-task
TaskT = TypeVar("TaskT", bound="SpeechTask[Any]")


class SpeechTask(ABC, Generic[ParametersT]):
    """An open task: what the reading and the speaking coroutine share."""

    def __init__(self, run_task: RunTask[ParametersT], grant: Grant) -> None:
        self.run_task = run_task
        self.grant = grant
        self.characters = 0  # charged so far
        self.stream: EncodedStream
        self.record: RequestRecord
        self.stream_opened = asyncio.Event()

    @abstractmethod
    async def push(self, text: str) -> None:
        """Charge and speak more text; raises RateLimited, and the errors of the text."""


class TaskConnection(WebSocketConnection, ABC, Generic[ParametersT, TaskT]):
    """One accepted socket."""

    def __init__(
        self, socket: WebSocket, codec: FrameCodec[ParametersT], timeouts: DashScopeTimeouts
    ) -> None:
        super().__init__(socket)
        self._loop = asyncio.get_running_loop()
        self._protocol = DashScopeConnection(codec, self._loop.time(), timeouts)
        self._task: TaskT | None = None

    @abstractmethod
    def make_task(self, run_task: RunTask[ParametersT]) -> TaskT:
        """Authorize a task: its key may have been revoked meanwhile. Raises BadRequest, Overloaded."""

    @abstractmethod
    async def render(self, task: TaskT) -> None:
        """Open the task's stream, call ``announce_start``, and send all audio of the task."""

    # Reading

    def idle_deadline(self) -> float | None:
        return self._protocol.deadline

    async def on_idle(self) -> None:
        self._protocol.receive_time(self._loop.time())
        await self._handle_events()

    async def on_grant_ended(self, error: GrantEnded) -> None:
        await self._send_failure(_task_failed_event(self._protocol.task_id or "", error))

    async def on_message(self, data: str | bytes) -> None:
        self._protocol.receive_data(data, self._loop.time())
        await self._handle_events()

    async def _handle_events(self) -> None:
        try:
            for event in self._protocol.events():
                await self._handle(event)
        except DashScopeProtocolError as error:
            await self._send_failure(error.reply)

    async def _handle(self, event: DashScopeEvent[ParametersT]) -> None:
        if isinstance(event, DashScopeIdleTimeout):
            await self.close(CLOSE_NORMAL)
        elif isinstance(event, RunTask):
            await self._begin_task(event)
        elif self._task is not None:
            try:
                await self._continue_task(self._task, event)
            except VivavoceError as error:
                await self._send_failure(_task_failed_event(event.task_id, error))

    async def _continue_task(self, task: TaskT, event: DashScopeTaskInput) -> None:
        match event:
            case ContinueTask(text=text):
                await task.push(text)
            case FlushTask():
                task.stream.flush()
            case FinishTask():
                task.stream.end_input()
            case CancelTask():
                await self.stop_speaking()
                await self.send_event(TaskFinished(event.task_id, task.characters))
            case _:
                assert_never(event)

    async def _begin_task(self, run_task: RunTask[ParametersT]) -> None:
        try:
            task = self.make_task(run_task)
        except (BadRequest, Overloaded) as error:
            await self._send_failure(_task_failed_event(run_task.task_id, error))
            return
        await self.wait_spoken()  # until the last event of the previous task has been written
        self._task = task
        speaking = self.start_speaking(functools.partial(self._speak, task))
        opened = asyncio.create_task(task.stream_opened.wait())
        await asyncio.wait({speaking, opened}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()

    # Speaking

    async def _speak(self, task: TaskT) -> None:
        """Speak a task to its end and send its last event."""
        task_id = task.run_task.task_id
        try:
            error = await self.error_of(self.render(task), f"task {task_id!r}")
            done = TaskFinished(task_id, task.characters)
            await self.send_event(done if error is None else _task_failed_event(task_id, error))
        finally:
            self._task = None

    async def announce_start(self, task: TaskT) -> None:
        """Send task-started; the task takes text from now on."""
        await self.send_event(TaskStarted(task.run_task.task_id))
        task.stream_opened.set()

    # Writing

    async def _send_failure(self, reply: TaskFailed) -> None:
        if reply.task_id == self._protocol.task_id:
            await self.stop_speaking()
        await self.send_event(reply)

    async def send_event(self, event: DashScopeServerEvent, audio: bytes | None = None) -> None:
        """Write an event and, right after it, the audio that it announces."""
        frame = self._protocol.send(event, self._loop.time())
        self.reschedule_idle()
        await self.send_text(frame, audio)


def _task_failed_event(task_id: str, error: Exception) -> TaskFailed:
    described = DASHSCOPE_ERRORS.describe(error)
    return TaskFailed(task_id, DashScopeErrorCode(described.code), described.message)
