"""The events of DashScope's speech WebSocket: values, one class for each thing that a side can say.

``DashScopeConnection`` decides which event may come when; a ``FrameCodec`` writes and reads them as JSON.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from ...tts_engine.chunk import Word

ParametersT = TypeVar("ParametersT")
"""What a codec reads from ``payload.parameters``; the connection only passes it on."""


class DashScopeErrorCode(StrEnum):
    """DashScope's own error codes."""

    INVALID_PARAMETER = "InvalidParameter"
    INVALID_API_KEY = "InvalidApiKey"
    ACCESS_DENIED = "AccessDenied"
    MODEL_NOT_FOUND = "ModelNotFound"
    THROTTLED = "Throttling.RateQuota"
    INTERNAL = "InternalError"
    VOICE_NOT_FOUND = "BadRequest.ResourceNotExist"
    DOWNLOAD_FAILED = "BadRequest.InputDownloadFailed"


# From the client


@dataclass(frozen=True, slots=True)
class RunTask(Generic[ParametersT]):
    """A task begins.

    ``text`` is the first text of the task, if run-task had one; the connection delivers it again as the
    ``ContinueTask`` that follows.
    """

    action: ClassVar[str] = "run-task"
    task_id: str
    model: str
    parameters: ParametersT
    text: str = ""


@dataclass(frozen=True, slots=True)
class ContinueTask:
    """More text to speak; never empty."""

    action: ClassVar[str] = "continue-task"
    task_id: str
    text: str


@dataclass(frozen=True, slots=True)
class FlushTask:
    """The buffered text is to be spoken now."""

    action: ClassVar[str] = "continue-task"
    task_id: str


@dataclass(frozen=True, slots=True)
class KeepTaskAlive:
    """A continue-task without text, which only restarts the input timeout; not delivered as an event."""

    action: ClassVar[str] = "continue-task"
    task_id: str


@dataclass(frozen=True, slots=True)
class FinishTask:
    """No more text: the rest is to be spoken, then ``TaskFinished`` sent."""

    action: ClassVar[str] = "finish-task"
    task_id: str


@dataclass(frozen=True, slots=True)
class CancelTask:
    """Unsent audio is to be dropped and ``TaskFinished`` sent at once."""

    action: ClassVar[str] = "finish-task"
    task_id: str


@dataclass(frozen=True, slots=True)
class InvalidFrame:
    """A frame whose payload is not allowed; not delivered as an event."""

    task_id: str
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnreadableFrame:
    """A frame without a valid header, so of no known task; not delivered as an event."""

    reason: str


@dataclass(frozen=True, slots=True)
class DashScopeIdleTimeout:
    """No task has run for the idle timeout: the socket is to be closed with code 1000."""


# From the server


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """The task is admitted; clients wait for this before they send text."""

    task_id: str


@dataclass(frozen=True, slots=True)
class SentenceBegin:
    """The audio of sentence ``index`` begins; ``text`` is its beginning, as far as it is known."""

    task_id: str
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class SentenceSynthesis:
    """The next binary frame is audio of sentence ``index``."""

    task_id: str
    index: int


@dataclass(frozen=True, slots=True)
class SentenceEnd:
    """All audio of sentence ``index`` has been sent."""

    task_id: str
    index: int  # from 0
    text: str
    words: tuple[Word, ...]  # times from the start of the task's audio, places from the start of ``text``
    characters: int  # charged for the task so far


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """All audio of the task has been sent and its slot is free; ``characters`` is what was charged."""

    task_id: str
    characters: int


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The task has ended early or was never admitted; the socket stays open."""

    task_id: str
    code: DashScopeErrorCode
    message: str


DashScopeTaskInput = ContinueTask | FlushTask | FinishTask | CancelTask
DashScopeClientEvent = RunTask[ParametersT] | DashScopeTaskInput
DashScopeClientFrame = DashScopeClientEvent[ParametersT] | KeepTaskAlive | InvalidFrame | UnreadableFrame
DashScopeEvent = DashScopeClientEvent[ParametersT] | DashScopeIdleTimeout
DashScopeServerEvent = (
    TaskStarted | SentenceBegin | SentenceSynthesis | SentenceEnd | TaskFinished | TaskFailed
)
