"""RTP as the wire of a call: one UDP port for packets, and the next one for reports."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, assert_never

from ..call_rate_limit import CallRateLimit
from ..media.phone_media import PhoneCallOptions
from ..media.phone_wire import WireEnded, WireListener
from .connection import RtpConnection, RtpEnd, RtpEvent, RtpFaultSeen, RtpKey, RtpOptions, RtpPeerMoved
from .packet import MAX_PACKET_BYTES
from .rtcp import MAX_RTCP_BYTES

_MAX_DATAGRAMS: Final = 64  # read in a tick, in which a phone sends one; the rest waits in the kernel
_REPORT_TICKS: Final = 5  # from one look at the port of reports to the next
_PACKETS_PER_S: Final = 50
_EXPEDITED: Final = 0xB8  # DSCP 46, as phones mark voice (RFC 4594, 4.1)


class _SentTooFast(Exception):
    """The peer sends audio faster than it is spoken."""


@dataclass(frozen=True, slots=True)
class RtpOpening:
    """A UDP port on which RTP is expected, and reports on the next one: a ``WireOpening``."""

    rtp: RtpOptions
    first_packet_s: float | None = None  # until the first packet of the peer; None: unlimited

    def open(
        self,
        options: PhoneCallOptions,
        sock: socket.socket,
        report: Callable[[str], None],
        now: Callable[[], float],
    ) -> "RtpWire":
        """Return the wire."""
        return RtpWire(self, options, sock, report, now)

    def reopened(self) -> "RtpOpening":
        """Return the opening for another media server, which sends another stream to the same peer."""
        return self


class RtpWire:
    """Implements ``PhoneWire`` for a bound UDP socket."""

    def __init__(
        self,
        opening: RtpOpening,
        options: PhoneCallOptions,
        sock: socket.socket,
        report: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self.dropped = 0  # packets that the kernel did not take
        self._opening = opening
        self._silent_s = options.silent_s
        self._sample_rate = options.sample_rate
        self._sock = sock
        self._report = report
        self._connection = RtpConnection(opening.rtp)
        self._opened_at = now()
        self._rate_limit = CallRateLimit(self._opened_at, _SentTooFast)
        self._sends_too_fast = False  # and it has been reported
        self._ticks = 0
        self._reports = _open_report_socket(sock)
        for each in (sock, self._reports):
            if each is not None:
                _set_options(each)

    def receive(self, now: float, listener: WireListener) -> None:
        """Read the datagrams that have arrived; raises WireEnded."""
        connection = self._connection
        for _ in range(_MAX_DATAGRAMS):
            try:
                data, address = self._sock.recvfrom(MAX_PACKET_BYTES + 1)
            except OSError:  # none is there; or one of ours was refused, which a later packet may not be
                break
            connection.receive(data, address[:2], now)
        self._ticks += 1
        if self._ticks % _REPORT_TICKS == 0:
            self._exchange_reports(now)
            self._check_silence(now)
        for event in connection.events():
            self._handle(event, listener)
        if (audio := connection.audio_due(now)) and self._admits(audio, now):
            listener.receive_audio(audio, self._sample_rate)

    def send(self, packet: bytes) -> None:
        """Send one packet, if it is known to whom."""
        if not self._opening.rtp.sends:
            self.skip(1)
            return
        datagram = self._connection.encode_packet(packet)
        if (peer := self._connection.peer) is not None:
            try:
                self._sock.sendto(datagram, peer)
            except OSError:
                self.dropped += 1

    def change(self, opening: object) -> None:
        """Go on with other options of the same rate."""
        assert isinstance(opening, RtpOpening)
        self._opening = opening
        self._connection.change(opening.rtp)

    def send_keys(self, digits: str) -> None:
        """Press keys of the far end, one after another, in place of the audio."""
        self._connection.press(digits)

    def skip(self, packets: int) -> None:
        """Advance the timestamps by packets that were not sent."""
        self._connection.skip(packets * self._sample_rate // _PACKETS_PER_S)

    def hang_up(self) -> None:
        """Send BYE."""
        self._send_report(self._connection.encode_end())

    def linger(self, now: float) -> bool:
        """Return that nothing is left to send."""
        return True

    def close(self) -> None:
        """Close both sockets."""
        self._sock.close()
        if self._reports is not None:
            self._reports.close()

    def _admits(self, audio: bytes, now: float) -> bool:
        """Return whether the peer may send so much; more does not end the call: addresses are forged."""
        try:
            self._rate_limit.take_audio(len(audio) / (2 * self._sample_rate), now)
        except _SentTooFast as error:
            if not self._sends_too_fast:
                self._sends_too_fast = True
                self._report(f"{error}; the rest is dropped")
            return False
        return True

    def _handle(self, event: RtpEvent, listener: WireListener) -> None:
        match event:
            case RtpKey(digit):
                listener.press(digit)
            case RtpFaultSeen(fault, detail):
                self._report(f"{fault.value} ({detail}); they are ignored")
            case RtpPeerMoved(address):
                self._report(f"the caller's packets come from {address[0]}:{address[1]} now")
            case RtpEnd():
                raise WireEnded("the caller hung up")
            case _:
                assert_never(event)

    def _exchange_reports(self, now: float) -> None:
        if self._reports is not None:
            with suppress(OSError):
                data, address = self._reports.recvfrom(MAX_RTCP_BYTES + 1)
                self._connection.receive_report(data, address[:2], now)
        for report in self._connection.reports_due(now, time.time()):
            self._send_report(report)

    def _send_report(self, datagram: bytes) -> None:
        if self._reports is not None and (address := self._connection.report_address) is not None:
            with suppress(OSError):
                self._reports.sendto(datagram, address)

    def _check_silence(self, now: float) -> None:
        heard_at = self._connection.heard_at
        limit_s = self._opening.first_packet_s if heard_at is None else self._silent_s
        if limit_s is not None and now - (self._opened_at if heard_at is None else heard_at) >= limit_s:
            text = f"the caller has sent nothing for {limit_s:g} s"
            raise WireEnded(text, problem=text)


def _open_report_socket(sock: socket.socket) -> socket.socket | None:
    """Return a socket on the next port; None if another program has it: the call does without reports."""
    host, port, *_ = sock.getsockname()
    reports = socket.socket(sock.family, socket.SOCK_DGRAM)
    try:
        reports.bind((host, port + 1))
    except (OSError, OverflowError):
        reports.close()
        return None
    return reports


def _set_options(sock: socket.socket) -> None:
    sock.setblocking(False)
    with suppress(OSError):
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _EXPEDITED)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _EXPEDITED)
