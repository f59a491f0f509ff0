"""jambonz ``listen`` with streaming bidirectional audio: s16le in binary messages, JSON for control.

The first message has the attributes of the call; its rate must also be that of ``bidirectionalAudio``. A mark
comes back as "playout", or as "cleared" when its audio was dropped. FreeSWITCH's mod_audio_fork plays for the
verb; it keeps back less than 80 ms of audio until more comes, so speech goes in packets of 80 ms.

Source: docs.jambonz.org, verb listen; jambonz/freeswitch-modules@30f2189, mod_audio_fork/lws_glue.cpp.
"""

from collections.abc import Iterable
from typing import Final

from ..connection import MediaStreamConnection, MediaStreamState, Message, keys_of
from ..events import MediaStreamProtocolError, StreamEvent, StreamMark, StreamStarted
from ..json_object import JsonObject
from ..stream_format import linear
from .carrier_json import as_json

SUBPROTOCOLS: Final = ("audio.jambonz.org", "audio.drachtio.org")
SAMPLE_RATES: Final = (8_000, 16_000, 24_000, 48_000)  # Hz
MIN_MEDIA_MS: Final = 80  # of a message, to be played without waiting for the next one


class JambonzStreamConnection(MediaStreamConnection):
    """The gateway's side of one listen verb."""

    def send_hangup(self) -> list[Message]:
        """Return ``disconnect``, which ends the verb."""
        return [as_json(type="disconnect")]

    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        message = JsonObject.parse(text)
        if self.state is MediaStreamState.NEW:
            return [self._start(message)]
        if message.text_or_none("event") == "dtmf":
            return keys_of(message.text("dtmf"))
        if message.text_or_none("type") == "mark":
            mark = message.child("data")
            return [StreamMark(mark.text("name"))] if mark.text_or_none("event") != "cleared" else []
        return []

    def _read_binary(self, data: bytes) -> Iterable[StreamEvent]:
        return [self._audio_of(data)]

    def _start(self, message: JsonObject) -> StreamEvent:
        rate = message.number("sampleRate") if message.has("sampleRate") else 8_000
        mix = message.text_or_none("mixType") or "mono"
        if rate not in SAMPLE_RATES or mix != "mono":
            raise MediaStreamProtocolError(
                f"got {mix[:40]} at {rate} Hz; allowed is mono at {', '.join(map(str, SAMPLE_RATES))}"
            )
        return StreamStarted(
            call_id=message.text_or_none("callSid"),
            format=linear(rate),
            packet_ms=MIN_MEDIA_MS,
            number=message.text_or_none("from"),
            name=message.text_or_none("callerName"),
            called=message.text_or_none("to"),
            variables=message.variables("customerData"),
        )

    def _media_messages(self, audio: bytes) -> list[Message]:
        return [audio]

    def _mark_message(self, name: str) -> Message:
        return as_json(type="mark", data={"name": name})

    def _clear_messages(self) -> list[Message]:
        return [as_json(type="killAudio")]
