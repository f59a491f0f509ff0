"""Cartesia's socket for the conformance tests."""

from base64 import b64decode
from types import MappingProxyType
from typing import Any

from conformance.sockets.driver import Heard, SocketDriver

from vivavoce.gateway.apis.dialects.cartesia.socket_api import PATH
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
KINDS = {"chunk": "audio", "done": "done", "error": "error"}


class CartesiaDriver(SocketDriver):
    name = "cartesia"
    codes = MappingProxyType(
        {
            "wrong": "invalid_request",
            "unreadable": "invalid_request",
            "broken": "internal_error",
            "full": "overloaded",
            "waiting": "concurrency_limited",
            "contexts": "concurrency_limited",
            "limited": "rate_limited",
            "shutdown": "overloaded",
        }
    )
    path = f"{PATH}?cartesia_version=2026-03-01"
    has_contexts = True
    idle_constants = ("dialects.cartesia.socket_api.IDLE_S",)
    wrong = (*SocketDriver.wrong, '{"transcript": 5}', '{"other": "' + "x" * MAX_MESSAGE_BYTES + '"}')

    def headers(self, key: str) -> dict[str, str]:
        return {"X-API-Key": key}

    def text(self, context: str, text: str, **fields: Any) -> list[Any]:
        voice = {"mode": "id", "id": "tone-440"}
        message = {"model_id": "sonic-3", "context_id": context, "transcript": text, "voice": voice}
        return [{**message, "output_format": RAW, "continue": True, **fields}]

    def end(self, context: str) -> list[Any]:
        return self.text(context, "", **{"continue": False})

    def cancel(self, context: str) -> list[Any]:
        return [{"context_id": context, "cancel": True}]

    def read(self, message: Any) -> Heard:
        kind: Any = KINDS.get(message["type"], "other")
        return Heard(
            kind, message.get("context_id", ""), b64decode(message.get("data", "")), message.get("error_code")
        )
