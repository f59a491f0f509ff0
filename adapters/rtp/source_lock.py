"""The lock of a call to its peer's address: set after a probation, and moved when the peer moves.

    named address (host and port)  ----------- first packet ------------------> locked
    any address, or the named host --- 3 packets of a stream, near each other --> locked
    locked --- the locked address is silent, another one passes the probation ---> locked to that one

An address may replace a silent one with packets of the same stream, whose identifier a stranger does not
know, after 0.1 s. With another stream it must be of the same host, and the locked address be silent for a
second: a phone that sends nothing while its user is silent is not replaced by a stranger of another host. If
a peer was named, other hosts are never taken. No clock, no sockets: times are monotonic seconds.

Source: RFC 3550, A.1 (probation); RFC 4961 (symmetric RTP); "strictrtp" of res_rtp_asterisk.
"""

from dataclasses import dataclass, field
from typing import Final

from .packet import RtpPacket

Address = tuple[str, int]

_PROBATION: Final = 3  # packets: two more than a stray one, 40 ms
_MAX_STEP: Final = 8  # between the numbers of packets of a probation: loss and reordering
_MAX_CANDIDATES: Final = 8
_MOVED_AFTER_S: Final = 0.1  # of silence of the locked address: five packets
_REPLACED_AFTER_S: Final = 1.0


@dataclass(slots=True)
class _Candidate:
    """A stream of an address that is not locked."""

    packets: list[RtpPacket] = field(default_factory=list)  # with different numbers, near each other

    def add(self, packet: RtpPacket) -> None:
        """Count a packet, unless it is a duplicate; begin again with one that is far away."""
        if not self.packets:
            self.packets.append(packet)
            return
        step = _distance(packet.sequence, self.packets[-1].sequence)
        if step > _MAX_STEP:
            self.packets = [packet]
        elif all(packet.sequence != other.sequence for other in self.packets):
            self.packets.append(packet)


class SourceLock:
    """The address whose packets are taken.

    Args:
        named: what signalling said of the peer; None: nothing.
    """

    def __init__(self, named: Address | None) -> None:
        self.address: Address | None = None  # locked; None: no packet was taken yet
        self._named = named
        self._ssrc: int | None = None  # of the last packet that was taken
        self._heard_at = 0.0
        self._candidates: dict[tuple[Address, int], _Candidate] = {}  # oldest first

    @property
    def destination(self) -> Address | None:
        """Where to send: to the locked address, before to the named one; None: not known."""
        return self.address or self._named

    @property
    def report_address(self) -> Address | None:
        """Where reports come from and go to: the port after that of ``destination``."""
        peer = self.destination
        return None if peer is None else (peer[0], peer[1] + 1)

    def take(self, packet: RtpPacket, address: Address, now: float) -> list[RtpPacket] | None:
        """Return the packets to take now: this one, those of a probation that it ends, or none yet.

        None: the packet is of a stranger.
        """
        if address == self.address or (self.address is None and address == self._named):
            return self._lock(address, [packet], now)
        if not self._may_replace(packet, address, now):
            self._candidates.pop((address, packet.ssrc), None)
            return None
        candidate = self._candidate(address, packet.ssrc)
        candidate.add(packet)
        if len(candidate.packets) < _PROBATION:
            return []
        return self._lock(address, candidate.packets, now)

    def _lock(self, address: Address, packets: list[RtpPacket], now: float) -> list[RtpPacket]:
        if address != self.address:
            self.address = address
            self._candidates.clear()
        self._ssrc, self._heard_at = packets[-1].ssrc, now
        return packets

    def _may_replace(self, packet: RtpPacket, address: Address, now: float) -> bool:
        if self._named is not None and address[0] != self._named[0]:
            return False
        if self.address is None:
            return True
        silent_s = now - self._heard_at
        if packet.ssrc == self._ssrc:
            return silent_s >= _MOVED_AFTER_S
        return address[0] == self.address[0] and silent_s >= _REPLACED_AFTER_S

    def _candidate(self, address: Address, ssrc: int) -> _Candidate:
        key = (address, ssrc)
        if key not in self._candidates and len(self._candidates) >= _MAX_CANDIDATES:
            del self._candidates[next(iter(self._candidates))]
        return self._candidates.setdefault(key, _Candidate())


def _distance(first: int, second: int) -> int:
    """Return how far two numbers are apart, modulo 2**16."""
    step = (first - second) % 2**16
    return min(step, 2**16 - step)
