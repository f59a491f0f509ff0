"""OpenAI's Realtime socket for the conformance tests; each text is a response."""

from base64 import b64decode
from typing import Any

from conformance.sockets.driver import OPENAI_CODES, Heard, SocketDriver

from vivavoce.gateway.apis.dialects.realtime.dialect import PATH
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES


class RealtimeDriver(SocketDriver):
    name = "realtime"
    path = f"{PATH}?model=gpt-realtime"
    idle_constants = ("kits.transcript_socket.IDLE_S",)
    codes = OPENAI_CODES
    wrong = (
        *SocketDriver.wrong,
        '{"type": "sing"}',
        '{"type": "response.create", "response": {"input": 1}}',
        '{"type": "response.create"}',
        '{"type": "response.cancel"}',
        '{"type": "input_audio_buffer.append", "audio": "' + "x" * MAX_MESSAGE_BYTES + '"}',
    )

    def begin(self, context: str) -> list[Any]:
        output = {"voice": "tone-440", "format": {"type": "audio/pcm", "rate": 24_000}}
        return [{"type": "session.update", "session": {"type": "realtime", "audio": {"output": output}}}]

    def text(self, context: str, text: str) -> list[Any]:
        content = [{"type": "output_text", "text": text}]
        item = {"type": "message", "role": "assistant", "content": content}
        return [{"type": "conversation.item.create", "item": item}, {"type": "response.create"}]

    def end(self, context: str) -> list[Any]:
        return []

    def cancel(self, context: str) -> list[Any]:
        return [{"type": "response.cancel"}]

    def read(self, message: Any) -> Heard:
        match message["type"]:
            case "response.output_audio.delta":
                return Heard("audio", audio=b64decode(message["delta"]))
            case "response.done" if message["response"]["status"] != "failed":
                return Heard("done")
            case "response.done":
                return _error(message["response"]["status_details"]["error"])
            case "error":
                return _error(message["error"])
        return Heard("other")


def _error(error: Any) -> Heard:
    return Heard("error", code=error["code"] or error["type"])
