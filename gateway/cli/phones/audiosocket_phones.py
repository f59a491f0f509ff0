"""Phones behind AudioSocket: call the gateway like Asterisk does, and record what arrives.

One thread and one selector carry all calls, so that a hundred phones take little processor time beside the
gateway under test. A phone sends its UUID (message 0x01), then 20 ms packets of silence on an absolute
schedule, and the requested digits. A packet's arrival time is the kernel's (SO_TIMESTAMPNS), not the time of
the read. It hangs up by closing the connection. It plays nothing and bridges nothing.

Source: app_audiosocket and chan_audiosocket of Asterisk, which connect within 2 s and hang up by closing.
"""

import heapq
import random
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from ....adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketProtocolError,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
    encode,
)
from .received_audio import ReceivedCall, ReceivedPacket
from .simulated_phones import (
    CONNECT_TIMEOUT_S,
    DIGIT_EVERY_S,
    FIRST_DIGIT_S,
    PTIME_S,
    SAMPLE_RATE,
    TIMESPEC,
    PhoneFailed,
    arrival_time,
    check_digits,
    enable_kernel_timestamps,
)

_RECEIVE_BYTES = 65_536


@dataclass(slots=True)
class SimulatedPhone:
    """One call in progress. Times are monotonic seconds."""

    call_id: UUID
    sock: socket.socket
    connection: AudioSocketConnection  # the caller's side; encodes what is sent
    connected: float
    next_silence: float  # when the next packet of silence is due
    digits: str  # keys still to press
    next_digit: float  # when the next key is due
    # (arrival, bytes) of each read; parsed after the call, to keep the loop short
    arrivals: list[tuple[float, bytes]] = field(default_factory=list)
    ended: float | None = None
    reason: str = ""  # why the call ended

    @property
    def next_due(self) -> float:
        """When the next message is due, monotonic seconds."""
        return min(self.next_silence, self.next_digit) if self.digits else self.next_silence


class PhoneSimulator:
    """Simulates phones on one thread: ``dial`` connects one, ``run`` sends and receives for all of them."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._selector = selectors.DefaultSelector()
        self._phones: dict[UUID, SimulatedPhone] = {}
        self._schedule: list[tuple[float, UUID]] = []
        self._random = random.Random(0)
        self._silence = encode(AudioSocketAudio(SAMPLE_RATE, bytes(round(SAMPLE_RATE * PTIME_S) * 2)))

    def dial(self, *, digits: str = "") -> UUID:
        """Connect a phone, which presses ``digits`` from one second after the connection on.

        Raises PhoneFailed if the connection fails, BadRequest for an invalid digit.
        """
        check_digits(digits)
        sock = self._connect()
        now = time.monotonic()
        phase_s = self._random.uniform(0, PTIME_S)  # spreads the phones over the 20 ms
        connection = AudioSocketConnection(AudioSocketRole.CALLER)
        phone_call = SimulatedPhone(
            uuid4(), sock, connection, now, now + phase_s, digits, now + FIRST_DIGIT_S
        )
        self._phones[phone_call.call_id] = phone_call
        self._selector.register(sock, selectors.EVENT_READ, phone_call)
        self._send(phone_call, connection.send(CallId(phone_call.call_id)), now)
        heapq.heappush(self._schedule, (phone_call.next_due, phone_call.call_id))
        return phone_call.call_id

    def _connect(self) -> socket.socket:
        host, port = self._address
        try:
            sock = socket.create_connection(self._address, timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            raise PhoneFailed(
                f"cannot connect to {host}:{port} ({error.strerror or error}); is `vivavoce serve` running?"
            ) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        enable_kernel_timestamps(sock)
        sock.setblocking(False)
        return sock

    @property
    def open_calls(self) -> int:
        """Number of calls that have not ended."""
        return sum(phone_call.ended is None for phone_call in self._phones.values())

    def run(self, until: float) -> None:
        """Send and receive until ``until`` (monotonic seconds), or until the last call has ended."""
        while self._schedule and (now := time.monotonic()) < until:
            wait_s = max(0.0, min(self._schedule[0][0], until) - now)
            for key, _ in self._selector.select(wait_s):
                self._receive(key.data)
            self._send_due(time.monotonic())

    def _send_due(self, now: float) -> None:
        while self._schedule and self._schedule[0][0] <= now:
            _, call = heapq.heappop(self._schedule)
            phone_call = self._phones[call]
            if phone_call.ended is not None:
                continue
            self._send_next(phone_call, now)
            heapq.heappush(self._schedule, (phone_call.next_due, call))

    def _send_next(self, phone_call: SimulatedPhone, now: float) -> None:
        if phone_call.digits and phone_call.next_digit <= phone_call.next_silence:
            digit, phone_call.digits = phone_call.digits[0], phone_call.digits[1:]
            phone_call.next_digit += DIGIT_EVERY_S
            self._send(phone_call, phone_call.connection.send(Dtmf(digit)), now)
            return
        phone_call.next_silence += PTIME_S
        self._send(phone_call, self._silence, now)

    def _send(self, phone_call: SimulatedPhone, message: bytes, now: float) -> None:
        try:
            sent = phone_call.sock.send(message)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._end(phone_call, now, f"the gateway dropped the connection ({error.strerror or error})")
            return
        if sent < len(message):  # Asterisk also ends the call after a short write
            self._end(phone_call, now, "the gateway stopped reading")

    def _receive(self, phone_call: SimulatedPhone) -> None:
        if phone_call.ended is not None:
            return
        try:
            data, ancillary, _, _ = phone_call.sock.recvmsg(_RECEIVE_BYTES, socket.CMSG_SPACE(TIMESPEC.size))
        except BlockingIOError:
            return
        except OSError as error:
            self._end(
                phone_call, time.monotonic(), f"the gateway reset the connection ({error.strerror or error})"
            )
            return
        if not data:
            self._end(phone_call, time.monotonic(), "the gateway hung up")
            return
        phone_call.arrivals.append((arrival_time(ancillary), data))

    def _end(self, phone_call: SimulatedPhone, now: float, reason: str) -> None:
        if phone_call.ended is not None:
            return
        phone_call.ended, phone_call.reason = now, reason
        self._selector.unregister(phone_call.sock)
        phone_call.sock.close()

    def close(self) -> None:
        """Hang up every call by closing its connection, and close the selector."""
        for phone_call in self._phones.values():
            self._end(phone_call, time.monotonic(), "we hung up")
        self._selector.close()

    def require_protocol(self) -> None:
        """Raise PhoneFailed if the server answered a call in another protocol from the start."""
        host, port = self._address
        for phone_call in self._phones.values():
            if fault := _describe_other_protocol(phone_call):
                raise PhoneFailed(
                    f"{host}:{port} {fault}; give the AudioSocket port that `vivavoce serve` prints "
                    "(9092 by default)"
                )

    def received_calls(self) -> list[ReceivedCall]:
        """The audio that each phone has received so far, in the order of dialling."""
        return [_received_call(phone_call) for phone_call in self._phones.values()]


def _describe_other_protocol(phone_call: SimulatedPhone) -> str | None:
    if b"".join(data for _, data in phone_call.arrivals[:5]).startswith(b"HTTP/"):
        return "speaks HTTP, not AudioSocket"
    try:
        for _ in _received_events(phone_call):
            return None  # a message that AudioSocket has
    except AudioSocketProtocolError as error:
        return f"does not speak AudioSocket ({error})"
    return None


def _received_call(phone_call: SimulatedPhone) -> ReceivedCall:
    packets: list[ReceivedPacket] = []
    reason = phone_call.reason
    try:
        for arrived, event in _received_events(phone_call):
            match event:
                case AudioSocketAudio(sample_rate=sample_rate, payload=payload):
                    packets.append(ReceivedPacket(arrived, sample_rate, payload))
                case Hangup():
                    reason = "the gateway hung up"
    except AudioSocketProtocolError as error:
        reason = f"the gateway broke the protocol: {error}"
    ended = time.monotonic() if phone_call.ended is None else phone_call.ended
    return ReceivedCall(phone_call.call_id, phone_call.connected, tuple(packets), ended, reason)


def _received_events(phone_call: SimulatedPhone) -> Iterator[tuple[float, object]]:
    connection = AudioSocketConnection(AudioSocketRole.CALLER)
    for arrived, data in phone_call.arrivals:
        connection.receive_data(data)
        for event in connection.events():
            yield arrived, event
