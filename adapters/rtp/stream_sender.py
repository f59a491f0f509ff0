"""The stream that we send: numbers, timestamps and the marker of its packets. No sockets, no clock.

A packet is sent in every period, also in silence and after a discard, so that timestamps go on by one packet
each time. Periods that our playout had to skip advance the timestamp alone, and the next packet has the
marker.

Source: RFC 3550, 5.1; RFC 3551, 4.1 (marker).
"""

import random
from typing import Final

from .codec import RtpCodec
from .packet import HEADER

_VERSION_FLAGS: Final = 0x80
_MARKER: Final = 0x80


class RtpStreamSender:
    """Encodes s16le packets of one stream.

    Args:
        numbers: source of the identifier and of the first number and timestamp, which must not be guessed.
    """

    def __init__(self, codec: RtpCodec, numbers: random.Random) -> None:
        self.packets = 0
        self.payload_bytes = 0
        self.timestamp = numbers.getrandbits(32)  # of the next packet
        self.ssrc = 0
        self._codec = codec
        self._numbers = numbers
        self._sequence = numbers.getrandbits(15)  # the first cycle ends late (RFC 3550, 5.1)
        self._has_pause = True  # before the next packet
        self._event_at = 0  # timestamp of the key being pressed
        self.change_ssrc()

    def change_ssrc(self) -> None:
        """Continue under another random identifier, because another stream has this one."""
        self.ssrc = self._numbers.getrandbits(32)
        self.packets = self.payload_bytes = 0
        self._has_pause = True

    def change_codec(self, codec: RtpCodec) -> None:
        """Encode the next packets with another codec."""
        self._codec = codec
        self._has_pause = True

    def encode(self, pcm: bytes) -> bytes:
        """Return the datagram of the next packet; ``pcm`` is s16le at the codec's rate."""
        kind = self._codec.payload_type | (_MARKER if self._has_pause else 0)
        self._has_pause = False
        ticks = self._codec.ticks(len(pcm) // 2)
        return self._pack(kind, self.timestamp, self._codec.encode(pcm), ticks)

    def encode_event(self, payload_type: int, payload: bytes, samples: int, *, is_first: bool) -> bytes:
        """Return the datagram of a part of a key, sent instead of ``samples`` of audio."""
        if is_first:
            self._event_at = self.timestamp
        kind = payload_type | (_MARKER if is_first else 0)
        return self._pack(kind, self._event_at, payload, samples)

    def _pack(self, kind: int, timestamp: int, payload: bytes, samples: int) -> bytes:
        header = HEADER.pack(_VERSION_FLAGS, kind, self._sequence, timestamp, self.ssrc)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self.timestamp = (self.timestamp + samples) & 0xFFFFFFFF
        self.packets += 1
        self.payload_bytes += len(payload)
        return header + payload

    def skip(self, samples: int) -> None:
        """Advance the timestamp over audio that is not sent."""
        self.timestamp = (self.timestamp + samples) & 0xFFFFFFFF
        self._has_pause = True
