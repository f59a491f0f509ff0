"""Inworld's socket for the conformance tests."""

from base64 import b64decode
from types import MappingProxyType
from typing import Any

from conformance.sockets.driver import Heard, SocketDriver

from vivavoce.gateway.apis.dialects.inworld.socket_api import PATH
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

PCM = {"audioEncoding": "PCM", "sampleRateHertz": 24_000}


class InworldDriver(SocketDriver):
    name = "inworld"
    codes = MappingProxyType(
        {
            "wrong": 3,
            "unreadable": 3,
            "broken": 13,
            "full": 14,
            "waiting": 8,
            "contexts": 8,
            "limited": 8,
            "shutdown": 14,
        }
    )
    path = PATH
    has_contexts = True
    idle_constants = (
        "dialects.inworld.context.MAX_SILENCE_S",
        "dialects.inworld.socket_api.MAX_SILENCE_S",
    )
    wrong = (*SocketDriver.wrong, '{"create": {}}', '{"flush_context": "' + "x" * MAX_MESSAGE_BYTES + '"}')

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Basic {key}"}

    def begin(self, context: str) -> list[Any]:
        config = {"voiceId": "tone-440", "modelId": "inworld-tts-2", "audioConfig": PCM}
        return [{"create": config, "contextId": context}]

    def text(self, context: str, text: str) -> list[Any]:
        return [{"send_text": {"text": text}, "contextId": context}]

    def end(self, context: str) -> list[Any]:
        return [{kind: {}, "contextId": context} for kind in ("flush_context", "close_context")]

    def cancel(self, context: str) -> list[Any]:
        return [{"cancel_context": {}, "contextId": context}]

    def read(self, message: Any) -> Heard:
        result = message["result"]
        context = result.get("contextId", "")
        if code := result["status"]["code"]:
            return Heard("error", context, code=code)
        if "contextClosed" in result:
            return Heard("done", context)
        audio = result.get("audioChunk", {}).get("audioContent", "")
        return Heard("audio" if audio else "other", context, b64decode(audio))
