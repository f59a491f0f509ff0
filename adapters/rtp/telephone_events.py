"""Keys of the caller in telephone-event packets: each key once, through repeats, loss and reordering.

A phone sends several packets for a key, with the timestamp of its beginning and a growing duration, and
repeats the last one. A key is reported with the first of them that arrives.

    timestamp   800   800   800   800E  800E  800E      E: end of the event
    reported    "5"

Source: RFC 4733, 2.3 (payload), 2.5.1.3 (long events), 3.2 (DTMF).
"""

from typing import Final

from .packet import RtpPacket

_KEYS: Final = "0123456789*#ABCD"  # events 0 to 15
_PAYLOAD_BYTES: Final = 4  # event; end and volume; duration in samples
_MAX_DURATION: Final = 0xFFFF  # of one segment of a long event


class TelephoneEventDecoder:
    """Turns the packets of one stream into keys."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None  # timestamp and event of the last key

    def push(self, packet: RtpPacket) -> str | None:
        """Return the key that begins in a packet: one of ``0-9 * # A-D``; None: no key, or one before."""
        payload = packet.payload
        if len(payload) < _PAYLOAD_BYTES or payload[0] >= len(_KEYS):
            return None
        event, last = payload[0], self._last
        if last is not None:
            step = (packet.timestamp - last[0]) % 2**32
            if step == 0 or step >= 2**31:
                return None  # the same key, or an earlier one that was delayed
            if step == _MAX_DURATION and event == last[1] and not packet.marker:
                self._last = (packet.timestamp, event)  # the same key goes on
                return None
        self._last = (packet.timestamp, event)
        return _KEYS[event]


def encode_key(digit: str, *, duration: int, is_end: bool, volume: int = 10) -> bytes:
    """Return the payload of a key: ``duration`` in samples so far, ``volume`` in -dBm0 from 0 to 63."""
    return bytes((_KEYS.index(digit), is_end << 7 | volume)) + duration.to_bytes(2)
