"""A WebSocket endpoint of Vonage's Voice API: s16le in binary messages of 20 ms, JSON for control.

Vonage plays its buffer of at most 3,072 packets. ``notify`` comes back when the audio before it was played;
``clear`` empties the buffer and is confirmed; whether waiting notifications come back then is not said, here
they do not. There is no message at the end: Vonage closes the WebSocket.

Source: developer.vonage.com/en/voice/voice-api/guides/websockets.
"""

import json
from collections.abc import Iterable
from typing import Final

from shared.calls.peers.carrier import RefusedMessage, SimulatedCarrier, media_stream_path, require_fields
from shared.calls.peers.peer import Message
from vivavoce.adapters.media_streams.stream_format import linear

_MAX_PACKETS: Final = 3_072


class SimulatedVonage(SimulatedCarrier):
    """One endpoint; the headers of its NCCO name the call and the numbers."""

    def __init__(self, call_id: str, sample_rate: int = 16_000, *, token: str = "") -> None:
        super().__init__(call_id, media_stream_path("vonage", token), linear(sample_rate))

    def start(self) -> list[Message]:
        """Return ``websocket:connected``, with the headers beside the content type."""
        connected = {
            "event": "websocket:connected",
            "content-type": f"audio/l16;rate={self.sample_rate}",
            "uuid": self.call_id,
            "from": "15550001",
            "to": "15550002",
        }
        return [json.dumps(connected)]

    def press(self, digit: str) -> list[Message]:
        """Return ``websocket:dtmf``."""
        return [json.dumps({"event": "websocket:dtmf", "digit": digit, "duration": 260})]

    def _receive(self, message: Message) -> Iterable[Message]:
        if isinstance(message, bytes):
            self._receive_packet(message)
            return []
        fields = json.loads(message)
        match fields["action"]:
            case "notify":
                require_fields(fields, "action", "payload")
                self.queue.add_mark(json.dumps(fields["payload"]))
            case "clear":
                require_fields(fields, "action")
                self._clear()
                return [json.dumps({"event": "websocket:cleared"})]
            case other:
                raise RefusedMessage(f"got the action {other}")
        return []

    def _receive_packet(self, audio: bytes) -> None:
        if len(audio) != self._packet_bytes:
            raise RefusedMessage(f"got {len(audio)} bytes of audio, not {self._packet_bytes}")
        if self.queue.packets < _MAX_PACKETS:
            self.queue.add_audio(audio)

    def _caller_messages(self, packet: bytes) -> Iterable[Message]:
        return [packet]

    def _played(self, name: str) -> Message:
        return json.dumps({"event": "websocket:notify", "payload": json.loads(name)})
