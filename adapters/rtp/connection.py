"""Our side of one RTP call: its two streams, its reports, and the rules for what may be received.

    datagram --> from the peer? --> its stream? --> audio --> jitter buffer --> audio_due
                  '-> ignored        '-> ignored '-> keys, reports --> events

``source_lock`` says which address is the peer's (symmetric RTP); datagrams of others are ignored, and reports
that do not come from its next port, or from the port of its packets. Its stream is that of its first packet;
another identifier needs two packets in order to replace it. Nothing of a peer's ends the call but the BYE of
its stream. Each kind of fault is reported once. Times are monotonic seconds.

Source: RFC 3550, 6.2 (interval of reports), 8.2 (collisions), A.1 (probation).
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from .codec import COMFORT_NOISE, TELEPHONE_EVENT, RtpCodec, SampleClock
from .jitter_buffer import JitterBuffer, JitterCounters
from .packet import RtpPacket, RtpProtocolError, is_rtcp, parse_packet
from .rtcp import (
    Bye,
    ReceiverReport,
    ReportBlock,
    SenderReport,
    encode_bye,
    encode_sender_report,
    middle_of_ntp,
    parse_rtcp,
)
from .source_lock import Address, SourceLock
from .srtp import SrtpKeys, SrtpSession
from .stream_sender import RtpStreamSender
from .telephone_events import TelephoneEventDecoder, TelephoneEventEncoder

_REPORT_EVERY_S: Final = 5.0  # on average
_MAX_COLLISIONS: Final = 3  # then our own packets come back to us, as from an echo service
_MAX_PACKET_S: Final = 0.2
_SYSTEM_RANDOM: Final = random.SystemRandom()


class RtpFault(Enum):
    """What was wrong with a datagram that was ignored, as the log says it."""

    MALFORMED = "a datagram is no valid packet"
    FOREIGN = "packets come from an address that is not the peer's"
    WRONG_TYPE = "packets have a payload type that was not agreed"
    UNKNOWN_STREAM = "packets are of another stream"
    UNPROTECTED = "packets are not encrypted with the peer's key"
    COLLISION = "packets have the identifier of our stream"


@dataclass(frozen=True, slots=True)
class RtpKey:
    """The caller pressed a key: one of ``0-9 * # A-D``."""

    digit: str


@dataclass(frozen=True, slots=True)
class RtpEnd:
    """The peer ended its stream with BYE."""


@dataclass(frozen=True, slots=True)
class RtpFaultSeen:
    """The first datagram with that fault was ignored."""

    fault: RtpFault
    detail: str


@dataclass(frozen=True, slots=True)
class RtpPeerMoved:
    """The peer's packets come from another address now."""

    address: Address


RtpEvent = RtpKey | RtpEnd | RtpFaultSeen | RtpPeerMoved


@dataclass(frozen=True, slots=True)
class RtpOptions:
    """What both sides of a call agree on."""

    codec: RtpCodec
    peer: Address | None = None  # where to send until its first packet has come; None: not known
    key_type: int | None = TELEPHONE_EVENT  # payload type of keys; None: they come on another way
    srtp: SrtpKeys | None = None  # None: packets are not encrypted
    sends: bool = True  # False: the peer wants no packets, because it holds the call


class RtpConnection:
    """One call. After each ``receive`` take ``events``; take ``audio_due`` once a packet period.

    Args:
        numbers: source of identifiers and first numbers.
    """

    def __init__(self, options: RtpOptions, numbers: random.Random = _SYSTEM_RANDOM) -> None:
        self.faults: dict[RtpFault, int] = {}  # datagrams ignored for each
        self.heard_at: float | None = None  # arrival of the last packet of the peer's stream
        self.remote_lost = 0  # of our packets, as the peer reports
        self._options = options
        self._numbers = numbers
        self._codec = options.codec.for_call()
        self._sender = RtpStreamSender(self._codec, numbers)
        self._source = SourceLock(options.peer)
        self._srtp = None if options.srtp is None else SrtpSession(options.srtp)
        self._ssrc: int | None = None  # of the peer's stream
        self._candidate: tuple[int, int] | None = None  # identifier and next number of another stream
        self._collisions = 0
        self._buffer = JitterBuffer(self._codec.sample_rate)
        self._sample_clock = SampleClock(self._codec)
        self._keys = TelephoneEventDecoder()
        self._pressed = TelephoneEventEncoder()
        self._events: deque[RtpEvent] = deque()
        self._max_payload = self._codec.max_bytes(_MAX_PACKET_S)
        self._cname = f"{numbers.getrandbits(64):016x}"
        self._left_ssrcs: list[int] = []  # of ours, to be ended with BYE
        self._report_at: float | None = None
        self._reported = (0, 0)  # expected and received packets at the last report
        self._last_report: tuple[int, float] | None = None  # of the peer: its time, its arrival

    @property
    def peer(self) -> Address | None:
        """Where to send; None: not known yet."""
        return self._source.destination

    @property
    def report_address(self) -> Address | None:
        """Where to send reports; None: not known yet."""
        return self._source.report_address

    @property
    def counters(self) -> JitterCounters:
        """The counters of the peer's current stream."""
        return self._buffer.counters

    # Receiving

    def receive(self, data: bytes, address: Address, now: float) -> None:
        """Take a datagram from the port of RTP."""
        if is_rtcp(data):
            self._receive_report(data, address, self.peer, now)
            return
        if self._srtp is not None:
            unprotected = self._srtp.unprotect(data)
            if unprotected is None:
                self._ignore_datagram(address, RtpFault.UNPROTECTED, f"{address[0]}:{address[1]}")
                return
            data = unprotected
        try:
            packet = parse_packet(data)
        except RtpProtocolError as error:
            self._ignore_datagram(address, RtpFault.MALFORMED, str(error))
            return
        if not self._accepts_type(packet, address):
            return
        if packet.ssrc == self._sender.ssrc:
            self._resolve_collision(address)
            return
        before = self._source.address
        packets = self._source.take(packet, address, now)
        if packets is None:
            self._ignore(RtpFault.FOREIGN, f"{address[0]}:{address[1]}")
            return
        if before not in (None, self._source.address):
            self._events.append(RtpPeerMoved(address))
        for one in packets:
            if self._accepts_stream(one, is_proven=len(packets) > 1):
                self._take(one, now)

    def receive_report(self, data: bytes, address: Address, now: float) -> None:
        """Take a datagram from the port of RTCP."""
        self._receive_report(data, address, self._source.report_address, now)

    def _receive_report(self, data: bytes, address: Address, agreed: Address | None, now: float) -> None:
        if address != agreed:
            self._ignore(RtpFault.FOREIGN, f"{address[0]}:{address[1]}")
            return
        if self._srtp is not None:
            unprotected = self._srtp.unprotect_report(data)
            if unprotected is None:
                self._ignore(RtpFault.UNPROTECTED, f"{address[0]}:{address[1]}")
                return
            data = unprotected
        try:
            for event in parse_rtcp(data):
                self._take_report(event, now)
        except RtpProtocolError as error:
            self._ignore(RtpFault.MALFORMED, str(error))

    def events(self) -> Iterator[RtpEvent]:
        """Yield what has happened."""
        while self._events:
            yield self._events.popleft()

    def audio_due(self, now: float) -> bytes:
        """Return the caller's audio since the last call, s16le at the codec's rate."""
        return self._buffer.pull(now)

    def _accepts_type(self, packet: RtpPacket, address: Address) -> bool:
        kind, size = packet.payload_type, len(packet.payload)
        if kind == self._codec.payload_type:
            if 0 < size <= self._max_payload and size % max(1, self._codec.sample_bytes) == 0:
                return True
            self._ignore_datagram(address, RtpFault.MALFORMED, f"got {size} bytes of audio")
            return False
        if kind in (self._options.key_type, COMFORT_NOISE):
            return True
        text = f"got type {kind}, agreed was {self._codec.payload_type}"
        self._ignore_datagram(address, RtpFault.WRONG_TYPE, text)
        return False

    def _accepts_stream(self, packet: RtpPacket, *, is_proven: bool) -> bool:
        """Return whether a packet of the peer is of its stream; is_proven: a probation has confirmed that."""
        if packet.ssrc == self._ssrc:
            return True
        if self._ssrc is None or is_proven or self._candidate == (packet.ssrc, packet.sequence):
            self._begin_stream(packet.ssrc)
            return True
        self._candidate = (packet.ssrc, (packet.sequence + 1) & 0xFFFF)
        self._ignore(RtpFault.UNKNOWN_STREAM, f"{packet.ssrc:#010x}")
        return False

    def _begin_stream(self, ssrc: int) -> None:
        self._ssrc, self._candidate = ssrc, None
        self._buffer = JitterBuffer(self._codec.sample_rate)
        self._sample_clock = SampleClock(self._codec)
        self._keys = TelephoneEventDecoder()
        self._reported = (0, 0)
        self._last_report = None

    def _take(self, packet: RtpPacket, now: float) -> None:
        self.heard_at = now
        timestamp = self._sample_clock.samples(packet.timestamp)
        if packet.payload_type == self._codec.payload_type:
            self._buffer.push(packet.sequence, timestamp, self._codec.decode(packet.payload), now)
            return
        self._buffer.push(packet.sequence, timestamp, None, now)
        if packet.payload_type == self._options.key_type and (digit := self._keys.push(packet)):
            self._events.append(RtpKey(digit))

    def _resolve_collision(self, address: Address) -> None:
        if self._source.address not in (None, address):
            self._ignore(RtpFault.FOREIGN, f"{address[0]}:{address[1]}")
            return
        self._ignore(RtpFault.COLLISION, f"{address[0]}:{address[1]}")
        if self._collisions < _MAX_COLLISIONS:
            self._collisions += 1
            self._left_ssrcs.append(self._sender.ssrc)
            self._sender.change_ssrc()

    def _take_report(self, event: SenderReport | ReceiverReport | Bye, now: float) -> None:
        match event:
            case Bye(ssrcs):
                if self._ssrc is not None and self._ssrc in ssrcs:
                    self._events.append(RtpEnd())
            case SenderReport(ssrc=ssrc, ntp_s=ntp_s, blocks=blocks):
                if ssrc == self._ssrc:
                    self._last_report = (middle_of_ntp(ntp_s), now)
                self._take_blocks(blocks)
            case ReceiverReport(blocks=blocks):
                self._take_blocks(blocks)
            case _:
                assert_never(event)

    def _take_blocks(self, blocks: tuple[ReportBlock, ...]) -> None:
        for block in blocks:
            if block.ssrc == self._sender.ssrc:
                self.remote_lost = block.lost

    def _ignore_datagram(self, address: Address, fault: RtpFault, detail: str) -> None:
        """Ignore a datagram that is not valid, as that of a stranger if the peer's address is known."""
        if self._source.address in (None, address):
            self._ignore(fault, detail)
        else:
            self._ignore(RtpFault.FOREIGN, f"{address[0]}:{address[1]}")

    def _ignore(self, fault: RtpFault, detail: str) -> None:
        count = self.faults[fault] = self.faults.get(fault, 0) + 1
        if count == 1:
            self._events.append(RtpFaultSeen(fault, detail))

    # Sending

    def encode_packet(self, pcm: bytes) -> bytes:
        """Return the datagram of the next packet; ``pcm`` is s16le at the codec's rate."""
        packet = self._encode(pcm)
        return packet if self._srtp is None else self._srtp.protect(packet)

    def _encode(self, pcm: bytes) -> bytes:
        key_type, samples = self._options.key_type, self._codec.ticks(len(pcm) // 2)
        if key_type is None or (part := self._pressed.next(samples)) is None:
            return self._sender.encode(pcm)
        return self._sender.encode_event(key_type, part.payload, samples, is_first=part.is_first)

    def press(self, digits: str) -> None:
        """Send keys, ``0-9 * # A-D``, one after another in place of audio, if a type was agreed for them."""
        if self._options.key_type is not None:
            self._pressed.press(digits)

    def change(self, options: RtpOptions) -> None:
        """Go on with other options; the rate of the audio is the same."""
        before, self._options = self._options, options
        if options.codec != before.codec:
            self._codec = options.codec.for_call()
            self._sender.change_codec(self._codec)
            self._sample_clock = SampleClock(self._codec)
            self._max_payload = self._codec.max_bytes(_MAX_PACKET_S)
        if options.peer != before.peer:
            self._source = SourceLock(options.peer)
        if options.srtp != before.srtp:
            self._srtp = None if options.srtp is None else SrtpSession(options.srtp)

    def skip(self, samples: int) -> None:
        """Note that ``samples`` were not sent, because their time had passed."""
        self._sender.skip(self._codec.ticks(samples))

    def reports_due(self, now: float, unix_s: float) -> list[bytes]:
        """Return the datagrams to send to the port of RTCP now."""
        due = [encode_bye(ssrc, self._cname) for ssrc in self._left_ssrcs]
        self._left_ssrcs.clear()
        if self._report_at is None:
            self._report_at = now + self._numbers.uniform(0.25, 0.75) * _REPORT_EVERY_S
        if now >= self._report_at and self._sender.packets:
            self._report_at = now + self._numbers.uniform(0.5, 1.5) * _REPORT_EVERY_S
            due.append(encode_sender_report(self._make_report(now, unix_s), self._cname))
        return [self._protect_report(report) for report in due]

    def encode_end(self) -> bytes:
        """Return the datagram for the port of RTCP that ends our stream."""
        return self._protect_report(encode_bye(self._sender.ssrc, self._cname))

    def _protect_report(self, report: bytes) -> bytes:
        return report if self._srtp is None else self._srtp.protect_report(report)

    def _make_report(self, now: float, unix_s: float) -> SenderReport:
        sender = self._sender
        blocks = () if self._ssrc is None else (self._make_block(self._ssrc, now),)
        return SenderReport(
            sender.ssrc, unix_s, sender.timestamp, sender.packets, sender.payload_bytes, blocks
        )

    def _make_block(self, ssrc: int, now: float) -> ReportBlock:
        buffer = self._buffer
        expected, received = buffer.expected, buffer.counters.received
        new_expected, new_received = expected - self._reported[0], received - self._reported[1]
        self._reported = (expected, received)
        lost_share = (new_expected - new_received) / new_expected if new_expected > 0 else 0.0
        last, delay = 0, 0
        if self._last_report is not None:
            last, delay = self._last_report[0], int((now - self._last_report[1]) * 65_536)
        return ReportBlock(
            ssrc, lost_share, expected - received, buffer.highest_sequence, int(buffer.jitter), last, delay
        )
