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

from .audiosocket import Audio, CallId, Dtmf, Hangup, ProtocolError
from .audiosocket_line import Patience, ServerLine

LINGER_S: Final = 1.0  # after our 0x00; Asterisk closes within milliseconds of it
UNSENT_IN_KERNEL: Final = 4096  # bytes: a quarter of a second at 8 kHz, then the transport sees the backlog


class AudioSocketLeg(asyncio.Protocol, ABC):
    """One connection. Boundary: whatever goes wrong in it ends this connection alone.

    All of it runs on the loop; nothing of it waits.
    """

    def __init__(self, patience: Patience) -> None:
        self.peer = "?"  # address of the caller
        self.over = False  # the call, or what might have become one; the connection may take a moment longer
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._line = ServerLine(self._loop.time(), patience)
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    @property
    def dropped(self) -> int:
        """Packets that the peer did not take in time."""
        return self._line.dropped

    # What an heir says

    @abstractmethod
    def admit(self) -> bool:
        """A connection came; whether it may become a call."""

    @abstractmethod
    def take(self, event: CallId | Audio | Dtmf) -> None:
        """The caller says this."""

    @abstractmethod
    def on_over(self, reason: str) -> None:
        """The call is over, or never was one; told once."""

    @abstractmethod
    def on_gone(self) -> None:
        """The connection is gone, too."""

    @abstractmethod
    def log_fault(self, fault: str) -> None:
        """The peer did something amiss, for which it is hung up on."""

    @abstractmethod
    def log_failure(self, error: Exception) -> None:
        """Something of ours broke."""

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the caller in, or say goodbye at once."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{host}:{port}"
        _prepare(transport.get_extra_info("socket"))
        if self.admit():
            self._set_timer(self._line.deadline, self._on_deadline)
        else:
            self.over = True
            self._say_goodbye()

    def data_received(self, data: bytes) -> None:
        """What comes after the end is read and dropped."""
        if not self.over:
            self._line.receive_data(data)
            self._take_events()

    def eof_received(self) -> None:
        """Asterisk hangs up by closing."""
        if not self.over:
            self._line.receive_eof()
            self._take_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """The call, if it is not over yet, is now."""
        self._set_timer(None)
        self._close("the caller hung up" if exc is None else f"the caller's connection broke ({exc})")
        self.on_gone()

    # What an heir calls

    def send(self, packet: Audio) -> None:
        """Write a packet, or drop it whole where the caller reads late; one who reads nothing is cut off."""
        if message := self._line.packet(packet, self._transport.get_write_buffer_size()):
            self._transport.write(message)
        elif self._line.stalled:
            self.log_fault(f"the peer has taken nothing for {self._patience.stalled_s:g} s")
            self._close("the peer stopped reading")
            self._transport.abort()

    def end(self, reason: str) -> None:
        """End the call with 0x00, so that the dial plan goes on; twice is no error."""
        if not self.over:
            self._close(reason)
            self._say_goodbye()

    def fail(self, error: Exception) -> None:
        """End the call for an error of ours."""
        self.log_failure(error)
        self.end("an error of ours")

    def _take_events(self) -> None:
        try:
            for event in self._line.events(self._loop.time()):
                if isinstance(event, Hangup):
                    self._close("the caller hung up")
                    self._transport.close()
                    self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)
                else:
                    self.take(event)
                if self.over:
                    return
        except ProtocolError as fault:
            self._blame(fault)
        except Exception as error:
            self.fail(error)
        else:
            self._set_timer(self._line.deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        try:
            self._line.check(self._loop.time())
        except ProtocolError as fault:
            self._blame(fault)

    def _blame(self, fault: ProtocolError) -> None:
        self.log_fault(str(fault))
        self.end(str(fault))

    def _close(self, reason: str) -> None:
        if not self.over:
            self.over = True
            self.on_over(reason)

    def _say_goodbye(self) -> None:
        # Half closed, not closed: data that we have not read would turn the close into a reset, which makes
        # Asterisk hang the caller up instead of going on with its dial plan.
        self._transport.write(self._line.goodbye())
        with suppress(OSError):  # a peer that is gone need not be told
            self._transport.write_eof()
        self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)

    def _set_timer(self, at: float | None, then: Callable[[], object] | None = None) -> None:
        """Run ``then`` at ``at`` (loop's time) instead of what the timer was set to; None stops it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None or then is None else self._loop.call_at(at, then)


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)
