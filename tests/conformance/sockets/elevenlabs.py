"""ElevenLabs' two sockets for the conformance tests."""

from base64 import b64decode
from types import MappingProxyType
from typing import Any

from conformance.sockets.driver import Heard, SocketDriver

from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

QUERY = "model_id=eleven_flash_v2_5&output_format=pcm_24000"


class ElevenLabsContextsDriver(SocketDriver):
    name = "elevenlabs-contexts"
    codes = MappingProxyType(
        {
            "wrong": "invalid_request",
            "unreadable": "invalid_request",
            "broken": "internal_error",
            "full": "system_busy",
            "waiting": "too_many_concurrent_requests",
            "contexts": "max_active_conversations",
            "limited": "too_many_concurrent_requests",
            "shutdown": "system_busy",
        }
    )
    path = f"/v1/text-to-speech/tone-440/multi-stream-input?{QUERY}"
    wrong_address = f"/v1/text-to-speech/nobody/multi-stream-input?{QUERY}"
    has_contexts = True
    idle_constants = ("dialects.elevenlabs.socket_api.IDLE_S",)
    # An object without fields is one that keeps the context alive.
    wrong = ("no JSON", "[1]", b"\0", '{"text": 5}', '{"other": "' + "x" * MAX_MESSAGE_BYTES + '"}')

    def headers(self, key: str) -> dict[str, str]:
        return {"xi-api-key": key}

    def text(self, context: str, text: str) -> list[Any]:
        return [{"text": text, "context_id": context}]

    def end(self, context: str) -> list[Any]:
        named = {"context_id": context}
        return [{"flush": True, **named}, {"close_context": True, **named}]

    def cancel(self, context: str) -> list[Any]:
        return [{"context_id": context, "close_context": True}]

    def read(self, message: Any) -> Heard:
        context = message.get("contextId") or ""
        if "error" in message:
            return Heard("error", context, code=message["error"])
        if message.get("isFinal"):
            return Heard("done", context)
        return Heard("audio", context, b64decode(message["audio"]))


class ElevenLabsTextDriver(ElevenLabsContextsDriver):
    """One text, after which the socket closes."""

    name = "elevenlabs-text"
    path = f"/v1/text-to-speech/tone-440/stream-input?{QUERY}"
    wrong_address = f"/v1/text-to-speech/tone-440/stream-input?{QUERY}&inactivity_timeout=181"
    has_contexts = False
    closes_on_error = 1008
    closes_at_shutdown = 1000
    is_second_text_refused = False  # there is none

    def text(self, context: str, text: str) -> list[Any]:
        return [{"text": text}]

    def end(self, context: str) -> list[Any]:
        return [{"text": ""}]

    def cancel(self, context: str) -> list[Any]:
        return []
