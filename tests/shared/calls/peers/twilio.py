"""A bidirectional media stream of Twilio: queue, marks, clear and errors.

``clear`` returns the marks that it drops. A message with fields that Twilio does not know, or of another
stream, is an error (31951).

Source: twilio.com/docs/voice/media-streams/websocket-messages.
"""

import base64
import json
from collections.abc import Iterable
from typing import Final

from shared.calls.peers.carrier import require_fields
from shared.calls.peers.event_carrier import SimulatedEventCarrier
from shared.calls.peers.peer import Message
from vivavoce.adapters.media_streams.stream_format import ULAW

_FIELDS: Final = {"media": ("media",), "mark": ("mark",), "clear": ()}


class SimulatedTwilio(SimulatedEventCarrier):
    """One stream."""

    carrier, sequence_field, stream_field = "twilio", "sequenceNumber", "streamSid"

    def __init__(self, call_id: str, *, token: str = "") -> None:
        super().__init__(call_id, ULAW, f"MZ{call_id}", token)

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
        self._require_stream(fields)
        match event:
            case "media":
                self._queue_audio(base64.b64decode(fields["media"]["payload"], validate=True))
            case "mark":
                self.queue.add_mark(fields["mark"]["name"])
            case _:
                return [self._played(name) for name in self._clear()]
        return []
