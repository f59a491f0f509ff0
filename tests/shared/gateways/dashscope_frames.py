"""Frames of DashScope clients for tests, and a client with the real codec."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from vivavoce.adapters.dashscope.connection import (
    DashScopeConnection,
    DashScopeProtocolError,
    DashScopeState,
)
from vivavoce.adapters.dashscope.events import (
    DashScopeEvent,
    TaskFailed,
    TaskStarted,
)
from vivavoce.gateway.apis.dialects.dashscope.client_frames import DashScopeFrameCodec
from vivavoce.gateway.apis.dialects.dashscope.parameters import SpeechParameters

CODEC = DashScopeFrameCodec()
TASK_ID = "0a" * 16  # as the Python SDK writes task ids
JAVA_TASK_ID = "1f6c21a8-4c3e-4d2b-9f50-0123456789ab"  # as the Java SDK does


def frame(action: str, task_id: str = TASK_ID, input: Any = None, **payload: Any) -> str:
    header = {"action": action, "task_id": task_id, "streaming": "duplex"}
    return json.dumps({"header": header, "payload": {"input": {} if input is None else input, **payload}})


def run(
    task_id: str = TASK_ID, input: Any = None, model: Any = "cosyvoice-v3-flash", **parameters: Any
) -> str:
    parameters = {"voice": "longanyang", **parameters}
    return frame(
        "run-task",
        task_id,
        input,
        model=model,
        task_group="audio",
        task="tts",
        function="SpeechSynthesizer",
        parameters=parameters,
    )


def text(words: Any, task_id: str = TASK_ID) -> str:
    return frame("continue-task", task_id, {"text": words})


class Client:
    """Sends JSON to a connection with the real codec."""

    def __init__(self) -> None:
        self.connection = DashScopeConnection(CODEC, 0.0)

    def send(self, data: str | bytes) -> list[DashScopeEvent[SpeechParameters]]:
        self.connection.receive_data(data, 0.0)
        return list(self.connection.events())

    def refusal_of(self, data: str | bytes) -> TaskFailed:
        with pytest.raises(DashScopeProtocolError) as caught:
            self.send(data)
        return caught.value.reply

    def reply(self, event: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = json.loads(self.connection.send(event, 0.0))
        return answer

    def in_state(self, state: DashScopeState) -> "Client":
        if state is not DashScopeState.IDLE:
            self.send(run())
            self.reply(TaskStarted(TASK_ID))
        if state is DashScopeState.FINISHING:
            self.send(frame("finish-task"))
        return self
