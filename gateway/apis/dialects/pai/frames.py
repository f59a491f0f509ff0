"""Frames of PAI's WebSocket: DashScope's, with PAI's parameters and with audio in JSON.

    client   run-task (payload.parameters: PaiParameters), continue-task, finish-task
    server   task-started, result-generated {output.audio.data, metrics}*, task-finished or task-failed

Source: see ``models``.
"""

import json
from base64 import b64encode
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .....adapters.dashscope.events import (
    DashScopeClientFrame,
    DashScopeServerEvent,
    InvalidFrame,
    RunTask,
)
from ....web.client_json import load_json
from ..dashscope.frames import (
    ContinueTaskPayload,
    DashScopeFrameCodec,
    DashScopeTextInput,
    FinishTaskPayload,
    FrameHeader,
)
from .models import PaiMetrics, PaiParameters

_DASHSCOPE: Final = DashScopeFrameCodec()


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


class PaiFrameCodec:
    """The codec of a ``DashScopeConnection``; has no state."""

    def decode(self, text: str) -> DashScopeClientFrame[PaiParameters]:
        """Return what a text frame says."""
        frame = _DASHSCOPE.decode(_without_payload_of_run_task(text))
        if isinstance(frame, RunTask):
            return _read_run_task(frame.task_id, text)
        return cast(DashScopeClientFrame[PaiParameters], frame)

    def encode(self, event: DashScopeServerEvent) -> str:
        """Return the text frame of an event."""
        return _DASHSCOPE.encode(event)


def encode_audio(task_id: str, audio: bytes, metrics: PaiMetrics) -> str:
    """Return the text frame with a piece of speech."""
    result = PaiResult(
        output=PaiAudioOutput(audio={"data": b64encode(audio).decode("ascii")}), metrics=metrics
    )
    header = PaiFrameHeader(task_id=task_id, event="result-generated", attributes={})
    return PaiServerFrame(header=header, payload=result).model_dump_json()


def _without_payload_of_run_task(text: str) -> str:
    """Return a frame that DashScope's codec reads: its own run-task needs parameters that PAI's lacks."""
    try:
        frame = load_json(text)
    except (ValueError, RecursionError):
        return text
    match frame:
        case {"header": {"action": "run-task"}}:
            payload = {"model": "cosyvoice-v2", "parameters": {"voice": "-"}}
            return json.dumps({"header": frame["header"], "payload": payload})
        case _:
            return text


def _read_run_task(task_id: str, text: str) -> RunTask[PaiParameters] | InvalidFrame:
    try:
        payload = PaiRunTaskPayload.model_validate(json.loads(text).get("payload") or {})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"])) or "payload"
        return InvalidFrame(task_id, RunTask.action, f"{place}: {fault['msg']}")
    return RunTask(task_id, payload.model, payload.parameters, payload.input.text)
