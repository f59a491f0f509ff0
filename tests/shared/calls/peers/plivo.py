"""A bidirectional audio stream of Plivo: queue, checkpoints and clearAudio.

A checkpoint comes back as ``playedStream`` if the audio before it was played, not at all if ``clearAudio``
dropped it, which ``clearedAudio`` confirms. There is no message at the end: Plivo closes the WebSocket.

Source: plivo.com/docs, Audio streaming, messages from and to Plivo.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from shared.calls.peers.carrier import RefusedMessage, require_fields
from shared.calls.peers.event_carrier import SimulatedEventCarrier
from shared.calls.peers.peer import Message
from shared.calls.peers.queue import PACKET_MS
from vivavoce.adapters.media_streams.stream_format import ULAW, linear


class SimulatedPlivo(SimulatedEventCarrier):
    """One stream. ``content_type`` is that of the XML: audio/x-mulaw at 8000 Hz, or audio/x-l16."""

    carrier, sequence_field, stream_field = "plivo", "sequenceNumber", "streamId"

    def __init__(
        self,
        call_id: str,
        content_type: str = "audio/x-mulaw",
        sample_rate: int = 8_000,
        *,
        token: str = "",
    ) -> None:
        audio = ULAW if content_type == "audio/x-mulaw" else linear(sample_rate)
        super().__init__(call_id, audio, "20170ada-f610-433b-8758-c02a2aab3662", token)
        self._content_type = content_type

    def start(self) -> list[Message]:
        """Return ``start``."""
        start = {
            "callId": self.call_id,
            "streamId": self._stream_id,
            "accountId": "MA0",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": self._content_type, "sampleRate": self.sample_rate},
        }
        message = {"event": "start", "sequenceNumber": 0, "start": start, "extra_headers": "userId=12345"}
        return [json.dumps(message)]

    def press(self, digit: str) -> list[Message]:
        """Return ``dtmf``."""
        return [self._event("dtmf", dtmf={"track": "inbound", "digit": digit, "timestamp": "1700000000000"})]

    def _receive(self, message: Message) -> Iterable[Message]:
        fields = json.loads(message)
        self._require_stream(fields)
        match fields["event"]:
            case "playAudio":
                require_fields(fields, "event", "streamId", "media")
                self._play(fields["media"])
            case "checkpoint":
                require_fields(fields, "event", "streamId", "name")
                self.queue.add_mark(fields["name"])
            case "clearAudio":
                require_fields(fields, "event", "streamId")
                self._clear()
                return [self._event("clearedAudio")]
            case other:
                raise RefusedMessage(f"got the event {other}")
        return []

    def _play(self, media: Mapping[str, Any]) -> None:
        require_fields(media, "contentType", "sampleRate", "payload")
        if (media["contentType"], media["sampleRate"]) != (self._content_type, self.sample_rate):
            raise RefusedMessage(f"got {media['contentType']} at {media['sampleRate']} Hz")
        self._queue_audio(base64.b64decode(media["payload"], validate=True))

    def _caller_messages(self, packet: bytes) -> Iterable[Message]:
        media = {
            "track": "inbound",
            "timestamp": str(self._packets * PACKET_MS),
            "chunk": self._packets,
            "payload": base64.b64encode(packet).decode(),
        }
        return [self._event("media", media=media, extra_headers="userId=12345")]

    def _played(self, name: str) -> Message:
        return self._event("playedStream", name=name)

    def _sequence_number(self) -> int:
        return self._sequence
