"""DashScope's WebSocket frames as pydantic models, and the codec between them and the events of a connection.

    client   {"header": {"action", "task_id"}, "payload": {...}}     run-task, continue-task, finish-task
    server   {"header": {"task_id", "event", "attributes"}, "payload": {...}}

The codec knows no state: whether a frame is allowed now is decided by ``adapters.dashscope.connection``.

Source: dashscope-sdk-python 1.25.24 and 2.0.2 (audio/tts_v2/speech_synthesizer.py), dashscope-sdk-java at
7be4b738, Alibaba Cloud Model Studio's CosyVoice WebSocket pages.
"""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NoReturn, assert_never

from pydantic import BaseModel, BeforeValidator, Field, model_validator

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
    RunTask,
    SentenceBegin,
    SentenceEnd,
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    UnreadableFrame,
)
from .....tts_engine.chunk import Word
from ....web.client_json import load_json
from .errors import InvalidDashScopeField
from .models import CharacterUsage, ResultOutput, ResultPayload, SentenceResult, WordResult
from .parameters import MAX_TEXT_CHARACTERS, SpeechParameters
from .validation import DashScopeMessage, explained, parse_message

_ACTIONS: Final = ("run-task", "continue-task", "finish-task")


def _keep(value: object) -> object:
    return value


def _read_null_as_empty(value: object) -> object:
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


class RunTaskPayload(DashScopeMessage):
    """What a task speaks with; the Java SDK puts the first text here, too."""

    task_group: Annotated[Literal["audio"], explained("payload.task_group must be 'audio'")] = "audio"
    task: Annotated[Literal["tts"], explained("payload.task must be 'tts'")] = "tts"
    function: Annotated[
        Literal["SpeechSynthesizer"], explained("payload.function must be 'SpeechSynthesizer'")
    ] = "SpeechSynthesizer"
    model: Annotated[str, Field(strict=True, min_length=1), explained("payload.model is required")]
    parameters: Annotated[SpeechParameters, BeforeValidator(_read_null_as_empty)]
    input: DashScopeTextInput = DashScopeTextInput()

    @model_validator(mode="after")
    def _check_text_type(self) -> "RunTaskPayload":
        if self.input.text:
            self.parameters.is_ssml(self.input.text)  # raises InvalidDashScopeField
        return self


class ContinueTaskPayload(DashScopeMessage):
    """More text, or a flush."""

    input: DashScopeTextInput = DashScopeTextInput()


class FinishTaskPayload(DashScopeMessage):
    """The end of the text, or a cancellation."""

    input: FinishInput = FinishInput()


class ClientFrame(DashScopeMessage):
    """A frame of a client, its payload not validated yet: that depends on the action."""

    header: Annotated[FrameHeader, BeforeValidator(_read_null_as_empty)]
    payload: Annotated[
        dict[str, Any],
        BeforeValidator(
            _keep, json_schema_input_type=RunTaskPayload | ContinueTaskPayload | FinishTaskPayload
        ),
    ] = {}  # noqa: RUF012  # pydantic copies defaults


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


class DashScopeFrameCodec:
    """The codec of a ``DashScopeConnection``; has no state."""

    def decode(self, text: str) -> DashScopeClientFrame[SpeechParameters]:
        """Return what a text frame says."""
        try:
            frame = parse_message(ClientFrame, _parse_json(text))
        except InvalidDashScopeField as error:
            return UnreadableFrame(str(error))
        task_id, action = frame.header.task_id, frame.header.action
        try:
            return _READERS[action](task_id, frame.payload)
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


def _read_run_task(task_id: str, data: Mapping[str, object]) -> RunTask[SpeechParameters]:
    payload = parse_message(RunTaskPayload, data)
    return RunTask(task_id, payload.model, payload.parameters, payload.input.text)


def _read_continue_task(task_id: str, data: Mapping[str, object]) -> ContinueTask | FlushTask | KeepTaskAlive:
    fields = parse_message(ContinueTaskPayload, data).input
    if fields.text:
        return ContinueTask(task_id, fields.text)
    return FlushTask(task_id) if fields.flush is True else KeepTaskAlive(task_id)


def _read_finish_task(task_id: str, data: Mapping[str, object]) -> FinishTask | CancelTask:
    directive = parse_message(FinishTaskPayload, data).input.directive
    return FinishTask(task_id) if directive is None else CancelTask(task_id)


_READERS: Final[
    Mapping[str, Callable[[str, Mapping[str, object]], DashScopeClientFrame[SpeechParameters]]]
] = {
    "run-task": _read_run_task,
    "continue-task": _read_continue_task,
    "finish-task": _read_finish_task,
}


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
