"""A simulated RTP sender, and a network that loses, delays and reorders its packets."""

import random
from dataclasses import dataclass

from vivavoce.adapters.rtp.packet import RtpPacket

PEER = ("192.0.2.9", 4000)


@dataclass(frozen=True, slots=True)
class SentPacket:
    sent_at: float
    packet: RtpPacket


@dataclass(slots=True)
class RtpSource:
    """Numbers packets of 20 ms, from values that soon wrap around."""

    payload_type: int = 0
    packet_samples: int = 160
    sequence: int = 65_530
    timestamp: int = 2**32 - 480
    ssrc: int = 0x1234

    def next(self, payload: bytes, *, marker: bool = False) -> RtpPacket:
        packet = RtpPacket(self.payload_type, self.sequence, self.timestamp, self.ssrc, payload, marker)
        self.sequence = (self.sequence + 1) % 2**16
        self.timestamp = (self.timestamp + self.packet_samples) % 2**32
        return packet

    def key(self, payload: bytes, timestamp: int, *, marker: bool = False, kind: int = 101) -> RtpPacket:
        """A packet of a key, which has a number but no time of its own."""
        packet = RtpPacket(kind, self.sequence, timestamp, self.ssrc, payload, marker)
        self.sequence = (self.sequence + 1) % 2**16
        return packet

    def pause(self, packets: int) -> None:
        """Send nothing for that time."""
        self.timestamp = (self.timestamp + packets * self.packet_samples) % 2**32


def through_network(
    packets: list[RtpPacket], seed: int, *, loss: float, jitter_s: float, ptime_s: float = 0.02
) -> list[tuple[float, RtpPacket]]:
    """(arrival, packet) in the order of arrival; each is delayed by 50 ms and up to ``jitter_s`` more.

    The first packet arrives first.
    """
    draw = random.Random(seed)
    arrivals = [(0.05, 0)] + [
        (index * ptime_s + 0.05 + draw.uniform(0, jitter_s), index)
        for index in range(1, len(packets))
        if draw.random() >= loss
    ]
    return [(arrived, packets[index]) for arrived, index in sorted(arrivals)]
