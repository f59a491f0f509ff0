"""The queue of a peer that paces the playout: audio and marks in, packets and reached marks out.

No clock: one call of ``play`` is one packet period. Silence is played while the queue is empty.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

PACKET_MS: Final = 20


@dataclass(frozen=True, slots=True)
class PlayedPacket:
    """What one packet period played."""

    audio: bytes  # encoded, 20 ms; b"": silence
    marks: tuple[str, ...]  # reached before and after it


class PeerQueue:
    """Packets and marks in the order in which they came."""

    def __init__(self, packet_bytes: int) -> None:
        self._packet_bytes = packet_bytes
        self._items: deque[bytes | str] = deque()
        self.packets = 0  # queued
        self.played_packets = 0  # of speech, since the start

    def add_audio(self, audio: bytes) -> None:
        """Queue whole packets; the rest of the audio is lost, as in Asterisk."""
        for start in range(0, len(audio) - self._packet_bytes + 1, self._packet_bytes):
            self._items.append(audio[start : start + self._packet_bytes])
            self.packets += 1

    def add_mark(self, name: str) -> None:
        """Queue a mark behind the audio."""
        self._items.append(name)

    def clear(self) -> tuple[str, ...]:
        """Drop everything; return the marks that were dropped."""
        marks = tuple(item for item in self._items if isinstance(item, str))
        self._items.clear()
        self.packets = 0
        return marks

    @property
    def holds_speech(self) -> bool:
        """Whether any of the queued audio is audible."""
        return any(isinstance(item, bytes) and _is_audible(item) for item in self._items)

    def play(self) -> PlayedPacket:
        """Play one packet."""
        before = self._take_marks()
        audio = b""
        if self._items:
            item = self._items.popleft()
            assert isinstance(item, bytes)
            audio = item
            self.packets -= 1
            self.played_packets += _is_audible(audio)
        return PlayedPacket(audio, before + self._take_marks())

    def _take_marks(self) -> tuple[str, ...]:
        marks = []
        while self._items and isinstance(self._items[0], str):
            marks.append(str(self._items.popleft()))
        return tuple(marks)


def _is_audible(packet: bytes) -> bool:
    return len(set(packet)) > 1
