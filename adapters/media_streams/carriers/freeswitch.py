"""FreeSWITCH's modules that stream a channel: mod_audio_fork (its build of jambonz) and mod_audio_stream.

Both send the caller's audio as s16le in binary messages, after one text of any form, the metadata of the
command, if it has any. The rate and the caller are therefore parameters of the URL:

    ?rate=16000&call=UUID&caller=NUMBER&name=NAME&called=NUMBER

Metadata that are a JSON object may have them too, and come first. Texts that a dial plan sends later
(``send_text``) are ignored, but for keys in the form of jambonz, ``{"event": "dtmf", "dtmf": "5"}``.

    mod_audio_fork     speech in binary messages; marks, killAudio and disconnect as jambonz
    mod_audio_stream   speech in base64 (streamAudio), no marks. killAudio and disconnect become events of
                       FreeSWITCH; a build that does not drop its audio at killAudio plays what it holds

Source: jambonz/freeswitch-modules@30f2189, mod_audio_fork; amigniter/mod_audio_stream@ec2a781, README;
voxcom-us/mod_audio_stream@88a7743, audio_streamer_glue.cpp (the open build that plays).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ..connection import MediaStreamConnection, MediaStreamState, Message, keys_of
from ..events import MediaStreamProtocolError, StreamEvent, StreamStarted
from ..json_object import JsonObject, bounded_texts
from ..stream_format import linear
from .audio_fork import MIN_MEDIA_MS, SAMPLE_RATES, AudioForkMessages
from .carrier_json import as_base64, as_json

MAX_AHEAD_S: Final = 0.3  # of mod_audio_stream: plays on after a barge-in if it cannot drop its audio


class AudioForkConnection(AudioForkMessages):
    """The gateway's side of one channel with mod_audio_fork; ``parameters`` are those of the URL."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        super().__init__()
        self._parameters = parameters

    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        if self.state is MediaStreamState.NEW:
            return [self._started(text)]
        return super()._read_text(text) if text.startswith("{") else []

    def _read_binary(self, data: bytes) -> Iterable[StreamEvent]:
        if self.state is MediaStreamState.NEW:
            yield self._started("")
        yield self._audio_of(data)

    def _started(self, metadata: str) -> StreamStarted:
        return replace(_started_by(self._parameters, metadata), min_media_ms=MIN_MEDIA_MS)


class AudioStreamConnection(MediaStreamConnection):
    """The gateway's side of one channel with mod_audio_stream; ``parameters`` are those of the URL."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        super().__init__()
        self._parameters = parameters

    def send_hangup(self) -> list[Message]:
        """Return ``disconnect``, an event for FreeSWITCH."""
        return [as_json(type="disconnect")]

    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        if self.state is MediaStreamState.NEW:
            return [self._started(text)]
        if not text.startswith("{"):
            return []
        message = JsonObject.parse(text)
        return keys_of(message.text("dtmf")) if message.text_or_none("event") == "dtmf" else []

    def _read_binary(self, data: bytes) -> Iterable[StreamEvent]:
        if self.state is MediaStreamState.NEW:
            yield self._started("")
        yield self._audio_of(data)

    def _started(self, metadata: str) -> StreamStarted:
        started = _started_by(self._parameters, metadata)
        return replace(started, max_ahead_s=MAX_AHEAD_S, reports_marks=False)

    def _media_messages(self, audio: bytes) -> list[Message]:
        assert self._format is not None
        data = {
            "audioDataType": "raw",
            "sampleRate": self._format.sample_rate,
            "audioData": as_base64(audio),
        }
        return [as_json(type="streamAudio", data=data)]

    def _mark_message(self, name: str) -> Message:
        return as_json(type="mark", data={"name": name})  # never asked for: ``reports_marks`` is False

    def _clear_messages(self) -> list[Message]:
        return [as_json(type="killAudio")]


def _started_by(parameters: Mapping[str, str], metadata: str) -> StreamStarted:
    fields = bounded_texts(parameters)
    if metadata.startswith("{"):
        fields |= JsonObject.parse(metadata).texts()
    elif metadata:
        fields |= bounded_texts({"metadata": metadata})
    rate = fields.get("rate", "8000")
    if rate not in map(str, SAMPLE_RATES):
        raise MediaStreamProtocolError(
            f"rate: got {rate[:40]!r}; allowed are {', '.join(map(str, SAMPLE_RATES))}"
        )
    return StreamStarted(
        call_id=fields.get("call", ""),
        format=linear(int(rate)),
        number=fields.get("caller", ""),
        name=fields.get("name", ""),
        called=fields.get("called", ""),
        variables=fields,
    )
