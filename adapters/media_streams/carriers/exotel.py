"""Exotel AgentStream, the Voicebot applet: s16le at 8, 16 or 24 kHz, all messages are JSON.

A message of audio must have a multiple of 320 bytes, and at least 3,200; speech therefore goes in messages of
200 ms or more.

Source: developer.exotel.com/docs/agentstream, websocket-protocol and stream-voicebot-applet.
"""

from typing import Final

from ..connection import Message
from ..events import MediaStreamProtocolError, StreamEvent, StreamStarted
from ..json_object import JsonObject
from ..stream_format import linear
from .carrier_json import CarrierJsonConnection, as_base64, as_json
from .webhooks import WebhookAnswer, json_answer

SAMPLE_RATES: Final = (8_000, 16_000, 24_000)  # Hz
MIN_MEDIA_MS: Final = 200  # 3,200 bytes at 8 kHz


class ExotelStreamConnection(CarrierJsonConnection):
    """The gateway's side of one stream."""

    def _start(self, message: JsonObject) -> StreamEvent:
        start = message.child("start")
        rate = start.child("media_format").number("sample_rate")
        if rate not in SAMPLE_RATES:
            raise MediaStreamProtocolError(f"got {rate} Hz; allowed are 8000, 16000 and 24000")
        self.stream_id = start.text("stream_sid")
        return StreamStarted(
            call_id=start.text("call_sid"),
            format=linear(rate),
            min_media_ms=MIN_MEDIA_MS,
            number=start.text_or_none("from"),
            called=start.text_or_none("to"),
            variables=start.variables("custom_parameters"),
        )

    def _media_messages(self, audio: bytes) -> list[Message]:
        return [as_json(event="media", stream_sid=self.stream_id, media={"payload": as_base64(audio)})]

    def _mark_message(self, name: str) -> Message:
        return as_json(event="mark", stream_sid=self.stream_id, mark={"name": name})

    def _clear_messages(self) -> list[Message]:
        return [as_json(event="clear", stream_sid=self.stream_id)]


def exotel_url(url: str) -> WebhookAnswer:
    """Return the URL for the Voicebot applet of Exotel."""
    return json_answer({"url": url})
