"""A Voicebot applet of Exotel: s16le, all messages are JSON, about 100 ms of the caller in each.

A message of media must have 3,200 bytes to 100 kB and a multiple of 320. A mark comes back when the audio
before it was played; whether ``clear`` returns those that wait is not said, here it does not.

Source: developer.exotel.com/docs/agentstream/websocket-protocol; support.exotel.com, Working with the stream
applet.
"""

import base64
import json
from collections.abc import Iterable
from typing import Final

from shared.calls.peers.carrier import RefusedMessage, require_fields
from shared.calls.peers.event_carrier import SimulatedEventCarrier
from shared.calls.peers.peer import Message
from shared.calls.peers.queue import PACKET_MS
from vivavoce.adapters.media_streams.stream_format import linear

_PACKETS_PER_MESSAGE: Final = 5
_MIN_MEDIA_BYTES: Final = 3_200
_MAX_MEDIA_BYTES: Final = 100_000
_MEDIA_UNIT_BYTES: Final = 320


class SimulatedExotel(SimulatedEventCarrier):
    """One stream, at 8, 16 or 24 kHz."""

    carrier, sequence_field, stream_field = "exotel", "sequence_number", "stream_sid"

    def __init__(self, call_id: str, sample_rate: int = 8_000, *, token: str = "") -> None:
        super().__init__(call_id, linear(sample_rate), f"MZ{call_id}", token)
        self._caller = b""  # not yet sent

    def start(self) -> list[Message]:
        """Return ``connected`` and ``start``."""
        start = {
            "stream_sid": self._stream_id,
            "call_sid": self.call_id,
            "account_sid": "AC0",
            "from": "+15550001",
            "to": "+15550002",
            "custom_parameters": {},
            "media_format": {
                "encoding": "audio/x-raw",
                "sample_rate": str(self.sample_rate),
                "bit_rate": "16",
            },
        }
        return [json.dumps({"event": "connected"}), self._event("start", start=start)]

    def press(self, digit: str) -> list[Message]:
        """Return ``dtmf``."""
        return [self._event("dtmf", dtmf={"digit": digit, "duration": "100"})]

    def hang_up(self) -> list[Message]:
        """Return ``stop``."""
        stop = {"call_sid": self.call_id, "account_sid": "AC0", "reason": "callended"}
        return [self._event("stop", stop=stop)]

    def _receive(self, message: Message) -> Iterable[Message]:
        fields = json.loads(message)
        self._require_stream(fields)
        match fields["event"]:
            case "media":
                require_fields(fields, "event", "stream_sid", "media")
                self._queue_media(base64.b64decode(fields["media"]["payload"], validate=True))
            case "mark":
                require_fields(fields, "event", "stream_sid", "mark")
                self.queue.add_mark(fields["mark"]["name"])
            case "clear":
                require_fields(fields, "event", "stream_sid")
                self._clear()
            case other:
                raise RefusedMessage(f"got the event {other}")
        return []

    def _queue_media(self, audio: bytes) -> None:
        if not _MIN_MEDIA_BYTES <= len(audio) <= _MAX_MEDIA_BYTES or len(audio) % _MEDIA_UNIT_BYTES:
            raise RefusedMessage(f"got {len(audio)} bytes of audio")
        self._queue_audio(audio)

    def _caller_messages(self, packet: bytes) -> Iterable[Message]:
        self._caller += packet
        if self._packets % _PACKETS_PER_MESSAGE:
            return []
        media = {
            "chunk": str(self._packets // _PACKETS_PER_MESSAGE),
            "timestamp": str(self._packets * PACKET_MS),
            "payload": base64.b64encode(self._caller).decode(),
        }
        self._caller = b""
        return [self._event("media", media=media)]
