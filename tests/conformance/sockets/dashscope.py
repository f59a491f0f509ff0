"""The sockets of DashScope and PAI, which have tasks, for the conformance tests."""

from base64 import b64decode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from conformance.sockets.driver import Heard, SocketDriver

from vivavoce.adapters.dashscope import connection
from vivavoce.adapters.dashscope.connection import MAX_FRAME_CHARACTERS, DashScopeTimeouts

KINDS = {"task-finished": "done", "task-failed": "error"}


class DashScopeDriver(SocketDriver):
    name = "dashscope"
    codes = MappingProxyType(
        {
            "wrong": "InvalidParameter",
            "unreadable": "InvalidParameter",
            "broken": "InternalError",
            "full": "Throttling.RateQuota",
            "waiting": "InvalidParameter",
            "limited": "Throttling.RateQuota",
            "shutdown": "InvalidParameter",
        }
    )
    path = "/api-ws/v1/inference"
    text_limit = (connection, "MAX_TASK_CHARACTERS")
    parameters: Mapping[str, Any] = MappingProxyType(
        {"voice": "tone-440", "format": "pcm", "sample_rate": 24_000}
    )
    wrong = (*SocketDriver.wrong, "x" * (MAX_FRAME_CHARACTERS + 1))

    def frame(self, action: str, context: str, text: dict[str, Any], **payload: Any) -> list[Any]:
        header = {"action": action, "task_id": context, "streaming": "duplex"}
        return [{"header": header, "payload": {"input": text, **payload}}]

    def begin(self, context: str) -> list[Any]:
        return self.frame("run-task", context, {}, model="cosyvoice-v2", parameters=dict(self.parameters))

    def text(self, context: str, text: str) -> list[Any]:
        return self.frame("continue-task", context, {"text": text})

    def end(self, context: str) -> list[Any]:
        return self.frame("finish-task", context, {})

    def cancel(self, context: str) -> list[Any]:
        return self.frame("finish-task", context, {"directive": "cancel"})

    def read(self, message: Any) -> Heard:
        if isinstance(message, bytes):
            return Heard("audio", audio=message)
        kind: Any = KINDS.get(message["header"]["event"], "other")
        return Heard(kind, code=message["header"].get("error_code"))

    def shorten_idle_time(self, patch: pytest.MonkeyPatch, served: Any, seconds: float) -> None:
        for api in served.apis.opened[self.name].apis:
            patch.setattr(api, "timeouts", DashScopeTimeouts(20.0, seconds), raising=False)


class PaiDriver(DashScopeDriver):
    name = "pai"
    path = "/api-ws/v1/audio/speech"
    parameters = MappingProxyType(
        {"mode": "fast_replication", "reference_audio_id": "tone-440", "output_format": "pcm"}
    )

    def read(self, message: Any) -> Heard:
        if message["header"]["event"] == "result-generated":
            return Heard("audio", audio=b64decode(message["payload"]["output"]["audio"]["data"]))
        return super().read(message)
