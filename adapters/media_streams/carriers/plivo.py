"""Plivo audio streaming, bidirectional: µ-law at 8 kHz or s16le at 8 or 16 kHz, all messages are JSON.

A ``checkpoint`` comes back as ``playedStream`` when the audio before it was played, and not at all when
``clearAudio`` dropped it.

Source: docs.plivo.com/docs/voice/xml/audiostream; plivo.com/docs, the stream events.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from xml.sax.saxutils import escape

from ..connection import Message
from ..events import MediaStreamProtocolError, StreamEvent, StreamMark, StreamStarted
from ..json_object import JsonObject
from ..stream_format import ULAW, StreamFormat, linear
from .carrier_json import CarrierJsonConnection, as_base64, as_json
from .webhooks import WebhookAnswer, xml_answer

_FORMATS: Final[Mapping[tuple[str, int], StreamFormat]] = MappingProxyType(
    {
        ("audio/x-mulaw", 8_000): ULAW,
        ("audio/x-l16", 8_000): linear(8_000),
        ("audio/x-l16", 16_000): linear(16_000),
    }
)


class PlivoStreamConnection(CarrierJsonConnection):
    """The gateway's side of one stream."""

    def __init__(self) -> None:
        super().__init__()
        self._media_format: dict[str, object] = {}

    def _read_event(self, event: str, message: JsonObject) -> Iterable[StreamEvent]:
        if event == "playedStream":
            return [StreamMark(message.text("name"))]
        return super()._read_event(event, message)

    def _start(self, message: JsonObject) -> StreamEvent:
        start = message.child("start")
        media = start.child("mediaFormat")
        encoding, rate = media.text("encoding"), media.number("sampleRate")
        stream_format = _FORMATS.get((encoding, rate))
        if stream_format is None:
            allowed = ", ".join(f"{name};rate={hertz}" for name, hertz in _FORMATS)
            raise MediaStreamProtocolError(f"got {encoding[:40]};rate={rate}; allowed are {allowed}")
        self.stream_id = start.text("streamId")
        self._media_format = {"contentType": encoding, "sampleRate": rate}
        extra_headers = message.text_or_none("extra_headers")
        return StreamStarted(
            call_id=start.text("callId"),
            format=stream_format,
            variables={"extra_headers": extra_headers} if extra_headers else {},
        )

    def _media_messages(self, audio: bytes) -> list[Message]:
        media = {**self._media_format, "payload": as_base64(audio)}
        return [as_json(event="playAudio", streamId=self.stream_id, media=media)]

    def _mark_message(self, name: str) -> Message:
        return as_json(event="checkpoint", streamId=self.stream_id, name=name)

    def _clear_messages(self) -> list[Message]:
        return [as_json(event="clearAudio", streamId=self.stream_id)]


def plivo_xml(url: str) -> WebhookAnswer:
    """Return Plivo's XML; the call lasts as long as its stream."""
    attributes = 'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000"'
    return xml_answer(f"<Stream {attributes}>{escape(url)}</Stream>")
