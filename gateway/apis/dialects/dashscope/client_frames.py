"""Frames of DashScope's clients: run-task with DashScope's parameters, and the codec that reads it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from .....adapters.dashscope.events import DashScopeClientFrame, RunTask, UnreadableFrame
from ...kits.dashscope.frames import (
    PAYLOAD_NO_OBJECT,
    ContinueTaskPayload,
    DashScopeTextInput,
    FinishTaskPayload,
    TaskFrame,
    TaskFrameCodec,
    read_null_as_empty,
)
from ...kits.dashscope.validation import DashScopeMessage, explained, parse_message
from .parameters import SpeechParameters


class RunTaskPayload(DashScopeMessage):
    """What a task speaks with; the Java SDK puts the first text here, too."""

    task_group: Annotated[Literal["audio"], explained("payload.task_group must be 'audio'")] = "audio"
    task: Annotated[Literal["tts"], explained("payload.task must be 'tts'")] = "tts"
    function: Annotated[
        Literal["SpeechSynthesizer"], explained("payload.function must be 'SpeechSynthesizer'")
    ] = "SpeechSynthesizer"
    model: Annotated[str, Field(strict=True, min_length=1), explained("payload.model is required")]
    parameters: Annotated[SpeechParameters, BeforeValidator(read_null_as_empty)]
    input: DashScopeTextInput = DashScopeTextInput()

    @model_validator(mode="after")
    def _check_text_type(self) -> "RunTaskPayload":
        if self.input.text:
            self.parameters.is_ssml(self.input.text)  # raises InvalidDashScopeField
        return self


class ClientFrame(TaskFrame):
    """A frame of a client, its payload not validated yet: that depends on the action."""

    payload: Annotated[
        Any,
        BeforeValidator(
            lambda payload: payload,
            json_schema_input_type=RunTaskPayload | ContinueTaskPayload | FinishTaskPayload,
        ),
    ] = {}  # noqa: RUF012  # pydantic copies defaults


class DashScopeFrameCodec(TaskFrameCodec[SpeechParameters]):
    """The codec of DashScope's socket."""

    def read_run_task(self, task_id: str, payload: object) -> DashScopeClientFrame[SpeechParameters]:
        """Return the task; raises InvalidDashScopeField."""
        if not isinstance(payload, dict):
            return UnreadableFrame(PAYLOAD_NO_OBJECT)
        task = parse_message(RunTaskPayload, payload)
        return RunTask(task_id, task.model, task.parameters, task.input.text)
