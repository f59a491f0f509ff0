"""DashScope's speech WebSocket as frames and events: the server's side of one socket, without I/O.

A socket runs one task at a time, many in sequence. JSON goes in text frames; audio goes in binary ones, each
announced by a ``result-generated``:

    client   run-task        continue-task*        finish-task
    server      task-started     result-generated, audio, ...     task-finished
                                  task-failed at any time; the socket stays open

``DashScopeConnection`` has wsproto's verbs: ``receive_data``, ``events``, ``send``; a frame is a whole message, so
nothing is ever half received. Time comes in as a number: ask ``deadline`` when to call ``receive_time``.
Not here: sockets, keys, audio, logging.

Source: dashscope-sdk-python 1.25.24 and 2.0.2 (audio/tts_v2/speech_synthesizer.py), dashscope-sdk-java at
7be4b738, Alibaba Cloud Model Studio's CosyVoice WebSocket pages; both Python SDKs run against it.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NoReturn, assert_never

from ...tts_engine.errors import VivavoceError
from .encoding import encode
from .events import (
    CancelTask,
    ContinueTask,
    DashScopeClientEvent,
    DashScopeErrorCode,
    DashScopeEvent,
    DashScopeIdleTimeout,
    DashScopeServerEvent,
    FinishTask,
    FlushTask,
    RunTask,
    SentenceBegin,
    SentenceEnd,
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from .parameters import InvalidDashScopeField, TaskParameters, parse_task_parameters

MAX_FRAME_CHARACTERS: Final = (
    512 * 1024
)  # characters of JSON: a full text, each character escaped, needs 240,000
MAX_TEXT_CHARACTERS: Final = 20_000  # characters in one frame
MAX_TASK_CHARACTERS: Final = 200_000  # characters in one task
MAX_TASK_ID_CHARACTERS: Final = 64
_MAX_ENDED_TASKS: Final = 32  # ended ones, whose late frames are not answered


@dataclass(frozen=True, slots=True)
class DashScopeTimeouts:
    """How long a socket waits, in seconds.

    input_timeout_s: for input of an open task, which then fails. idle_s: for a task; the Python SDK's pool drops
    its idle sockets without closing them, twenty every half minute, and this is what reaps them.
    """

    input_timeout_s: float = 23.0
    idle_timeout_s: float = 60.0


DEFAULT_TIMEOUTS: Final = DashScopeTimeouts()


# From the client


# From the server


class DashScopeProtocolError(VivavoceError):
    """The peer broke the protocol: send ``reply``; if it names the task that is open, stop that task."""

    def __init__(self, reply: TaskFailed) -> None:
        super().__init__(reply.message)
        self.reply = reply


class DashScopeState(Enum):
    """What the socket is doing."""

    IDLE = "no task is open"
    OPEN = "a task takes text"
    FINISHING = "a task has all its text"


TRANSITIONS: Final[
    Mapping[DashScopeState, Mapping[type[DashScopeClientEvent | DashScopeServerEvent], DashScopeState]]
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


@dataclass(frozen=True, slots=True)
class _ClientFrame:
    action: str
    task_id: str
    payload: Mapping[str, object]


@dataclass(slots=True)
class _Task:
    id: str
    parameters: TaskParameters
    characters: int = 0


_NO_PARAMETERS: Final = TaskParameters("")


class DashScopeConnection:
    """One socket. ``now`` is monotonic seconds; after each ``receive_*`` take every event of ``events()``."""

    def __init__(self, now: float, timeouts: DashScopeTimeouts = DEFAULT_TIMEOUTS) -> None:
        self.state = DashScopeState.IDLE
        self._timeouts = timeouts
        self._now = now
        self._waiting_since = now  # the last input of the open task, or the end of the last one
        self._task = _Task("", _NO_PARAMETERS)
        self._ended_task_ids: deque[str] = deque(maxlen=_MAX_ENDED_TASKS)
        self._frame: str | bytes | None = None

    @property
    def task_id(self) -> str | None:
        """The task that is open, if one is."""
        return None if self.state is DashScopeState.IDLE else self._task.id

    @property
    def deadline(self) -> float | None:
        """When ``receive_time`` will have something to say; None while a task speaks its rest."""
        match self.state:
            case DashScopeState.IDLE:
                return self._waiting_since + self._timeouts.idle_timeout_s
            case DashScopeState.OPEN:
                return self._waiting_since + self._timeouts.input_timeout_s
            case DashScopeState.FINISHING:
                return None
            case _:
                assert_never(self.state)

    def receive_data(self, frame: str | bytes, now: float) -> None:
        """Take one frame, text or binary; ValueError if the events of the last one were not taken."""
        if self._frame is not None:
            raise ValueError("take events() after each receive_data()")
        self._frame, self._now = frame, now

    def receive_time(self, now: float) -> None:
        """Take note of the time."""
        self._now = now

    def events(self) -> Iterator[DashScopeEvent]:
        """Yield what the frame, or else the time, says.

        Whether a task is open is looked at here, when the frame is handled: a pooled client's next run-task
        comes a millisecond after task-finished. Frames for tasks that are over say nothing.

        Raises:
            ProtocolError: the frame is wrong or the client is too late; the connection goes on.
        """
        frame, self._frame = self._frame, None
        if frame is not None:
            yield from self._handle_frame(frame)
        elif self.deadline is not None and self._now >= self.deadline:
            yield self._time_out()

    def send(self, event: DashScopeServerEvent, now: float) -> str:
        """Return the text frame of ``event``; ValueError for what is not ours to say now.

        Saying that a task is over frees the socket for the next: call this before writing, not after.
        """
        self._now = now
        if event.task_id == self.task_id:
            self._apply_transition(event)
        elif not isinstance(event, TaskFailed):
            raise ValueError(
                f"got {type(event).__name__} of task {event.task_id!r}; open is {self.task_id!r}"
            )
        return encode(event)

    def _handle_frame(self, text: str | bytes) -> Iterator[DashScopeClientEvent]:
        frame = self._parse(text)
        match frame.action:
            case "run-task":
                yield from self._run_task(frame)
            case "continue-task" if self._is_open(frame):
                yield from self._validated(frame, self._parse_continue_task)
            case "finish-task" if self._is_open(frame):
                yield from self._validated(frame, _parse_finish_task)

    def _parse(self, text: str | bytes) -> _ClientFrame:
        """The frame's outside; what cannot be told which task it belongs to fails the one that is open."""
        try:
            return _parse_frame(text)
        except InvalidDashScopeField as error:
            self._refuse(self.task_id or "", str(error))

    def _is_open(self, frame: _ClientFrame) -> bool:
        if frame.task_id == self.task_id:
            return True
        if frame.task_id not in self._ended_task_ids:
            self._refuse(frame.task_id, f"{frame.action} for a task that was never run; send run-task first")
        return False

    def _run_task(self, frame: _ClientFrame) -> Iterator[DashScopeClientEvent]:
        if self.state is not DashScopeState.IDLE:
            self._refuse(frame.task_id, f"task {self._task.id} of this connection is not finished")
        try:
            model, parameters = _model(frame.payload), parse_task_parameters(frame.payload)
            text = _text(_object(frame.payload, "input"))
            as_ssml = bool(text) and parameters.is_ssml(text)
        except InvalidDashScopeField as error:
            self._refuse(frame.task_id, str(error))
        self._task = _Task(frame.task_id, parameters)
        run = RunTask(frame.task_id, model, parameters)
        self._apply_transition(run)
        yield run
        if text and self.task_id == frame.task_id:  # it may have been refused meanwhile
            yield self._push_text(frame.task_id, text, as_ssml)

    def _validated(
        self, frame: _ClientFrame, read: Callable[[_ClientFrame], DashScopeClientEvent | None]
    ) -> Iterator[DashScopeClientEvent]:
        try:
            event = read(frame)
        except InvalidDashScopeField as error:
            self._refuse(frame.task_id, str(error))
        if event is None:
            self._waiting_since = self._now
            return
        if type(event) not in TRANSITIONS[self.state]:
            self._refuse(frame.task_id, f"{frame.action} after finish-task")
        self._apply_transition(event)
        yield event

    def _parse_continue_task(self, frame: _ClientFrame) -> DashScopeClientEvent | None:
        fields = _object(frame.payload, "input")
        text = _text(fields)
        if text:
            return self._push_text(frame.task_id, text, self._task.parameters.is_ssml(text))
        return FlushTask(frame.task_id) if fields.get("flush") is True else None

    def _push_text(self, task_id: str, text: str, as_ssml: bool) -> ContinueTask:
        total = self._task.characters + len(text)
        if total > MAX_TASK_CHARACTERS:
            raise InvalidDashScopeField(
                f"input.text: {total} characters in one task; at most {MAX_TASK_CHARACTERS} are allowed"
            )
        self._task.characters = total
        return ContinueTask(task_id, text, as_ssml)

    def _apply_transition(self, event: DashScopeClientEvent | DashScopeServerEvent) -> None:
        state = TRANSITIONS[self.state].get(type(event))
        if state is None:
            raise ValueError(f"got {type(event).__name__} while {self.state.value}")
        if state is DashScopeState.IDLE:
            self._ended_task_ids.append(self._task.id)
            self._task = _Task("", _NO_PARAMETERS)
        if state is DashScopeState.IDLE or not isinstance(event, DashScopeServerEvent):
            self._waiting_since = self._now
        self.state = state

    def _time_out(self) -> DashScopeIdleTimeout:
        if self.state is DashScopeState.IDLE:
            return DashScopeIdleTimeout()
        self._refuse(self._task.id, f"request timeout after {self._timeouts.input_timeout_s:.0f} seconds")

    def _refuse(self, task_id: str, reason: str) -> NoReturn:
        raise DashScopeProtocolError(TaskFailed(task_id, DashScopeErrorCode.INVALID_PARAMETER, reason))


_ACTIONS: Final = ("run-task", "continue-task", "finish-task")


def _parse_frame(text: str | bytes) -> _ClientFrame:
    if not isinstance(text, str):
        raise InvalidDashScopeField("a binary frame; send JSON in text frames")
    if len(text) > MAX_FRAME_CHARACTERS:
        raise InvalidDashScopeField(
            f"a frame of {len(text)} characters; at most {MAX_FRAME_CHARACTERS} are allowed"
        )
    try:
        message = json.loads(text, parse_constant=_refuse_json_constant)
    except (ValueError, RecursionError):  # deep nesting ends in the latter
        raise InvalidDashScopeField("the frame is not JSON") from None
    if not isinstance(message, dict):
        raise InvalidDashScopeField("the frame is not a JSON object")
    header = _object(message, "header")
    task_id, action = header.get("task_id"), header.get("action")
    if not isinstance(task_id, str) or not 0 < len(task_id) <= MAX_TASK_ID_CHARACTERS:
        raise InvalidDashScopeField(
            f"header.task_id must be a string of 1 to {MAX_TASK_ID_CHARACTERS} characters"
        )
    if action not in _ACTIONS:
        raise InvalidDashScopeField(f"header.action must be one of {', '.join(_ACTIONS)}")
    return _ClientFrame(str(action), task_id, _object(message, "payload"))


def _refuse_json_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _object(container: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = container.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidDashScopeField(f"{name} must be an object")
    return value


def _model(payload: Mapping[str, object]) -> str:
    for name, expected in (("task_group", "audio"), ("task", "tts"), ("function", "SpeechSynthesizer")):
        if payload.get(name, expected) != expected:
            raise InvalidDashScopeField(f"payload.{name} must be {expected!r}")
    model = payload.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidDashScopeField("payload.model is required")
    return model


def _text(fields: Mapping[str, object]) -> str:
    text = fields.get("text", "")
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InvalidDashScopeField("input.text must be a string")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise InvalidDashScopeField(
            f"input.text: {len(text)} characters in one frame; at most {MAX_TEXT_CHARACTERS} are allowed"
        )
    return replace_lone_surrogates(text)


def replace_lone_surrogates(text: str) -> str:
    """Half a UTF-16 pair, which JSON can carry and no voice can read, becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _parse_finish_task(frame: _ClientFrame) -> DashScopeClientEvent:
    directive = _object(frame.payload, "input").get("directive")
    if directive is None:
        return FinishTask(frame.task_id)
    if directive != "cancel":
        raise InvalidDashScopeField("input.directive must be 'cancel'")
    return CancelTask(frame.task_id)
