"""RTP packets as bytes and as values. No state, no sockets.

     0                   1                   2                   3
    |V=2|P|X|  CC   |M|     PT      |       sequence number         |
    |                           timestamp                           |
    |                             SSRC                              |
    | CSRC, 4 bytes for each of CC | extension if X | payload | padding if P |

Source: RFC 3550, 5.1 and 5.3.1.
"""

import struct
from dataclasses import dataclass
from typing import Final

HEADER: Final = struct.Struct("!BBHII")
MAX_PACKET_BYTES: Final = 2048  # above an Ethernet frame; longer datagrams are no packet of a call
_VERSION: Final = 2
_EXTENSION_HEADER: Final = struct.Struct("!HH")  # profile, words that follow
# Second byte of an RTCP packet; as RTP it would be a packet with marker and a type of 64 to 95.
_RTCP_TYPES: Final = range(192, 224)


class RtpProtocolError(Exception):
    """The peer's datagram is neither RTP nor RTCP; says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class RtpPacket:
    """One packet of a stream."""

    payload_type: int  # 0 to 127
    sequence: int  # modulo 2**16
    timestamp: int  # samples, modulo 2**32
    ssrc: int  # of the stream
    payload: bytes
    marker: bool = False  # audio: the first packet after a pause in sending


def is_rtcp(data: bytes) -> bool:
    """Return whether a datagram on the port of RTP is RTCP (RFC 5761, 4)."""
    return len(data) > 1 and data[1] in _RTCP_TYPES


def parse_packet(data: bytes) -> RtpPacket:
    """Parse a datagram; raises RtpProtocolError."""
    if not HEADER.size <= len(data) <= MAX_PACKET_BYTES:
        raise RtpProtocolError(
            f"got a datagram of {len(data)} bytes; RTP packets have {HEADER.size} to {MAX_PACKET_BYTES}"
        )
    flags, kind, sequence, timestamp, ssrc = HEADER.unpack_from(data)
    if flags >> 6 != _VERSION:
        raise RtpProtocolError(f"got RTP version {flags >> 6}; it is 2")
    begin, end = HEADER.size, len(data)
    if flags != _VERSION << 6:  # no padding, extension or contributing source in nearly all packets
        begin, end = _payload_span(data, flags)
    return RtpPacket(kind & 0x7F, sequence, timestamp, ssrc, data[begin:end], kind > 0x7F)


def _payload_span(data: bytes, flags: int) -> tuple[int, int]:
    begin, end = HEADER.size + 4 * (flags & 0x0F), len(data)
    if flags & 0x10:
        if begin + _EXTENSION_HEADER.size > end:
            raise RtpProtocolError("got a header extension that exceeds the packet")
        _, words = _EXTENSION_HEADER.unpack_from(data, begin)
        begin += _EXTENSION_HEADER.size + 4 * words
    if flags & 0x20:
        if not data[-1]:
            raise RtpProtocolError("got padding of 0 bytes; it counts itself")
        end -= data[-1]
    if begin > end:
        raise RtpProtocolError("got a header and padding that exceed the packet")
    return begin, end


def encode_packet(packet: RtpPacket) -> bytes:
    """Return the datagram of a packet, without padding, extension and contributing sources."""
    kind = packet.payload_type | (packet.marker << 7)
    return HEADER.pack(_VERSION << 6, kind, packet.sequence, packet.timestamp, packet.ssrc) + packet.payload
