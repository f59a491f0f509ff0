"""A FreeSWITCH that streams a channel with mod_audio_fork or mod_audio_stream.

Both send the caller's audio in binary messages, after one text, the metadata of the command, if it has any.
mod_audio_fork plays as jambonz, which is built on it. mod_audio_stream plays base64 in ``streamAudio`` and
reports nothing; other texts become events of FreeSWITCH, and some builds drop their audio at killAudio.

Source: jambonz/freeswitch-modules@30f2189, mod_audio_fork; amigniter/mod_audio_stream@ec2a781, README;
voxcom-us/mod_audio_stream@88a7743, audio_streamer_glue.cpp (the open build that plays).
"""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from shared.calls.peers.carrier import RefusedMessage, SimulatedCarrier, media_stream_path
from shared.calls.peers.jambonz import SimulatedJambonz
from shared.calls.peers.peer import Message
from vivavoce.adapters.media_streams.stream_format import linear


def _with_parameters(path: str, call_id: str, sample_rate: int) -> str:
    parameters = {"call": call_id, "rate": sample_rate, "caller": "15550001", "called": "15550002"}
    return f"{path}?{urlencode(parameters)}"


class SimulatedAudioFork(SimulatedJambonz):
    """One channel with mod_audio_fork; without metadata if it is ""."""

    subprotocols: tuple[str, ...] = ("audio.drachtio.org",)

    def __init__(
        self, call_id: str, sample_rate: int = 8_000, *, token: str = "", metadata: str = ""
    ) -> None:
        super().__init__(call_id, sample_rate, token=token, carrier="mod_audio_fork")
        self.path = _with_parameters(self.path, call_id, sample_rate)
        self._metadata = metadata

    def start(self) -> list[Message]:
        """Return the metadata."""
        return [self._metadata] if self._metadata else []

    def press(self, digit: str) -> list[Message]:
        """Return what a dial plan sends with ``send_text``."""
        return [json.dumps({"event": "dtmf", "dtmf": digit})]


class SimulatedAudioStream(SimulatedCarrier):
    """One channel with mod_audio_stream.

    Args:
        metadata: of the command; "": none.
        is_patched: whether killAudio drops the audio that waits.
    """

    def __init__(
        self,
        call_id: str,
        sample_rate: int = 8_000,
        *,
        token: str = "",
        metadata: str = "",
        is_patched: bool = True,
    ) -> None:
        path = media_stream_path("mod_audio_stream", token)
        super().__init__(call_id, _with_parameters(path, call_id, sample_rate), linear(sample_rate))
        self.events: list[str] = []  # of FreeSWITCH, mod_audio_stream::json
        self._metadata = metadata
        self._is_patched = is_patched

    def start(self) -> list[Message]:
        """Return the metadata."""
        return [self._metadata] if self._metadata else []

    def press(self, digit: str) -> list[Message]:
        """Return what a dial plan sends with ``send_text``."""
        return [json.dumps({"event": "dtmf", "dtmf": digit})]

    def _receive(self, message: Message) -> Iterable[Message]:
        if isinstance(message, bytes):
            raise RefusedMessage("got a binary message, which only the commercial build plays")
        fields = json.loads(message)
        if fields["type"] == "streamAudio":
            self._play(fields["data"])
            return []
        self.events.append(fields["type"])
        if fields["type"] == "killAudio":
            self.flushes += 1
            if self._is_patched:
                self._rest = b""
                self.queue.clear()
        return []

    def _play(self, data: Mapping[str, Any]) -> None:
        if (data["audioDataType"], data["sampleRate"]) != ("raw", self.sample_rate):
            raise RefusedMessage(f"got {data['audioDataType']} at {data['sampleRate']} Hz")
        self._queue_audio(base64.b64decode(data["audioData"], validate=True))

    def _caller_messages(self, packet: bytes) -> Iterable[Message]:
        return [packet]

    def _played(self, name: str) -> Message:
        raise NotImplementedError  # it has no marks
