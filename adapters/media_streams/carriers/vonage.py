"""Vonage Voice API WebSockets: s16le in binary messages of 20 ms, JSON for control.

The first message names the format, and has the headers of the NCCO beside it. ``notify`` comes back when the
audio before it was played; ``clear`` drops the queue.

Source: developer.vonage.com/en/voice/voice-api/guides/websockets.
"""

import re
from collections.abc import Iterable
from typing import Final

from ..connection import MediaStreamConnection, Message, keys_of
from ..events import MediaStreamProtocolError, StreamEvent, StreamMark, StreamStarted
from ..json_object import JsonObject
from ..stream_format import linear
from .carrier_json import as_json
from .webhooks import WebhookAnswer, json_answer

SAMPLE_RATES: Final = (8_000, 16_000, 24_000)  # Hz
_CONTENT_TYPE: Final = re.compile(r"audio/l16;\s*rate=(\d{4,5})", re.ASCII)
_PACKET_MS: Final = 20
_SENT_RATE: Final = 16_000  # Hz, of the speech
_MAX_HEADERS: Final = ("uuid", "from", "to", "name", "conversation_uuid")


class VonageStreamConnection(MediaStreamConnection):
    """The gateway's side of one stream. Headers ``uuid``, ``from``, ``to``, ``name`` describe the call."""

    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        message = JsonObject.parse(text)
        match message.text("event"):
            case "websocket:connected":
                return [self._start(message)]
            case "websocket:dtmf":
                return keys_of((message if message.has("digit") else message.child("dtmf")).text("digit"))
            case "websocket:notify":
                payload = message.child("payload")
                return [StreamMark(payload.text("mark"))] if payload.has("mark") else []
            case _:
                return []

    def _read_binary(self, data: bytes) -> Iterable[StreamEvent]:
        return [self._audio_of(data)]

    def _start(self, message: JsonObject) -> StreamEvent:
        content_type = message.text("content-type")
        match = _CONTENT_TYPE.fullmatch(content_type)
        rate = int(match[1]) if match else 0
        if rate not in SAMPLE_RATES:
            allowed = ", ".join(f"audio/l16;rate={one}" for one in SAMPLE_RATES)
            raise MediaStreamProtocolError(f"content-type: got {content_type[:40]!r}; allowed are {allowed}")
        headers = {name: message.text_or_none(name) for name in _MAX_HEADERS}
        return StreamStarted(
            call_id=headers["uuid"],
            format=linear(rate),
            number=headers["from"],
            name=headers["name"],
            called=headers["to"],
            variables={name: value for name, value in headers.items() if value},
        )

    def _media_messages(self, audio: bytes) -> list[Message]:
        assert self._format is not None
        size = self._format.bytes_per_ms * _PACKET_MS
        return [audio[start : start + size] for start in range(0, len(audio), size)]

    def _mark_message(self, name: str) -> Message:
        return as_json(action="notify", payload={"mark": name})

    def _clear_messages(self) -> list[Message]:
        return [as_json(action="clear")]


def ncco(url: str) -> WebhookAnswer:
    """Return the NCCO of Vonage, with speech at 16 kHz."""
    endpoint = {"type": "websocket", "uri": url, "content-type": f"audio/l16;rate={_SENT_RATE}"}
    return json_answer([{"action": "connect", "endpoint": [endpoint]}])
