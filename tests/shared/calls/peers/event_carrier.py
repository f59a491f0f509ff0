"""Base of the simulated carriers whose messages are numbered JSON events: Twilio, Telnyx, Plivo, Exotel."""

import base64
import json
from collections.abc import Iterable
from typing import ClassVar

from shared.calls.peers.carrier import RefusedMessage, SimulatedCarrier, media_stream_path
from shared.calls.peers.peer import Message
from shared.calls.peers.queue import PACKET_MS
from vivavoce.adapters.media_streams.stream_format import StreamFormat


class SimulatedEventCarrier(SimulatedCarrier):
    """One stream, which every message names."""

    carrier: ClassVar[str]  # in the path of the gateway's WebSocket
    sequence_field: ClassVar[str]
    stream_field: ClassVar[str]

    def __init__(self, call_id: str, audio: StreamFormat, stream_id: str, token: str) -> None:
        super().__init__(call_id, media_stream_path(self.carrier, token), audio)
        self._stream_id = stream_id
        self._sequence = 0

    def _require_stream(self, fields: dict[str, object]) -> None:
        """Raise RefusedMessage for a message of another stream."""
        if fields[self.stream_field] != self._stream_id:
            raise RefusedMessage(f"got the stream {fields[self.stream_field]}")

    def _caller_messages(self, packet: bytes) -> Iterable[Message]:
        media = {
            "track": "inbound",
            "chunk": str(self._packets),
            "timestamp": str(self._packets * PACKET_MS),
            "payload": base64.b64encode(packet).decode(),
        }
        return [self._event("media", media=media)]

    def _played(self, name: str) -> Message:
        return self._event("mark", mark={"name": name})

    def _event(self, event: str, **fields: object) -> str:
        self._sequence += 1
        numbered = {"event": event, self.sequence_field: self._sequence_number()}
        return json.dumps({**numbered, self.stream_field: self._stream_id, **fields})

    def _sequence_number(self) -> str | int:
        return str(self._sequence)
