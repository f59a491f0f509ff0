"""RTCP: reports about the streams of a call, and its end. Values and bytes; no state.

We send compound packets of a sender report and our canonical name, and one with BYE at the end. Of what the
peer sends, reports and BYE are read; other packets are skipped.

Source: RFC 3550, 6.1 (compound packets), 6.4 (reports), 6.5 (SDES), 6.6 (BYE).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .packet import RtpProtocolError

_HEADER: Final = struct.Struct("!BBH")  # version, padding, count; type; length in words less one
_SENDER_INFO: Final = struct.Struct("!IIIII")  # NTP seconds and fraction, timestamp, packets, bytes
_REPORT_BLOCK: Final = struct.Struct("!IIIIII")
_SSRC: Final = struct.Struct("!I")
_SENDER_REPORT, _RECEIVER_REPORT, _DESCRIPTION, _BYE = 200, 201, 202, 203
_CNAME: Final = 1
_NTP_EPOCH_S: Final = 2_208_988_800  # from 1900 to 1970
_MAX_LOST: Final = 2**23 - 1
MAX_RTCP_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """Reception of one stream, as its receiver reports it."""

    ssrc: int  # of the stream
    fraction_lost: float  # of the packets since the last report, 0 to 1
    lost: int  # packets since the beginning; negative with duplicates
    highest_sequence: int  # with its cycles, modulo 2**32
    jitter: int  # of the time between arrivals, in samples
    last_report: int = 0  # middle 32 bits of the NTP time of the last sender report; 0: none
    delay_since_last_report: int = 0  # 1/65536 s


@dataclass(frozen=True, slots=True)
class SenderReport:
    """What one side has sent so far."""

    ssrc: int
    ntp_s: float  # Unix seconds
    timestamp: int  # samples at that time, modulo 2**32
    packets: int
    payload_bytes: int
    blocks: tuple[ReportBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class ReceiverReport:
    """A report of a side that sends nothing."""

    ssrc: int
    blocks: tuple[ReportBlock, ...]


@dataclass(frozen=True, slots=True)
class Bye:
    """The streams that have ended."""

    ssrcs: tuple[int, ...]


RtcpEvent = SenderReport | ReceiverReport | Bye


def encode_sender_report(report: SenderReport, cname: str) -> bytes:
    """Return a compound packet of a sender report and the canonical name, of at most 255 ASCII characters."""
    seconds = int(report.ntp_s)
    fraction = int((report.ntp_s - seconds) * 2**32)
    body = _SSRC.pack(report.ssrc) + _SENDER_INFO.pack(
        (seconds + _NTP_EPOCH_S) % 2**32,
        fraction,
        report.timestamp % 2**32,
        report.packets % 2**32,
        report.payload_bytes % 2**32,
    )
    body += b"".join(map(_encode_block, report.blocks))
    return _packet(_SENDER_REPORT, len(report.blocks), body) + _encode_description(report.ssrc, cname)


def encode_bye(ssrc: int, cname: str) -> bytes:
    """Return a compound packet that ends a stream: an empty report, the canonical name and BYE."""
    report = _packet(_RECEIVER_REPORT, 0, _SSRC.pack(ssrc))
    return report + _encode_description(ssrc, cname) + _packet(_BYE, 1, _SSRC.pack(ssrc))


def middle_of_ntp(unix_s: float) -> int:
    """Return the middle 32 bits of the NTP time, in 1/65536 s."""
    return int((unix_s + _NTP_EPOCH_S) * 65_536) % 2**32


def parse_rtcp(data: bytes) -> Iterator[RtcpEvent]:
    """Yield the reports and the ends of a compound packet; raises RtpProtocolError after those before it."""
    if len(data) > MAX_RTCP_BYTES:
        raise RtpProtocolError(f"got RTCP of {len(data)} bytes; at most {MAX_RTCP_BYTES} are read")
    offset = 0
    while offset < len(data):
        if len(data) - offset < _HEADER.size:
            raise RtpProtocolError("got an incomplete header of RTCP")
        flags, kind, words = _HEADER.unpack_from(data, offset)
        end = offset + _HEADER.size + 4 * words
        if flags >> 6 != 2 or end > len(data):
            raise RtpProtocolError(f"got RTCP of version {flags >> 6} with {4 * words} bytes; not a packet")
        yield from _parse_body(kind, flags & 0x1F, data[offset + _HEADER.size : end])
        offset = end


def _parse_body(kind: int, count: int, body: bytes) -> Iterator[RtcpEvent]:
    try:
        match kind:
            case 200:
                (ssrc,) = _SSRC.unpack_from(body)
                seconds, fraction, timestamp, packets, octets = _SENDER_INFO.unpack_from(body, _SSRC.size)
                ntp_s = seconds - _NTP_EPOCH_S + fraction / 2**32
                blocks = _parse_blocks(body, _SSRC.size + _SENDER_INFO.size, count)
                yield SenderReport(ssrc, ntp_s, timestamp, packets, octets, blocks)
            case 201:
                (ssrc,) = _SSRC.unpack_from(body)
                yield ReceiverReport(ssrc, _parse_blocks(body, _SSRC.size, count))
            case 203:
                yield Bye(tuple(_SSRC.unpack_from(body, 4 * index)[0] for index in range(count)))
    except struct.error:
        raise RtpProtocolError(f"got RTCP of type {kind} with {len(body)} bytes; it is too short") from None


def _parse_blocks(body: bytes, offset: int, count: int) -> tuple[ReportBlock, ...]:
    blocks = []
    for index in range(count):
        ssrc, loss, highest, jitter, last, delay = _REPORT_BLOCK.unpack_from(
            body, offset + index * _REPORT_BLOCK.size
        )
        lost = loss & 0xFFFFFF
        lost -= (lost & 0x800000) << 1  # 24 bits with a sign
        blocks.append(ReportBlock(ssrc, (loss >> 24) / 256, lost, highest, jitter, last, delay))
    return tuple(blocks)


def _encode_block(block: ReportBlock) -> bytes:
    lost = max(-_MAX_LOST - 1, min(_MAX_LOST, block.lost)) & 0xFFFFFF
    fraction = max(0, min(255, int(block.fraction_lost * 256)))
    return _REPORT_BLOCK.pack(
        block.ssrc,
        fraction << 24 | lost,
        block.highest_sequence % 2**32,
        block.jitter % 2**32,
        block.last_report,
        block.delay_since_last_report % 2**32,
    )


def _encode_description(ssrc: int, cname: str) -> bytes:
    item = bytes((_CNAME, len(cname))) + cname.encode("ascii") + b"\0"
    return _packet(_DESCRIPTION, 1, _SSRC.pack(ssrc) + item + bytes(-len(item) % 4))


def _packet(kind: int, count: int, body: bytes) -> bytes:
    return _HEADER.pack(2 << 6 | count, kind, len(body) // 4) + body
