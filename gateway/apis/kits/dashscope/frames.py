"""Frames of DashScope's tasks as pydantic models, and the codec between them and the events of a connection.

    client   {"header": {"action", "task_id"}, "payload": {...}}     run-task, continue-task, finish-task
    server   {"header": {"task_id", "event", "attributes"}, "payload": {...}}

What run-task says is the dialect's. The codec knows no state: whether a frame is allowed now is decided by
``adapters.dashscope.connection``.

Source: dashscope-sdk-python 1.25.24 and 2.0.2 (audio/tts_v2/speech_synthesizer.py), dashscope-sdk-java at
7be4b738, Alibaba Cloud Model Studio's CosyVoice WebSocket pages.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, Literal, NoReturn, TypeVar, assert_never

from pydantic import BaseModel, BeforeValidator, Field

from .....adapters.dashscope.connection import MAX_TASK_ID_CHARACTERS
from .....adapters.dashscope.events import (
    CancelTask,
    ContinueTask,
    DashScopeClientFrame,
    DashScopeServerEvent,
    FinishTask,
    FlushTask,
    InvalidFrame,
    KeepTaskAlive,
    SentenceBegin,
    SentenceEnd,
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    UnreadableFrame,
)
from .....tts_engine.chunk import Word
from ..request_fields import load_json
from .errors import InvalidDashScopeField
from .validation import DashScopeMessage, explained, parse_message

ParametersT = TypeVar("ParametersT")  # of run-task

MAX_TEXT_CHARACTERS: Final = 20_000  # of one frame, and of one HTTP request
PAYLOAD_NO_OBJECT: Final = "payload must be an object"
_ACTIONS: Final = ("run-task", "continue-task", "finish-task")


def read_null_as_empty(value: object) -> object:
    """Return {} for null; a validator."""
    return {} if value is None else value


class FrameHeader(DashScopeMessage):
    """The task that a client's frame belongs to, and what it does."""

    task_id: Annotated[
        str,
        Field(strict=True, min_length=1, max_length=MAX_TASK_ID_CHARACTERS),
        explained(f"header.task_id must be a string of 1 to {MAX_TASK_ID_CHARACTERS} characters"),
    ]
    action: Annotated[
        Literal["run-task", "continue-task", "finish-task"],
        explained(f"header.action must be one of {', '.join(_ACTIONS)}"),
    ]


class DashScopeTextInput(DashScopeMessage):
    """``payload.input`` of run-task and continue-task."""

    text: Annotated[
        str,
        Field(strict=True, max_length=MAX_TEXT_CHARACTERS),
        explained(
            "input.text must be a string",
            string_too_long=(
                f"input.text: {{length}} characters in one frame; at most {MAX_TEXT_CHARACTERS} are allowed"
            ),
        ),
    ] = ""
    flush: object = None  # True speaks what is buffered; DashScope ignores any other value


class FinishInput(DashScopeMessage):
    """``payload.input`` of finish-task."""

    directive: Annotated[Literal["cancel"], explained("input.directive must be 'cancel'")] | None = None


class ContinueTaskPayload(DashScopeMessage):
    """More text, or a flush."""

    input: DashScopeTextInput = DashScopeTextInput()


class FinishTaskPayload(DashScopeMessage):
    """The end of the text, or a cancellation."""

    input: FinishInput = FinishInput()


class TaskFrame(DashScopeMessage):
    """A frame of a client, its payload not validated yet: that depends on the action."""

    header: Annotated[FrameHeader, BeforeValidator(read_null_as_empty)]
    payload: Any = {}  # noqa: RUF012  # pydantic copies defaults


class CharacterUsage(BaseModel):
    """Characters that were charged."""

    characters: Annotated[int, Field(description="Han characters count twice.")]


class WordResult(BaseModel):
    """A word of a sentence, with its place in ``original_text`` and its time in the audio."""

    text: str
    begin_index: int
    end_index: int
    begin_time: Annotated[int, Field(description="ms from the start of the audio of the whole text.")]
    end_time: Annotated[int, Field(description="ms.")]


class SentenceResult(BaseModel):
    """A sentence of the text, counted from 0; its words come with its end, if they were asked for."""

    index: int | None = None
    words: tuple[WordResult, ...] = ()


class AudioData(BaseModel):
    """Audio inside an event."""

    data: Annotated[str, Field(description="Base64, of the format that was asked for.")]


class ResultOutput(BaseModel):
    """What was spoken last. ``audio`` is in the events over HTTP; a WebSocket has it in binary frames."""

    type: Literal["sentence-begin", "sentence-synthesis", "sentence-end"] | None = None
    original_text: str | None = None
    sentence: SentenceResult = SentenceResult()
    audio: AudioData | None = None


class ResultPayload(BaseModel):
    """The payload of a frame or event while a text is spoken; ``usage`` is of the text so far."""

    output: ResultOutput | None = None
    usage: CharacterUsage | None = None


class ServerFrameHeader(BaseModel):
    """The task that a frame of the server belongs to, and what happened."""

    task_id: str
    event: Literal["task-started", "result-generated", "task-finished", "task-failed"]
    attributes: dict[str, Any] = {}  # pydantic copies defaults; always empty
    error_code: str | None = None
    error_message: str | None = None


class ServerFrame(BaseModel):
    """A frame of the server. The payload is always an object: the Java SDK reads fields of it."""

    header: ServerFrameHeader
    payload: ResultPayload = ResultPayload()


class TaskFrameCodec(ABC, Generic[ParametersT]):
    """A codec of a ``DashScopeConnection``; has no state."""

    @abstractmethod
    def read_run_task(self, task_id: str, payload: object) -> DashScopeClientFrame[ParametersT]:
        """Return what a run-task frame says; may raise InvalidDashScopeField."""

    def decode(self, text: str) -> DashScopeClientFrame[ParametersT]:
        """Return what a text frame says."""
        try:
            frame = parse_message(TaskFrame, _parse_json(text))
        except InvalidDashScopeField as error:
            return UnreadableFrame(str(error))
        task_id, action = frame.header.task_id, frame.header.action
        try:
            if action == "run-task":
                return self.read_run_task(task_id, frame.payload)
            if not isinstance(frame.payload, dict):
                return UnreadableFrame(PAYLOAD_NO_OBJECT)
            return (_read_continue_task if action == "continue-task" else _read_finish_task)(
                task_id, frame.payload
            )
        except InvalidDashScopeField as error:
            return InvalidFrame(task_id, action, str(error))

    def encode(self, event: DashScopeServerEvent) -> str:
        """Return the text frame of an event."""
        match event:
            case TaskStarted(task_id):
                frame = _server_frame(task_id, "task-started")
            case SentenceBegin() | SentenceSynthesis() | SentenceEnd():
                frame = _server_frame(event.task_id, "result-generated", to_result_payload(event))
            case TaskFinished(task_id, characters):
                payload = ResultPayload(output=ResultOutput(), usage=CharacterUsage(characters=characters))
                frame = _server_frame(task_id, "task-finished", payload)
            case TaskFailed(task_id, code, message):
                header = ServerFrameHeader(
                    task_id=task_id, event="task-failed", error_code=code, error_message=message
                )
                frame = ServerFrame(header=header)
            case _:
                assert_never(event)
        return dump_json(frame)


def to_result_payload(event: SentenceBegin | SentenceSynthesis | SentenceEnd) -> ResultPayload:
    """Return ``output``, and ``usage`` at the end of a sentence."""
    sentence = SentenceResult(index=event.index)
    match event:
        case SentenceBegin(text=text):
            return ResultPayload(
                output=ResultOutput(type="sentence-begin", original_text=text, sentence=sentence)
            )
        case SentenceSynthesis():
            return ResultPayload(output=ResultOutput(type="sentence-synthesis", sentence=sentence))
        case SentenceEnd(text=text, words=words, characters=characters):
            sentence = SentenceResult(index=event.index, words=tuple(map(_word_result, words)))
            output = ResultOutput(type="sentence-end", original_text=text, sentence=sentence)
            return ResultPayload(output=output, usage=CharacterUsage(characters=characters))
        case _:
            assert_never(event)


def dump_json(message: BaseModel) -> str:
    """Return compact ASCII JSON without the absent fields."""
    return json.dumps(message.model_dump(exclude_none=True), separators=(",", ":"))


def _read_continue_task(task_id: str, data: Mapping[str, object]) -> ContinueTask | FlushTask | KeepTaskAlive:
    fields = parse_message(ContinueTaskPayload, data).input
    if fields.text:
        return ContinueTask(task_id, fields.text)
    return FlushTask(task_id) if fields.flush is True else KeepTaskAlive(task_id)


def _read_finish_task(task_id: str, data: Mapping[str, object]) -> FinishTask | CancelTask:
    directive = parse_message(FinishTaskPayload, data).input.directive
    return FinishTask(task_id) if directive is None else CancelTask(task_id)


def _parse_json(text: str) -> object:
    try:
        message = load_json(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # deep nesting raises the latter
        raise InvalidDashScopeField("the frame is not JSON") from None
    if not isinstance(message, dict):
        raise InvalidDashScopeField("the frame is not a JSON object")
    return message


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are not JSON


def _server_frame(
    task_id: str,
    event: Literal["task-started", "result-generated", "task-finished"],
    payload: ResultPayload | None = None,
) -> ServerFrame:
    header = ServerFrameHeader(task_id=task_id, event=event)
    return ServerFrame(header=header, payload=payload or ResultPayload())


def _word_result(word: Word) -> WordResult:
    return WordResult(
        text=word.text,
        begin_index=word.text_start,
        end_index=word.text_stop,
        begin_time=round(word.start_s * 1_000),
        end_time=round(word.stop_s * 1_000),
    )
