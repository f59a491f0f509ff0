"""TODO."""

from dataclasses import dataclass
from enum import StrEnum

from ...tts_engine.chunk import Word
from .parameters import TaskParameters


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


@dataclass(frozen=True, slots=True)
class RunTask:
    """A task begins."""

    task_id: str
    model: str
    parameters: TaskParameters


@dataclass(frozen=True, slots=True)
class ContinueTask:
    """More text to speak. ``as_ssml``: it is a whole SSML document."""

    task_id: str
    text: str
    as_ssml: bool


@dataclass(frozen=True, slots=True)
class FlushTask:
    """Speak what is buffered now."""

    task_id: str


@dataclass(frozen=True, slots=True)
class FinishTask:
    """No more text: speak the rest, then say ``TaskFinished``."""

    task_id: str


@dataclass(frozen=True, slots=True)
class CancelTask:
    """Drop what is not sent yet, and say ``TaskFinished`` at once."""

    task_id: str


@dataclass(frozen=True, slots=True)
class DashScopeIdleTimeout:
    """Nothing has run for a minute: close the socket with code 1000."""


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """The task is admitted; clients wait for this before they send text."""

    task_id: str


@dataclass(frozen=True, slots=True)
class SentenceBegin:
    """Sentence ``index`` is spoken from here; ``text``: what is known of it."""

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
    """Sentence ``index`` is spoken. ``words``: times from the start of the task's audio, text places from the
    start of the sentence. ``characters``: of the whole task so far, as they are charged."""

    task_id: str
    index: int
    text: str
    words: tuple[Word, ...]
    characters: int


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """Everything of the task has been sent; its slot is free."""

    task_id: str
    characters: int


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The task is over, or was never begun; the socket stays open."""

    task_id: str
    code: DashScopeErrorCode
    message: str


DashScopeClientEvent = RunTask | ContinueTask | FlushTask | FinishTask | CancelTask


DashScopeServerEvent = (
    TaskStarted | SentenceBegin | SentenceSynthesis | SentenceEnd | TaskFinished | TaskFailed
)


DashScopeEvent = DashScopeClientEvent | DashScopeIdleTimeout
