"""jambonz ``listen`` with streaming bidirectional audio: s16le in binary messages, JSON for control.

The first message has the attributes of the call; its rate must also be that of ``bidirectionalAudio``.
FreeSWITCH's mod_audio_fork plays for the verb.

Source: docs.jambonz.org, verb listen.
"""

from collections.abc import Iterable
from typing import Final

from ..connection import MediaStreamState
from ..events import MediaStreamProtocolError, StreamEvent, StreamStarted
from ..json_object import JsonObject
from ..stream_format import linear
from .audio_fork import MIN_MEDIA_MS, SAMPLE_RATES, AudioForkMessages
from .webhooks import WebhookAnswer, json_answer

_TELEPHONE_RATE: Final = 8_000  # Hz


class JambonzStreamConnection(AudioForkMessages):
    """The gateway's side of one listen verb."""

    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        if self.state is MediaStreamState.NEW:
            return [self._start(JsonObject.parse(text))]
        return super()._read_text(text)

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
            min_media_ms=MIN_MEDIA_MS,
            number=message.text_or_none("from"),
            name=message.text_or_none("callerName"),
            called=message.text_or_none("to"),
            variables=message.variables("customerData"),
        )


def jambonz_verbs(url: str) -> WebhookAnswer:
    """Return the verbs of jambonz."""
    verb = {
        "verb": "listen",
        "url": url,
        "mixType": "mono",
        "sampleRate": _TELEPHONE_RATE,
        "passDtmf": True,
        "bidirectionalAudio": {"enabled": True, "streaming": True, "sampleRate": _TELEPHONE_RATE},
    }
    return json_answer([verb])
