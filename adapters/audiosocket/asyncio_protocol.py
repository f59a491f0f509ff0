"""One AudioSocket connection on an event loop, seen from the server that is dialled.

``audiosocket_line`` says what a caller may do and by when; here are the socket and the timer that belong to
it, and how a call is ended so that Asterisk goes on with its dial plan. Who listens, who is let in and what
is said are an heir's affair: the gateway's ``audiosocket_server``, and ``pipecat_audiosocket_leg``.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from .protocol import AudioSocketAudio, AudioSocketProtocolError, CallId, Dtmf, Hangup
from .server_connection import AudioSocketServerConnection, AudioSocketTimeouts

LINGER_S: Final = 1.0  # after our 0x00; Asterisk closes within milliseconds of it
NOTSENT_LOWAT_BYTES: Final = (
    4096  # bytes: a quarter of a second at 8 kHz, then the transport sees the backlog
)


class AudioSocketProtocol(asyncio.Protocol, ABC):
    """One connection. Boundary: whatever goes wrong in it ends this connection alone.

    All of it runs on the loop; nothing of it waits.
    """

    def __init__(self, timeouts: AudioSocketTimeouts) -> None:
        self.peer = "?"  # address of the caller
        self.ended = False  # the call, or what might have become one; the connection may take a moment longer
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._connection = AudioSocketServerConnection(self._loop.time(), timeouts)
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    @property
    def dropped(self) -> int:
        """Packets that the peer did not take in time."""
        return self._connection.dropped

    # What an heir says

    @abstractmethod
    def admit(self) -> bool:
        """A connection came; whether it may become a call."""

    @abstractmethod
    def handle_event(self, event: CallId | AudioSocketAudio | Dtmf) -> None:
        """The caller says this."""

    @abstractmethod
    def on_call_ended(self, reason: str) -> None:
        """The call is over, or never was one; told once."""

    @abstractmethod
    def on_disconnected(self) -> None:
        """The connection is gone, too."""

    @abstractmethod
    def log_protocol_error(self, error: str) -> None:
        """The peer did something amiss, for which it is hung up on."""

    @abstractmethod
    def log_internal_error(self, error: Exception) -> None:
        """Something of ours broke."""

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the caller in, or say goodbye at once."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{host}:{port}"
        _set_socket_options(transport.get_extra_info("socket"))
        if self.admit():
            self._set_timer(self._connection.deadline, self._on_deadline)
        else:
            self.ended = True
            self._send_hangup()

    def data_received(self, data: bytes) -> None:
        """What comes after the end is read and dropped."""
        if not self.ended:
            self._connection.receive_data(data)
            self._handle_events()

    def eof_received(self) -> None:
        """Asterisk hangs up by closing."""
        if not self.ended:
            self._connection.receive_eof()
            self._handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """The call, if it is not over yet, is now."""
        self._set_timer(None)
        self._close("the caller hung up" if exc is None else f"the caller's connection broke ({exc})")
        self.on_disconnected()

    # What an heir calls

    def send(self, packet: AudioSocketAudio) -> None:
        """Write a packet, or drop it whole where the caller reads late; one who reads nothing is cut off."""
        if message := self._connection.encode_packet(packet, self._transport.get_write_buffer_size()):
            self._transport.write(message)
        elif self._connection.has_stalled:
            self.log_protocol_error(f"the peer has taken nothing for {self._timeouts.stalled_s:g} s")
            self._close("the peer stopped reading")
            self._transport.abort()

    def end(self, reason: str) -> None:
        """End the call with 0x00, so that the dial plan goes on; twice is no error."""
        if not self.ended:
            self._close(reason)
            self._send_hangup()

    def fail(self, error: Exception) -> None:
        """End the call for an error of ours."""
        self.log_internal_error(error)
        self.end("an error of ours")

    def _handle_events(self) -> None:
        try:
            for event in self._connection.events(self._loop.time()):
                if isinstance(event, Hangup):
                    self._close("the caller hung up")
                    self._transport.close()
                    self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)
                else:
                    self.handle_event(event)
                if self.ended:
                    return
        except AudioSocketProtocolError as error:
            self._end_for_protocol_error(error)
        except Exception as error:
            self.fail(error)
        else:
            self._set_timer(self._connection.deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        try:
            self._connection.check_deadline(self._loop.time())
        except AudioSocketProtocolError as error:
            self._end_for_protocol_error(error)

    def _end_for_protocol_error(self, error: AudioSocketProtocolError) -> None:
        self.log_protocol_error(str(error))
        self.end(str(error))

    def _close(self, reason: str) -> None:
        if not self.ended:
            self.ended = True
            self.on_call_ended(reason)

    def _send_hangup(self) -> None:
        # Half closed, not closed: data that we have not read would turn the close into a reset, which makes
        # Asterisk hang the caller up instead of going on with its dial plan.
        self._transport.write(self._connection.encode_hangup())
        with suppress(OSError):  # a peer that is gone need not be told
            self._transport.write_eof()
        self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)

    def _set_timer(self, at_time: float | None, callback: Callable[[], object] | None = None) -> None:
        """Run ``then`` at ``at`` (loop's time) instead of what the timer was set to; None stops it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at_time is None or callback is None else self._loop.call_at(at_time, callback)


def _set_socket_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)
