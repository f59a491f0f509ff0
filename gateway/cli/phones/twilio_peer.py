"""A bidirectional media stream of Twilio, from its documentation: queue, marks, clear and errors.

``clear`` returns the marks that it drops. A message with fields that Twilio does not know, or of another
stream, is an error here: the call ends, so that a test sees it.
"""

import base64
import json
from typing import Final

from ....adapters.media_streams.stream_format import ULAW
from .peer import Message, PeerStep
from .peer_queue import PACKET_MS, PeerQueue

_FIELDS: Final = {
    "media": {"event", "streamSid", "media"},
    "mark": {"event", "streamSid", "mark"},
    "clear": {"event", "streamSid"},
}


class SimulatedTwilio:
    """One stream."""

    subprotocols: tuple[str, ...] = ()
    sample_rate = ULAW.sample_rate

    def __init__(self, call_id: str, *, token: str = "") -> None:
        self.call_id = call_id
        self.path = "/v1/media-streams/twilio" + (f"/{token}" if token else "")
        self.has_hung_up = False
        self.flushes = 0
        self.queue = PeerQueue(ULAW.bytes_per_ms * PACKET_MS)
        self._stream_id = f"MZ{call_id}"
        self._sequence = 0
        self._packets = 0
        self._rest = b""  # of media, which may have any length
        self._silence = bytes(2 * self.sample_rate * PACKET_MS // 1000)
        self._payload = base64.b64encode(ULAW.encode(self._silence)).decode()

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

    def receive(self, message: Message) -> list[Message]:
        """Take a message; one that Twilio would refuse ends the call."""
        fields = json.loads(message) if isinstance(message, str) else {}
        event = fields.get("event", "")
        if set(fields) != _FIELDS.get(event) or fields["streamSid"] != self._stream_id:
            self.has_hung_up = True
            return []
        match event:
            case "media":
                audio = self._rest + base64.b64decode(fields["media"]["payload"], validate=True)
                whole = len(audio) // 160 * 160
                self.queue.add_audio(audio[:whole])
                self._rest = audio[whole:]
            case "mark":
                self.queue.add_mark(fields["mark"]["name"])
            case "clear":
                self.flushes += 1
                self._rest = b""
                return [self._mark(name) for name in self.queue.clear()]
        return []

    def step(self) -> PeerStep:
        """Play one packet, and send one of silence."""
        played = self.queue.play()
        self._packets += 1
        media = {
            "track": "inbound",
            "chunk": str(self._packets),
            "timestamp": str(self._packets * PACKET_MS),
            "payload": self._payload,
        }
        messages = [self._event("media", media=media), *(self._mark(name) for name in played.marks)]
        return PeerStep(tuple(messages), ULAW.decode(played.audio) or self._silence)

    def press(self, digit: str) -> list[Message]:
        """Return ``dtmf``."""
        return [self._event("dtmf", dtmf={"track": "inbound_track", "digit": digit})]

    def hang_up(self) -> list[Message]:
        """Return ``stop``."""
        return [self._event("stop", stop={"accountSid": "AC0", "callSid": self.call_id})]

    def _mark(self, name: str) -> str:
        return self._event("mark", mark={"name": name})

    def _event(self, name: str, **fields: object) -> str:
        self._sequence += 1
        return json.dumps(
            {"event": name, "sequenceNumber": str(self._sequence), "streamSid": self._stream_id, **fields}
        )
