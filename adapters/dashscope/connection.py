"""The server's side of one DashScope speech WebSocket, without I/O: tasks, their order, limits and timeouts.

A socket runs one task at a time and many in sequence. JSON goes in text frames; audio goes in binary frames,
each announced by a ``result-generated``:

    client   run-task        continue-task*        finish-task
    server      task-started     result-generated, audio, ...     task-finished
                                  task-failed at any time; the socket stays open

``DashScopeConnection`` has wsproto's verbs: ``receive_data``, ``events``, ``send``. A WebSocket frame is a
whole message, so no input is ever incomplete. A ``FrameCodec`` reads and writes the JSON. Time comes in as a
number: ``deadline`` says when to call ``receive_time``. Sockets, keys, audio and logging are elsewhere.

Source: dashscope-sdk-python 1.25.24 and 2.0.2 (audio/tts_v2/speech_synthesizer.py), dashscope-sdk-java at
7be4b738, Alibaba Cloud Model Studio's CosyVoice WebSocket pages; both Python SDKs run against it.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Generic, NoReturn, Protocol, assert_never

from ...tts_engine.errors import VivavoceError
from .events import (
    CancelTask,
    ContinueTask,
    DashScopeClientEvent,
    DashScopeClientFrame,
    DashScopeErrorCode,
    DashScopeEvent,
    DashScopeIdleTimeout,
    DashScopeServerEvent,
    DashScopeTaskInput,
    FinishTask,
    FlushTask,
    InvalidFrame,
    KeepTaskAlive,
    ParametersT,
    RunTask,
    SentenceBegin,
    SentenceEnd,
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    UnreadableFrame,
)

# Characters of JSON in a frame: a text of 20,000 characters, each escaped as a surrogate pair, needs 240,000.
MAX_FRAME_CHARACTERS: Final = 512 * 1024
MAX_TASK_CHARACTERS: Final = 200_000  # characters of text in one task
MAX_TASK_ID_CHARACTERS: Final = 64
_MAX_ENDED_TASKS: Final = 32  # ended and refused tasks whose late frames are ignored


@dataclass(frozen=True, slots=True)
class DashScopeTimeouts:
    """How long a socket waits, in seconds.

    An open task without input for ``input_timeout_s`` fails. A socket without a task for ``idle_timeout_s``
    is closed: the Python SDK's pool abandons idle sockets without closing them, 20 every 30 s.
    """

    input_timeout_s: float = 23.0
    idle_timeout_s: float = 60.0


DEFAULT_TIMEOUTS: Final = DashScopeTimeouts()


class FrameCodec(Protocol[ParametersT]):
    """Reads and writes the JSON of the frames; keeps no state."""

    def decode(self, text: str) -> DashScopeClientFrame[ParametersT]:
        """Return what a text frame says; a wrong one is an InvalidFrame or UnreadableFrame."""

    def encode(self, event: DashScopeServerEvent) -> str:
        """Return the text frame of an event."""


class DashScopeProtocolError(VivavoceError):
    """The peer broke the protocol. Send ``reply``, and stop the open task if ``reply`` names it."""

    def __init__(self, reply: TaskFailed) -> None:
        super().__init__(reply.message)
        self.reply = reply


class DashScopeState(Enum):
    """The state of a socket's task."""

    IDLE = "no task is open"
    OPEN = "a task takes text"
    FINISHING = "a task has all its text"


TRANSITIONS: Final[
    Mapping[DashScopeState, Mapping[type[DashScopeClientEvent[Any] | DashScopeServerEvent], DashScopeState]]
] = MappingProxyType(
    {
        DashScopeState.IDLE: {RunTask: DashScopeState.OPEN},
        DashScopeState.OPEN: {
            ContinueTask: DashScopeState.OPEN,
            FlushTask: DashScopeState.OPEN,
            FinishTask: DashScopeState.FINISHING,
            CancelTask: DashScopeState.FINISHING,
            TaskStarted: DashScopeState.OPEN,
            SentenceBegin: DashScopeState.OPEN,
            SentenceSynthesis: DashScopeState.OPEN,
            SentenceEnd: DashScopeState.OPEN,
            TaskFailed: DashScopeState.IDLE,
        },
        DashScopeState.FINISHING: {
            FinishTask: DashScopeState.FINISHING,
            CancelTask: DashScopeState.FINISHING,
            TaskStarted: DashScopeState.FINISHING,
            SentenceBegin: DashScopeState.FINISHING,
            SentenceSynthesis: DashScopeState.FINISHING,
            SentenceEnd: DashScopeState.FINISHING,
            TaskFinished: DashScopeState.IDLE,
            TaskFailed: DashScopeState.IDLE,
        },
    }
)


class DashScopeConnection(Generic[ParametersT]):
    """One socket. ``now`` is monotonic seconds; take all ``events()`` after each ``receive_*``."""

    def __init__(
        self, codec: FrameCodec[ParametersT], now: float, timeouts: DashScopeTimeouts = DEFAULT_TIMEOUTS
    ) -> None:
        self.state = DashScopeState.IDLE
        self._codec = codec
        self._timeouts = timeouts
        self._now = now
        self._waiting_since = now  # the last input of the open task, or the end of the last task
        self._task_id = ""
        self._task_characters = 0
        self._ended_task_ids: deque[str] = deque(maxlen=_MAX_ENDED_TASKS)
        self._data: str | bytes | None = None

    @property
    def task_id(self) -> str | None:
        """The id of the open task."""
        return None if self.state is DashScopeState.IDLE else self._task_id

    @property
    def deadline(self) -> float | None:
        """The time at which ``receive_time`` is due; None while a task that has all its text is spoken."""
        match self.state:
            case DashScopeState.IDLE:
                return self._waiting_since + self._timeouts.idle_timeout_s
            case DashScopeState.OPEN:
                return self._waiting_since + self._timeouts.input_timeout_s
            case DashScopeState.FINISHING:
                return None
            case _:
                assert_never(self.state)

    def receive_data(self, data: str | bytes, now: float) -> None:
        """Take one frame, text or binary; raise ValueError if the last frame's events were not taken."""
        if self._data is not None:
            raise ValueError("take events() after each receive_data()")
        self._data, self._now = data, now

    def receive_time(self, now: float) -> None:
        """Take the current time."""
        self._now = now

    def events(self) -> Iterator[DashScopeEvent[ParametersT]]:
        """Yield the events of the frame received last or, without a frame, of the time.

        The state is read here, not when the frame arrives: a pooled client's next run-task arrives 1 ms after
        task-finished. Frames of ended and of refused tasks yield nothing.

        Raises:
            DashScopeProtocolError: the frame is not allowed or the client is too late; the connection can
                still be used.
        """
        data, self._data = self._data, None
        if data is not None:
            yield from self._handle_frame(self._decode(data))
        elif self.deadline is not None and self._now >= self.deadline:
            yield self._time_out()

    def send(self, event: DashScopeServerEvent, now: float) -> str:
        """Return the text frame of ``event``; raise ValueError if the state does not allow it.

        The end of a task frees the socket for the next one: call this before writing the frame, not after.
        """
        self._now = now
        if event.task_id == self.task_id:
            self._apply_transition(event)
        elif not isinstance(event, TaskFailed):
            raise ValueError(
                f"got {type(event).__name__} of task {event.task_id!r}; open is {self.task_id!r}"
            )
        return self._codec.encode(event)

    def _decode(self, data: str | bytes) -> DashScopeClientFrame[ParametersT]:
        if not isinstance(data, str):
            return UnreadableFrame("a binary frame; send JSON in text frames")
        if len(data) > MAX_FRAME_CHARACTERS:
            reason = f"a frame of {len(data)} characters; at most {MAX_FRAME_CHARACTERS} are allowed"
            return UnreadableFrame(reason)
        return self._codec.decode(data)

    def _handle_frame(
        self, frame: DashScopeClientFrame[ParametersT]
    ) -> Iterator[DashScopeClientEvent[ParametersT]]:
        if isinstance(frame, UnreadableFrame):
            self._refuse(self.task_id or "", frame.reason)
        if frame.action == RunTask.action:
            self._check_can_run(frame.task_id)
        elif not self._is_open(frame.task_id, frame.action):
            return
        match frame:
            case InvalidFrame():
                self._ignore_from_now_on(frame.task_id)
                self._refuse(frame.task_id, frame.reason)
            case RunTask():
                yield from self._run_task(frame)
            case KeepTaskAlive():
                self._waiting_since = self._now
            case _:
                yield self._accept_input(frame)

    def _check_can_run(self, task_id: str) -> None:
        if self.state is not DashScopeState.IDLE:
            self._ignore_from_now_on(task_id)
            self._refuse(task_id, f"task {self._task_id} of this connection is not finished")

    def _is_open(self, task_id: str, action: str) -> bool:
        if task_id == self.task_id:
            return True
        if task_id not in self._ended_task_ids:
            self._ignore_from_now_on(task_id)
            self._refuse(task_id, f"{action} for a task that was never run; send run-task first")
        return False

    def _ignore_from_now_on(self, task_id: str) -> None:
        """Answer later frames of a refused task with nothing: they were under way when it was refused."""
        if task_id != self.task_id:  # an open task ends by the reply that names it
            self._ended_task_ids.append(task_id)

    def _run_task(self, run: RunTask[ParametersT]) -> Iterator[DashScopeClientEvent[ParametersT]]:
        self._task_id, self._task_characters = run.task_id, 0
        self._apply_transition(run)
        yield run
        if run.text and self.task_id == run.task_id:  # the task may have been refused since the yield
            yield self._accept_input(ContinueTask(run.task_id, run.text))

    def _accept_input(self, event: DashScopeTaskInput) -> DashScopeTaskInput:
        if isinstance(event, ContinueTask):
            self._count_text(event)
        if type(event) not in TRANSITIONS[self.state]:
            self._refuse(event.task_id, f"{event.action} after finish-task")
        self._apply_transition(event)
        return event

    def _count_text(self, event: ContinueTask) -> None:
        total = self._task_characters + len(event.text)
        if total > MAX_TASK_CHARACTERS:
            self._refuse(
                event.task_id,
                f"input.text: {total} characters in one task; at most {MAX_TASK_CHARACTERS} are allowed",
            )
        self._task_characters = total

    def _apply_transition(self, event: DashScopeClientEvent[ParametersT] | DashScopeServerEvent) -> None:
        state = TRANSITIONS[self.state].get(type(event))
        if state is None:
            raise ValueError(f"got {type(event).__name__} while {self.state.value}")
        if state is DashScopeState.IDLE:
            self._ended_task_ids.append(self._task_id)
        if state is DashScopeState.IDLE or not isinstance(event, DashScopeServerEvent):
            self._waiting_since = self._now
        self.state = state

    def _time_out(self) -> DashScopeIdleTimeout:
        if self.state is DashScopeState.IDLE:
            return DashScopeIdleTimeout()
        self._refuse(self._task_id, f"request timeout after {self._timeouts.input_timeout_s:.0f} seconds")

    def _refuse(self, task_id: str, reason: str) -> NoReturn:
        raise DashScopeProtocolError(TaskFailed(task_id, DashScopeErrorCode.INVALID_PARAMETER, reason))
