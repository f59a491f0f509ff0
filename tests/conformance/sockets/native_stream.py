"""The native stream for the conformance tests."""

from typing import Any

import pytest
from conformance.sockets.driver import OPENAI_CODES, Heard, SocketDriver

from vivavoce.gateway.apis.dialects.native_stream import socket_api

KINDS = {"session.done": "done", "error": "error"}


class NativeStreamDriver(SocketDriver):
    name = "native_stream"
    codes = OPENAI_CODES
    path = socket_api.PATH
    text_limit = (socket_api, "MAX_QUEUED_CHARACTERS")
    wrong = (*SocketDriver.wrong, '{"type": "input.audio"}', '{"type": "input.text"}')

    def begin(self, context: str) -> list[Any]:
        return [{"type": "session.config", "voice": "tone-440", "response_format": "pcm"}]

    def text(self, context: str, text: str) -> list[Any]:
        return [{"type": "input.text", "text": text}]

    def end(self, context: str) -> list[Any]:
        return [{"type": "input.done"}]

    def end_of_failed(self, context: str) -> list[Any]:
        return self.end(context)

    def cancel(self, context: str) -> list[Any]:
        return [{"type": "input.cancel"}]

    def read(self, message: Any) -> Heard:
        if isinstance(message, bytes):
            return Heard("audio", audio=message)
        kind: Any = KINDS.get(message["type"], "other")
        return Heard(kind, code=message.get("code") or message.get("message"))

    def shorten_idle_time(self, patch: pytest.MonkeyPatch, served: Any, seconds: float) -> None:
        for api in served.apis.opened["native_stream"].apis:
            patch.setattr(api, "idle_s", seconds)
