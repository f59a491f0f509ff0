"""Keys in telephone-event packets: those of the caller, each once, and those that we press.

A phone sends several packets for a key, with the timestamp of its beginning and a growing duration, and
repeats the last one. A key is reported with the first of them that arrives, through repeats, loss and
reordering.

    timestamp   800   800   800   800E  800E  800E      E: end of the event
    reported    "5"

Source: RFC 4733, 2.3 (payload), 2.5.1.3 (long events), 2.5.1.4 (the last packet three times), 3.2 (DTMF).
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from .packet import RtpPacket

_KEYS: Final = "0123456789*#ABCD"  # events 0 to 15
_PAYLOAD_BYTES: Final = 4  # event; end and volume; duration in samples
_MAX_DURATION: Final = 0xFFFF  # of one segment of a long event
_KEY_PACKETS: Final = 5  # 100 ms: the shortest tone that every exchange knows is 40 ms (ITU-T Q.24)
_END_PACKETS: Final = 3
_GAP_PACKETS: Final = 5  # of audio, after the key


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


@dataclass(frozen=True, slots=True)
class TelephoneEventPart:
    """The payload of the next packet of a key that we press."""

    payload: bytes
    is_first: bool  # of its key


class TelephoneEventEncoder:
    """Presses keys one after another; ask for the ``next`` packet in each packet period."""

    def __init__(self) -> None:
        self._digits: deque[str] = deque()
        self._step = 0  # packets of the first key

    def press(self, digits: str) -> None:
        """Press keys, each one of ``0-9 * # A-D``, after those that wait."""
        self._digits += digits

    def next(self, samples: int) -> TelephoneEventPart | None:
        """Return what is sent instead of ``samples`` of audio; None: the audio."""
        if not self._digits:
            return None
        step, self._step = self._step, self._step + 1
        if step >= _KEY_PACKETS + _END_PACKETS:
            if step + 1 == _KEY_PACKETS + _END_PACKETS + _GAP_PACKETS:
                self._digits.popleft()
                self._step = 0
            return None
        duration = samples * min(step + 1, _KEY_PACKETS)
        payload = encode_key(self._digits[0], duration=duration, is_end=step >= _KEY_PACKETS)
        return TelephoneEventPart(payload, step == 0)


_KEY_VOLUME = 10  # in -dBm0, 0 to 63


def encode_key(digit: str, *, duration: int, is_end: bool) -> bytes:
    """Return the payload of a key: ``duration`` in samples so far."""
    return bytes((_KEYS.index(digit), is_end << 7 | _KEY_VOLUME)) + duration.to_bytes(2)
