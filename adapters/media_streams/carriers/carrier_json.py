"""Base of the media streams whose messages are all JSON with an ``event``, audio in base64 included."""

import base64
import json
from collections.abc import Iterable
from typing import Final

from ..connection import MediaStreamConnection, Message, keys_of
from ..events import MediaStreamProtocolError, StreamEvent, StreamMark, StreamStopped
from ..json_object import JsonObject

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


class CarrierJsonConnection(MediaStreamConnection):
    """Translates what the dialects share: media, dtmf, mark and stop; a wire reads its own start."""

    stream_id = ""  # of the start

    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        message = JsonObject.parse(text)
        return self._read_event(message.text("event"), message)

    def _read_event(self, event: str, message: JsonObject) -> Iterable[StreamEvent]:
        match event:
            case "start":
                return [self._start(message)]
            case "media":
                return self._media(message.child("media"))
            case "dtmf":
                return keys_of(message.child("dtmf").text("digit"))
            case "mark":
                return [StreamMark(message.child("mark").text("name"))]
            case "stop":
                return [StreamStopped()]
            case _:
                return []  # "connected", and events that a carrier adds

    def _start(self, message: JsonObject) -> StreamEvent:
        raise NotImplementedError

    def _media(self, media: JsonObject) -> Iterable[StreamEvent]:
        if media.text_or_none("track").startswith("outbound"):
            return []  # our own speech
        return [self._audio_of(media.audio("payload"))]

    def _read_audio(self, message: Message) -> bytes | None:
        if not isinstance(message, str):
            return None
        try:
            fields = json.loads(message)
            media = fields["media"]
            if fields["event"] != "media" or ("track" in media and media["track"] != "inbound"):
                return None
            return base64.b64decode(media["payload"], validate=True)
        except (ValueError, TypeError, LookupError, RecursionError):
            return None  # not in the usual form; ``_read_text`` says what is wrong, if anything is

    def _read_binary(self, data: bytes) -> Iterable[StreamEvent]:
        raise MediaStreamProtocolError(f"got a binary message of {len(data)} bytes; all messages are JSON")


def as_json(**fields: object) -> Message:
    """Return a message without spaces."""
    return _ENCODER.encode(fields)


def as_base64(audio: bytes) -> str:
    """Return the payload of audio."""
    return base64.b64encode(audio).decode("ascii")
