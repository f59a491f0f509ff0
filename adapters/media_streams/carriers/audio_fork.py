"""Base of the streams that FreeSWITCH's mod_audio_fork carries: those of jambonz, and of its own channels.

A mark comes back as "playout", or as "cleared" when its audio was dropped. The module keeps back less than
80 ms of audio until more comes, so speech goes in packets of 80 ms.

Source: jambonz/freeswitch-modules@30f2189, mod_audio_fork/lws_glue.cpp.
"""

from collections.abc import Iterable
from typing import Final

from ..connection import MediaStreamConnection, Message, keys_of
from ..events import StreamEvent, StreamMark
from ..json_object import JsonObject
from .carrier_json import as_json

SUBPROTOCOLS: Final = ("audio.jambonz.org", "audio.drachtio.org")
SAMPLE_RATES: Final = (8_000, 16_000, 24_000, 48_000)  # Hz
MIN_MEDIA_MS: Final = 80  # of a message, to be played without waiting for the next one


class AudioForkMessages(MediaStreamConnection):
    """Audio in binary messages, JSON for control; a wire reads its own start."""

    def send_hangup(self) -> list[Message]:
        """Return ``disconnect``, which ends the stream."""
        return [as_json(type="disconnect")]

    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        message = JsonObject.parse(text)
        if message.text_or_none("event") == "dtmf":
            return keys_of(message.text("dtmf"))
        if message.text_or_none("type") == "mark":
            mark = message.child("data")
            return [StreamMark(mark.text("name"))] if mark.text_or_none("event") != "cleared" else []
        return []

    def _read_binary(self, data: bytes) -> Iterable[StreamEvent]:
        return [self._audio_of(data)]

    def _media_messages(self, audio: bytes) -> list[Message]:
        return [audio]

    def _mark_message(self, name: str) -> Message:
        return as_json(type="mark", data={"name": name})

    def _clear_messages(self) -> list[Message]:
        return [as_json(type="killAudio")]
