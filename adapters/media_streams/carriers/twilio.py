"""Twilio Media Streams, bidirectional (``<Connect><Stream>``): G.711 µ-law at 8 kHz, all messages are JSON.

Twilio plays what it has queued at real time and returns a mark when the audio before it is played, and also
when ``clear`` drops it. A message with a field that it does not know is an error (31951). The call continues
with the next TwiML when the WebSocket closes.

Source: twilio.com/docs/voice/media-streams/websocket-messages.
"""

from xml.sax.saxutils import quoteattr

from ..connection import Message
from ..events import MediaStreamProtocolError, StreamEvent, StreamStarted
from ..json_object import JsonObject
from ..stream_format import ULAW
from .carrier_json import CarrierJsonConnection, as_base64, as_json
from .webhooks import WebhookAnswer, xml_answer


class TwilioStreamConnection(CarrierJsonConnection):
    """The gateway's side of one stream. Parameters ``from``, ``to`` and ``name`` describe the caller."""

    def _start(self, message: JsonObject) -> StreamEvent:
        start = message.child("start")
        media = start.child("mediaFormat")
        encoding, rate = media.text("encoding"), media.number("sampleRate")
        if (encoding, rate) != ("audio/x-mulaw", 8_000):
            raise MediaStreamProtocolError(
                f"got {encoding[:40]} at {rate} Hz; allowed is audio/x-mulaw at 8000"
            )
        self.stream_id = start.text("streamSid")
        parameters = start.variables("customParameters")
        return StreamStarted(
            call_id=start.text("callSid"),
            format=ULAW,
            number=parameters.get("from", ""),
            name=parameters.get("name", ""),
            called=parameters.get("to", ""),
            variables=parameters,
        )

    def _media_messages(self, audio: bytes) -> list[Message]:
        return [as_json(event="media", streamSid=self.stream_id, media={"payload": as_base64(audio)})]

    def _mark_message(self, name: str) -> Message:
        return as_json(event="mark", streamSid=self.stream_id, mark={"name": name})

    def _clear_messages(self) -> list[Message]:
        return [as_json(event="clear", streamSid=self.stream_id)]


def twiml(url: str) -> WebhookAnswer:
    """Return TwiML."""
    return xml_answer(f"<Connect><Stream url={quoteattr(url)}/></Connect>")
