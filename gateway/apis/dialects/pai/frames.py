"""Frames of PAI's WebSocket: DashScope's, with PAI's parameters and with audio in JSON.

    client   run-task (payload.parameters: PaiParameters), continue-task, finish-task
    server   task-started, result-generated {output.audio.data, metrics}*, task-finished or task-failed

Source: see ``models``.
"""

from base64 import b64encode
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .....adapters.dashscope.events import (
    InvalidFrame,
    RunTask,
)
from ...kits.dashscope.frames import (
    ContinueTaskPayload,
    DashScopeTextInput,
    FinishTaskPayload,
    FrameHeader,
    TaskFrameCodec,
)
from .models import PaiMetrics, PaiParameters


class PaiRunTaskPayload(BaseModel):
    """What a task speaks with."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: Annotated[str, Field(max_length=256)] = "cosyvoice-v2"
    parameters: PaiParameters = PaiParameters()
    input: DashScopeTextInput = DashScopeTextInput()


class PaiClientFrame(BaseModel):
    """A frame of a client."""

    header: FrameHeader
    payload: PaiRunTaskPayload | ContinueTaskPayload | FinishTaskPayload


class PaiAudioOutput(BaseModel):
    """Audio in base64, in ``audio.data``."""

    audio: dict[str, str]


class PaiResult(BaseModel):
    """A piece of the speech."""

    output: PaiAudioOutput
    metrics: PaiMetrics


class PaiFrameHeader(BaseModel):
    """The task that a frame of the server belongs to, and what happened."""

    task_id: str
    event: Literal["task-started", "result-generated", "task-finished", "task-failed"]
    attributes: dict[str, Any]


class PaiServerFrame(BaseModel):
    """A frame of the server."""

    header: PaiFrameHeader
    payload: PaiResult | dict[str, Any]


class PaiFrameCodec(TaskFrameCodec[PaiParameters]):
    """The codec of PAI's socket."""

    def read_run_task(self, task_id: str, payload: object) -> RunTask[PaiParameters] | InvalidFrame:
        """Return the task, or the first fault of its payload."""
        try:
            task = PaiRunTaskPayload.model_validate(payload or {})
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, fault["loc"])) or "payload"
            return InvalidFrame(task_id, RunTask.action, f"{place}: {fault['msg']}")
        return RunTask(task_id, task.model, task.parameters, task.input.text)


def encode_audio(task_id: str, audio: bytes, metrics: PaiMetrics) -> str:
    """Return the text frame with a piece of speech."""
    result = PaiResult(
        output=PaiAudioOutput(audio={"data": b64encode(audio).decode("ascii")}), metrics=metrics
    )
    header = PaiFrameHeader(task_id=task_id, event="result-generated", attributes={})
    return PaiServerFrame(header=header, payload=result).model_dump_json()
