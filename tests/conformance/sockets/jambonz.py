"""jambonz' socket for the conformance tests."""

from typing import Any

from conformance.sockets.driver import Heard, SocketDriver

from vivavoce.gateway.apis.dialects.jambonz.dialect import PATH
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES


class JambonzDriver(SocketDriver):
    name = "jambonz"
    path = f"{PATH}?voice=tone-440&sampleRate=24000"
    wrong_address = f"{PATH}?voice=nobody"
    has_done = False
    is_cancel_the_end = True
    idle_constants = ("kits.transcript_socket.IDLE_S",)
    wrong = (
        *SocketDriver.wrong,
        '{"type": "sing"}',
        '{"type": "flush", "x": "' + "x" * MAX_MESSAGE_BYTES + '"}',
    )

    def text(self, context: str, text: str) -> list[Any]:
        return [{"type": "stream", "text": text}]

    def end(self, context: str) -> list[Any]:
        return [{"type": "flush"}]

    def cancel(self, context: str) -> list[Any]:
        return [{"type": "stop"}]

    def read(self, message: Any) -> Heard:
        if isinstance(message, bytes):
            return Heard("audio", audio=message)
        return Heard("error" if message["type"] == "error" else "other", code=message.get("error"))
