"""Deepgram's two sockets for the conformance tests."""

from types import MappingProxyType
from typing import Any

from conformance.sockets.driver import Heard, SocketDriver

from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

KINDS = {"Flushed": "done", "Error": "error", "Warning": "error"}


class DeepgramDriver(SocketDriver):
    name = "deepgram"
    codes = MappingProxyType(
        {
            "wrong": "INVALID_QUERY_PARAMETER",
            "unreadable": "INVALID_QUERY_PARAMETER",
            "broken": "INTERNAL_SERVER_ERROR",
            "full": "SERVICE_UNAVAILABLE",
            "waiting": "TOO_MANY_REQUESTS",
            "limited": "TOO_MANY_REQUESTS",
            "shutdown": "SERVICE_UNAVAILABLE",
        }
    )
    path = "/v1/speak?model=tone-440"
    wrong_address = "/v1/speak?model=nobody"
    idle_constants = ("kits.transcript_socket.IDLE_S",)
    wrong = (
        *SocketDriver.wrong,
        '{"type": "Sing"}',
        '{"type": "Flush", "x": "' + "x" * MAX_MESSAGE_BYTES + '"}',
    )

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"token {key}"}

    def text(self, context: str, text: str) -> list[Any]:
        return [{"type": "Speak", "text": text}]

    def end(self, context: str) -> list[Any]:
        return [{"type": "Flush"}]

    def cancel(self, context: str) -> list[Any]:
        return [{"type": "Clear"}]

    def read(self, message: Any) -> Heard:
        if isinstance(message, bytes):
            return Heard("audio", audio=message)
        kind: Any = KINDS.get(message["type"], "other")
        return Heard(kind, code=message.get("code"))


class FluxDriver(DeepgramDriver):
    name = "deepgram-flux"
    codes = MappingProxyType(
        {
            "wrong": "MESSAGE-0000",
            "unreadable": "DATA-0000",
            "broken": "NET-0000",
            "full": "NET-0000",
            "waiting": "BIG-0000",
            "limited": "NET-0000",
            "shutdown": "NET-0000",
        }
    )
    path = "/v2/speak?model=tone-440"
    wrong_address = "/v2/speak?encoding=mp3"
    closes_on_error = 1008
    closes_at_shutdown = 1008

    def cancel(self, context: str) -> list[Any]:
        return [{"type": "Interrupt"}]

    def read(self, message: Any) -> Heard:
        if isinstance(message, dict) and message["type"] in ("SpeechMetadata", "Flushed"):
            return Heard("done" if message["type"] == "SpeechMetadata" else "other")
        return super().read(message)
