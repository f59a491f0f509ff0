"""AudioSocket as the wire of a call: one TCP connection, in whole messages, and the options of its socket."""

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, assert_never
from uuid import UUID

from ..media.phone_media import PhoneCallOptions
from ..media.phone_wire import WireEnded, WireListener
from .protocol import HEADER_BYTES, AudioSocketAudio, AudioSocketProtocolError, CallId, Dtmf, Hangup, encode
from .server_connection import AudioSocketServerConnection, AudioSocketTimeouts

LINGER_S: Final = 1.0  # after our 0x00; Asterisk closes within milliseconds of it
# A quarter of a second at 8 kHz; with more, the kernel would hide the backlog from the transport.
NOTSENT_LOWAT_BYTES: Final = 4096


def set_socket_options(sock: socket.socket) -> None:
    """Send each message at once, and let the kernel keep little that is not sent."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)


_READ_BYTES: Final = 16 * 1024  # in a tick; a phone sends 323 at 8 kHz
_HOOK_FLASH: Final = "!"  # no key of the caller's


@dataclass(frozen=True, slots=True)
class AudioSocketOpening:
    """An AudioSocket connection that is open already: a ``WireOpening``."""

    call_id: UUID
    received: bytes  # what was read from it so far, with the call's id

    def open(
        self,
        options: PhoneCallOptions,
        sock: socket.socket,
        report: Callable[[str], None],
        now: Callable[[], float],
    ) -> "AudioSocketWire":
        """Return the wire."""
        return AudioSocketWire(self, options, sock, now)

    def reopened(self) -> "AudioSocketOpening":
        """Return the opening for another media server, which begins between two messages."""
        return replace(self, received=encode(CallId(self.call_id)))


class AudioSocketWire:
    """Implements ``PhoneWire`` for a connection that has sent its call's id."""

    def __init__(
        self,
        opening: AudioSocketOpening,
        options: PhoneCallOptions,
        sock: socket.socket,
        now: Callable[[], float],
    ) -> None:
        self._sock = sock
        self._now = now
        self._sample_rate = options.sample_rate
        timeouts = AudioSocketTimeouts(stalled_s=options.stalled_s, silent_s=options.silent_s)
        self._connection = AudioSocketServerConnection(now(), timeouts)
        self._unsent = b""  # rest of a message that the socket took in part
        self._close_at = 0.0  # set by ``hang_up``
        sock.setblocking(False)
        set_socket_options(sock)
        self._received = opening.received  # before the socket is read

    @property
    def dropped(self) -> int:
        """Packets that were not sent because the peer read late."""
        return self._connection.dropped

    def receive(self, now: float, listener: WireListener) -> None:
        """Send the rest of the last message, and read what has arrived; raises WireEnded."""
        if self._unsent:
            self._write(b"")
        data = self._read()
        try:
            if data is None:
                self._connection.check_deadline(now)
                return
            for part in _split_messages(data):
                if part and (sample_rate := self._connection.receive_audio(part, now)):
                    listener.receive_audio(part[HEADER_BYTES:], sample_rate)
                else:
                    self._receive_messages(part, now, listener)
        except AudioSocketProtocolError as error:
            raise WireEnded(str(error), problem=str(error)) from None

    def _read(self) -> bytes | None:
        """What has arrived; empty at the end, None if there is nothing."""
        received, self._received = self._received, b""
        try:
            return received + self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return received or None
        except OSError as error:
            raise WireEnded(f"the caller's connection broke ({error})") from None

    def _receive_messages(self, data: bytes, now: float, listener: WireListener) -> None:
        if data:
            self._connection.receive_data(data)
        else:
            self._connection.receive_eof()
        for event in self._connection.events(now):
            match event:
                case AudioSocketAudio(sample_rate, payload):
                    listener.receive_audio(payload, sample_rate)
                case Dtmf(digit):
                    if digit != _HOOK_FLASH:
                        listener.press(digit.upper())
                case CallId():
                    pass  # control has it
                case Hangup():
                    raise WireEnded("the caller hung up")
                case _:
                    assert_never(event)
        self._connection.check_deadline(now)

    def send(self, packet: bytes) -> None:
        """Send one packet, or drop it if the peer reads late; raises WireEnded if it reads nothing."""
        if message := self._connection.encode_packet(self._sample_rate, packet, len(self._unsent)):
            self._write(message)
        elif self._connection.has_stalled:
            problem = f"the peer has taken nothing for {self._connection.stalled_s:g} s"
            raise WireEnded("the peer stopped reading", problem=problem, is_stalled=True)

    def change(self, opening: object) -> None:
        """Do nothing: nothing of a connection can change."""

    def send_keys(self, digits: str) -> None:
        """Do nothing: Asterisk takes no keys here, and its own interface sends them."""

    def skip(self, packets: int) -> None:
        """Do nothing: messages have no timestamps."""

    def hang_up(self) -> None:
        """Send 0x00, after which Asterisk continues with its dial plan."""
        self._close_at = self._now() + LINGER_S
        self._write(self._connection.encode_hangup())
        self._shut_down_if_sent()

    def linger(self, now: float) -> bool:
        """Send the rest and drop what arrives; return whether the peer has closed or the time is up."""
        if self._unsent:
            self._write(b"")
        self._shut_down_if_sent()
        try:
            peer_has_closed = not self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            peer_has_closed = False
        except OSError:
            peer_has_closed = True
        return peer_has_closed or now >= self._close_at

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _write(self, message: bytes) -> None:
        data = self._unsent + message if self._unsent else message
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # the next read says so too
            sent = len(data)
        self._unsent = data[sent:]

    def _shut_down_if_sent(self) -> None:
        # Half closed, not closed: received data that was not read would turn the close into a reset, after
        # which Asterisk hangs up instead of continuing with its dial plan.
        if not self._unsent:
            with suppress(OSError):  # the peer may have disconnected
                self._sock.shutdown(socket.SHUT_WR)


def _split_messages(data: bytes) -> list[bytes]:
    """Received data, by messages if all have the size of the first, as packets that arrive late have."""
    size = HEADER_BYTES + int.from_bytes(data[1:HEADER_BYTES])
    if len(data) <= size or len(data) % size:
        return [data]
    return [data[start : start + size] for start in range(0, len(data), size)]
