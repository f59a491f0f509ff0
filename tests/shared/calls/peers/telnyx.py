"""A media stream of Telnyx in the bidirectional mode ``rtp``: queue, marks, clear and errors.

A message of media has 20 ms to 30 s. A mark comes back when the audio before it was played, at once if none
is queued, and also when ``clear`` drops it. A message that Telnyx does not accept gets an ``error``; here it
ends the call.

Source: developers.telnyx.com, Stream call media over WebSocket (AsyncAPI).
"""

import base64
import json
from collections.abc import Iterable
from typing import Final

from shared.calls.peers.carrier import RefusedMessage, require_fields
from shared.calls.peers.event_carrier import SimulatedEventCarrier
from shared.calls.peers.peer import Message
from vivavoce.adapters.media_streams.stream_format import ALAW, ULAW

_CODECS: Final = {"PCMU": ULAW, "PCMA": ALAW}
_MIN_MEDIA_BYTES: Final = 160  # 20 ms
_MAX_MEDIA_BYTES: Final = 240_000  # 30 s


class SimulatedTelnyx(SimulatedEventCarrier):
    """One stream; ``codec`` is PCMU or PCMA."""

    carrier, sequence_field, stream_field = "telnyx", "sequence_number", "stream_id"

    def __init__(self, call_id: str, codec: str = "PCMU", *, token: str = "") -> None:
        super().__init__(call_id, _CODECS[codec], "32DE0DEA-53CB-4B21-89A4-9E1819C043BC", token)
        self._codec = codec

    def start(self) -> list[Message]:
        """Return ``connected`` and ``start``."""
        start: dict[str, object] = {
            "user_id": "3E6F995F",
            "call_control_id": self.call_id,
            "call_session_id": "ff55a038-6f5d-11ef-9692-02420aeffb1f",
            "from": "+15550001",
            "to": "+15550002",
            "tags": [],
            "client_state": None,
            "custom_parameters": {},
            "media_format": {"encoding": self._codec, "sample_rate": 8000, "channels": 1},
        }
        return [json.dumps({"event": "connected", "version": "1.0.0"}), self._event("start", start=start)]

    def press(self, digit: str) -> list[Message]:
        """Return ``dtmf``."""
        return [self._event("dtmf", occurred_at="2026-01-01T00:00:00.000000Z", dtmf={"digit": digit})]

    def hang_up(self) -> list[Message]:
        """Return ``stop``."""
        return [self._event("stop", stop={"user_id": "3E6F995F", "call_control_id": self.call_id})]

    def _receive(self, message: Message) -> Iterable[Message]:
        fields = json.loads(message)
        match fields["event"]:
            case "media":
                require_fields(fields, "event", "media")
                self._queue_media(base64.b64decode(fields["media"]["payload"], validate=True))
            case "mark":
                require_fields(fields, "event", "mark")
                return self._add_mark(fields["mark"]["name"])
            case "clear":
                require_fields(fields, "event")
                return [self._played(name) for name in self._clear()]
            case other:
                raise RefusedMessage(f"got the event {other}")
        return []

    def _queue_media(self, audio: bytes) -> None:
        if not _MIN_MEDIA_BYTES <= len(audio) <= _MAX_MEDIA_BYTES:
            raise RefusedMessage(f"got {len(audio)} bytes of audio")
        self._queue_audio(audio)

    def _add_mark(self, name: str) -> list[Message]:
        if not self.queue.packets:
            return [self._played(name)]
        self.queue.add_mark(name)
        return []
