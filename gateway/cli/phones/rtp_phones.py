"""Simulated phones over RTP: each asks the gateway for a call, and sends u-law to the port that it is told.

As ``audiosocket_phones`` has it: one thread, silence on an absolute schedule, arrival times of the kernel,
everything parsed after the calls. A phone hangs up with BYE, and the gateway's BYE ends its call.
"""

import heapq
import random
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from uuid import UUID

import httpx

from ....adapters.rtp.codec import CODECS, TELEPHONE_EVENT
from ....adapters.rtp.packet import RtpPacket, RtpProtocolError, encode_packet, parse_packet
from ....adapters.rtp.rtcp import Bye, encode_bye, parse_rtcp
from ....adapters.rtp.telephone_events import encode_key
from .received_audio import ReceivedCall, ReceivedPacket
from .simulated_phones import (
    CONNECT_TIMEOUT_S,
    DIGIT_EVERY_S,
    FIRST_DIGIT_S,
    PTIME_S,
    SAMPLE_RATE,
    TIMESPEC,
    CallRefused,
    PhoneFailed,
    arrival_time,
    check_digits,
    enable_kernel_timestamps,
)

_PACKET_SAMPLES: Final = round(SAMPLE_RATE * PTIME_S)
_ULAW: Final = CODECS["ulaw"]
_SILENCE: Final = _ULAW.encode(bytes(2 * _PACKET_SAMPLES))
_KEY_PACKETS: Final = 6  # of which the last three end the key
_RECEIVE_BYTES: Final = 2048
_CNAME: Final = "phone"


@dataclass(slots=True, eq=False)
class SimulatedRtpPhone:
    """One call in progress. Times are monotonic seconds."""

    call_id: UUID
    sock: socket.socket
    report_sock: socket.socket
    server: tuple[str, int]
    connected: float
    next_silence: float
    digits: str  # keys still to press
    next_digit: float
    ssrc: int
    sequence: int = 0
    timestamp: int = 0
    arrivals: list[tuple[float, bytes]] = field(default_factory=list)
    ended: float | None = None
    reason: str = ""  # why the call ended

    def send_silence(self) -> None:
        """Send the next packet."""
        self._send(_ULAW.payload_type, _SILENCE, self.timestamp)
        self.timestamp = (self.timestamp + _PACKET_SAMPLES) % 2**32
        self.next_silence += PTIME_S

    def press_key(self) -> None:
        """Send the next key."""
        digit, self.digits = self.digits[0], self.digits[1:]
        self.next_digit += DIGIT_EVERY_S
        for number in range(_KEY_PACKETS):
            duration = (number + 1) * _PACKET_SAMPLES
            payload = encode_key(digit, duration=duration, is_end=number >= _KEY_PACKETS // 2)
            self._send(TELEPHONE_EVENT, payload, self.timestamp, marker=number == 0)

    def _send(self, payload_type: int, payload: bytes, timestamp: int, *, marker: bool = False) -> None:
        packet = RtpPacket(payload_type, self.sequence, timestamp, self.ssrc, payload, marker)
        self.sequence = (self.sequence + 1) % 2**16
        with suppress(OSError):  # it is lost, as on a network
            self.sock.sendto(encode_packet(packet), self.server)

    def end(self, now: float, reason: str) -> None:
        """End the call; twice is no error."""
        if self.ended is None:
            self.ended, self.reason = now, reason

    def received(self) -> ReceivedCall:
        """Parse what was heard."""
        ended = time.monotonic() if self.ended is None else self.ended
        return ReceivedCall(self.call_id, self.connected, tuple(self._packets()), ended, self.reason)

    def _packets(self) -> Iterator[ReceivedPacket]:
        for arrived, data in self.arrivals:
            with suppress(RtpProtocolError):
                yield ReceivedPacket(arrived, SAMPLE_RATE, _ULAW.decode(parse_packet(data).payload))


class RtpPhones:
    """Phones on one thread, each with two UDP sockets.

    Args:
        host: of the gateway's HTTP, as ``port``.
    """

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._selector = selectors.DefaultSelector()
        self._phones: list[SimulatedRtpPhone] = []
        self._schedule: list[tuple[float, int]] = []  # when a phone's next packet is due, its index
        self._random = random.Random(0)
        self._http = httpx.Client(
            base_url=f"http://{host}:{port}", timeout=CONNECT_TIMEOUT_S, trust_env=False
        )

    @property
    def open_calls(self) -> int:
        """Number of calls that have not ended."""
        return sum(one.ended is None for one in self._phones)

    def dial(self, *, digits: str = "") -> UUID:
        """Ask for a call; raises CallRefused, PhoneFailed, and BadRequest for an invalid digit."""
        check_digits(digits)
        sock, report_sock = _bind_pair(self._address)
        try:
            call_id, server = self._place_call(sock)
        except PhoneFailed:
            sock.close()
            report_sock.close()
            raise
        now = time.monotonic()
        phase_s = self._random.uniform(0, PTIME_S)  # spreads the phones over the 20 ms
        one = SimulatedRtpPhone(
            call_id,
            sock,
            report_sock,
            server,
            now,
            now + phase_s,
            digits,
            now + FIRST_DIGIT_S,
            self._random.getrandbits(32),
        )
        self._selector.register(sock, selectors.EVENT_READ, one)
        self._selector.register(report_sock, selectors.EVENT_READ, one)
        heapq.heappush(self._schedule, (one.next_silence, len(self._phones)))
        self._phones.append(one)
        return call_id

    def run(self, until: float) -> None:
        """Send and receive until ``until`` (monotonic seconds), or until the last call has ended."""
        while self._schedule and (now := time.monotonic()) < until:
            wait_s = max(0.0, min(self._schedule[0][0], until) - now)
            for key, _ in self._selector.select(wait_s):
                self._receive(key.data, key.fileobj is key.data.report_sock)
            self._send_due(time.monotonic())

    def close(self) -> None:
        """Hang up every call with BYE."""
        for one in self._phones:
            if one.ended is None:
                with suppress(OSError):
                    reports = (one.server[0], one.server[1] + 1)
                    one.report_sock.sendto(encode_bye(one.ssrc, _CNAME), reports)
            one.end(time.monotonic(), "we hung up")
            one.sock.close()
            one.report_sock.close()
        self._selector.close()
        self._http.close()

    def require_protocol(self) -> None:
        """Do nothing: ``dial`` fails if the server is another."""

    def received_calls(self) -> list[ReceivedCall]:
        """Return what each phone has heard so far, in the order of dialling."""
        return [one.received() for one in self._phones]

    def _place_call(self, sock: socket.socket) -> tuple[UUID, tuple[str, int]]:
        host, port, *_ = sock.getsockname()
        try:
            answer = self._http.post("/v1/calls", json={"over": "rtp", "peer": f"{host}:{port}"})
            answer.raise_for_status()
            place = answer.json()
            return UUID(place["call"]), (place["address"], place["port"])
        except httpx.HTTPStatusError as error:
            busy = error.response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            failure = CallRefused if busy else PhoneFailed
            raise failure(f"the gateway refused the call: {error.response.text[:200]}") from error
        except (httpx.HTTPError, ValueError, KeyError) as error:
            address = f"{self._address[0]}:{self._address[1]}"
            raise PhoneFailed(
                f"cannot call {address} ({error!r}); give the HTTP port of `vivavoce serve` (8080 by default)"
            ) from error

    def _receive(self, one: SimulatedRtpPhone, is_report: bool) -> None:
        sock = one.report_sock if is_report else one.sock
        try:
            data, ancillary, _, _ = sock.recvmsg(_RECEIVE_BYTES, socket.CMSG_SPACE(TIMESPEC.size))
        except OSError:  # nothing is there, or one of our packets was refused
            return
        if not is_report:
            one.arrivals.append((arrival_time(ancillary), data))
            return
        with suppress(RtpProtocolError):
            if any(isinstance(event, Bye) for event in parse_rtcp(data)):
                one.end(time.monotonic(), "the gateway hung up")

    def _send_due(self, now: float) -> None:
        while self._schedule and self._schedule[0][0] <= now:
            _, index = heapq.heappop(self._schedule)
            one = self._phones[index]
            if one.ended is not None:
                continue
            if one.digits and one.next_digit <= one.next_silence:
                one.press_key()
            one.send_silence()
            heapq.heappush(self._schedule, (one.next_silence, index))


def _bind_pair(server: tuple[str, int]) -> tuple[socket.socket, socket.socket]:
    """Return sockets on two successive ports of the address from which the server is reached."""
    try:
        found = socket.getaddrinfo(*server, type=socket.SOCK_DGRAM)
        family, *_, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            host = probe.getsockname()[0]
    except OSError as error:
        raise PhoneFailed(f"cannot reach {server[0]}:{server[1]} ({error})") from error
    while True:
        pair = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_DGRAM)
        try:
            pair[0].bind((host, 0))
            pair[1].bind((host, pair[0].getsockname()[1] + 1))
        except (OSError, OverflowError):  # the next port is another program's
            for sock in pair:
                sock.close()
            continue
        for sock in pair:
            sock.setblocking(False)
        enable_kernel_timestamps(pair[0])
        return pair
