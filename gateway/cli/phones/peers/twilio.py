"""A bidirectional media stream of Twilio: queue, marks, clear and errors.

``clear`` returns the marks that it drops. A message with fields that Twilio does not know, or of another
stream, is an error (31951).

Source: twilio.com/docs/voice/media-streams/websocket-messages.
"""

import base64
import json
from collections.abc import Iterable
from typing import Final

from .....adapters.media_streams.stream_format import ULAW
from .carrier import RefusedMessage, SimulatedCarrier, media_stream_path, require_fields
from .peer import Message
from .queue import PACKET_MS

_FIELDS: Final = {"media": ("media",), "mark": ("mark",), "clear": ()}


class SimulatedTwilio(SimulatedCarrier):
    """One stream."""

    def __init__(self, call_id: str, *, token: str = "") -> None:
        super().__init__(call_id, media_stream_path("twilio", token), ULAW)
        self._stream_id = f"MZ{call_id}"
        self._sequence = 0

    def start(self) -> list[Message]:
        """Return ``connected`` and ``start``."""
        connected = json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"})
        start = {
            "accountSid": "AC0",
            "streamSid": self._stream_id,
            "callSid": self.call_id,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {"from": "+15550001", "to": "+15550002"},
        }
        return [connected, self._event("start", start=start)]

    def press(self, digit: str) -> list[Message]:
        """Return ``dtmf``."""
        return [self._event("dtmf", dtmf={"track": "inbound_track", "digit": digit})]

    def hang_up(self) -> list[Message]:
        """Return ``stop``."""
        return [self._event("stop", stop={"accountSid": "AC0", "callSid": self.call_id})]

    def _receive(self, message: Message) -> Iterable[Message]:
        fields = json.loads(message)
        event = fields["event"]
        require_fields(fields, "event", "streamSid", *_FIELDS[event])
        if fields["streamSid"] != self._stream_id:
            raise RefusedMessage(f"got the stream {fields['streamSid']}")
        match event:
            case "media":
                self._queue_audio(base64.b64decode(fields["media"]["payload"], validate=True))
            case "mark":
                self.queue.add_mark(fields["mark"]["name"])
            case _:
                return [self._played(name) for name in self._clear()]
        return []

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

    def _event(self, name: str, **fields: object) -> str:
        self._sequence += 1
        return json.dumps(
            {"event": name, "sequenceNumber": str(self._sequence), "streamSid": self._stream_id, **fields}
        )
