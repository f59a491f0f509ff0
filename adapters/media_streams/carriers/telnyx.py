"""Telnyx media streaming in the bidirectional mode ``rtp``: G.711 at 8 kHz, all messages are JSON.

The codec towards Telnyx is the one of the verb (``bidirectionalCodec``); it must be that of the stream
(``codec``), because a start names the latter only. ``clear`` returns the marks of the audio that it drops.

Source: developers.telnyx.com, Stream call media over WebSocket, and the TeXML verb Stream.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from xml.sax.saxutils import quoteattr

from ..connection import Message
from ..events import MediaStreamProtocolError, StreamEvent, StreamStarted, StreamWarning
from ..json_object import JsonObject
from ..stream_format import ALAW, ULAW, StreamFormat
from .carrier_json import CarrierJsonConnection, as_base64, as_json
from .webhooks import WebhookAnswer, xml_answer

_FORMATS: Final[Mapping[str, StreamFormat]] = MappingProxyType({"PCMU": ULAW, "PCMA": ALAW})


class TelnyxStreamConnection(CarrierJsonConnection):
    """The gateway's side of one stream."""

    def _read_event(self, event: str, message: JsonObject) -> Iterable[StreamEvent]:
        if event == "error":
            error = message.child("payload") if message.has("payload") else message
            text = error.text_or_none("detail") or error.text_or_none("title") or "an error without text"
            return [StreamWarning(text)]
        return super()._read_event(event, message)

    def _start(self, message: JsonObject) -> StreamEvent:
        start = message.child("start")
        encoding = start.child("media_format").text("encoding")
        stream_format = _FORMATS.get(encoding)
        if stream_format is None:
            raise MediaStreamProtocolError(
                f"got encoding {encoding[:40]!r}; allowed are {', '.join(_FORMATS)}"
            )
        self.stream_id = message.text("stream_id")
        return StreamStarted(
            call_id=start.text("call_control_id"),
            format=stream_format,
            number=start.text_or_none("from"),
            called=start.text_or_none("to"),
            variables=start.variables("custom_parameters"),
        )

    def _media_messages(self, audio: bytes) -> list[Message]:
        return [as_json(event="media", media={"payload": as_base64(audio)})]

    def _mark_message(self, name: str) -> Message:
        return as_json(event="mark", mark={"name": name})

    def _clear_messages(self) -> list[Message]:
        return [as_json(event="clear")]


def texml(url: str) -> WebhookAnswer:
    """Return TeXML of Telnyx with µ-law in both directions."""
    attributes = 'codec="PCMU" bidirectionalMode="rtp" bidirectionalCodec="PCMU"'
    return xml_answer(f"<Connect><Stream url={quoteattr(url)} {attributes}/></Connect>")
