"""A connection until its call id has arrived: admitted or refused, timed, and handed over with its socket.

Who accepts connections is not who serves calls (``adapters.media``): a slow accept, a refusal or the wait for
an id is then heard by nobody.

    connection_made --has_room--> waiting for the id --CallId--> waiting for audio, if asked --> handed over
                       '-> refused with 0x00       '-> ended with 0x00

Until it is handed over, it takes no place of a call, but one of the connections whose peers are unknown.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Protocol, assert_never
from uuid import UUID

from ..unidentified_connections import UnidentifiedConnections
from .protocol import AudioSocketAudio, AudioSocketProtocolError, CallId, Dtmf, Hangup
from .server_connection import AudioSocketServerConnection, AudioSocketTimeouts
from .wire import LINGER_S, set_socket_options


class NoRoomForCall(Exception):
    """The application takes no call now, and has logged why."""


class CallApplication(Protocol):
    """Accepts calls and writes the log."""

    def has_room(self, call: "PendingCall") -> bool:
        """Return whether a new connection may become a call; log a refusal."""

    def open(self, call: "PendingCall", call_id: UUID, sock: socket.socket, received: bytes) -> None:
        """Open the call of a connection, and own ``sock`` unless it raises.

        ``received`` is all that was read from the connection: the call's id, and what follows. NoRoomForCall
        ends the connection. So does AudioSocketProtocolError, which is logged as the peer's.
        """

    def log_protocol_error(self, call: "PendingCall", error: str) -> None:
        """Log an error of the peer, which ends the connection."""

    def log_internal_error(self, call: "PendingCall", error: Exception) -> None:
        """Log an error of this program, which ends the connection."""


class PendingCall(asyncio.Protocol):
    """One connection. An exception of the application ends this connection and no other.

    Args:
        awaits_audio_s: how long a call waits for its first audio before it is opened.
        unidentified: the connections of the listener that are not handed over.
        on_closed: called when nothing of the connection is left here.
    """

    def __init__(
        self,
        application: CallApplication,
        timeouts: AudioSocketTimeouts,
        awaits_audio_s: float,
        unidentified: UnidentifiedConnections,
        on_closed: Callable[["PendingCall"], None],
    ) -> None:
        self.peer = "?"  # address of the caller
        self.caller_sample_rate: int | None = (
            None  # Hz of the first audio; None: none came before the opening
        )
        self._call_id: UUID | None = None
        self._awaits_audio_s = awaits_audio_s
        self._application = application
        self._unidentified = unidentified
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._connection = AudioSocketServerConnection(self._loop.time(), timeouts)
        self._received = bytearray()
        self._ended = False  # or handed over; the connection may remain for LINGER_S
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    @property
    def name(self) -> str:
        """Name for the log: the caller's address, as the id has not arrived."""
        return f"from {self.peer}"

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the call's id, or refuse the connection with 0x00."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{host}:{port}"
        set_socket_options(transport.get_extra_info("socket"))
        self._unidentified.add(self, str(host), transport.abort)
        if self._application.has_room(self):
            self._set_timer(self._connection.deadline, self._on_deadline)
        else:
            self._ended = True
            self._send_hangup()

    def data_received(self, data: bytes) -> None:
        """Handle received messages; after the end they are dropped."""
        if not self._ended:
            self._received += data
            self._connection.receive_data(data)
            self._handle_events()

    def eof_received(self) -> None:
        """Treat the end of the stream as a hangup, because Asterisk hangs up by closing."""
        if not self._ended:
            self._connection.receive_eof()
            self._handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection if it has not ended yet."""
        self._set_timer(None)
        self._ended = True
        self._unidentified.remove(self)
        self._on_closed(self)

    # Called by the application

    def end(self, reason: str) -> None:
        """End the connection with 0x00, so that the dial plan continues; does nothing if it has ended."""
        if not self._ended:
            self._ended = True
            self._send_hangup()

    def _handle_events(self) -> None:
        try:
            for event in self._connection.events(self._loop.time()):
                match event:
                    case CallId(uuid):
                        self._call_id = uuid
                        self._set_timer(self._loop.time() + self._awaits_audio_s, self._open)
                    case AudioSocketAudio(sample_rate=sample_rate):
                        self.caller_sample_rate = sample_rate
                    case Dtmf():
                        pass  # read again by the call
                    case Hangup():
                        self._ended = True
                        self._transport.close()
                        self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)
                        return
                    case _:
                        assert_never(event)
                if self._call_id and (self.caller_sample_rate or not self._awaits_audio_s):
                    self._open()
                    return
        except AudioSocketProtocolError as error:
            self._end_for_protocol_error(error)

    def _open(self) -> None:
        assert self._call_id is not None
        try:
            self._hand_over(self._call_id)
        except AudioSocketProtocolError as error:
            self._end_for_protocol_error(error)
        except NoRoomForCall as refused:
            self.end(str(refused))
        except Exception as error:  # boundary: an error in one call must not affect the others
            self._application.log_internal_error(self, error)
            self.end("internal error")

    def _hand_over(self, call_id: UUID) -> None:
        with ExitStack() as undo:
            sock = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))
            undo.callback(sock.close)
            self._application.open(self, call_id, sock, bytes(self._received))
            undo.pop_all()
        self._ended = True
        self._unidentified.remove(self)
        self._set_timer(None)
        self._transport.abort()  # closes this descriptor of the connection, not the connection

    def _on_deadline(self) -> None:
        try:
            self._connection.check_deadline(self._loop.time())
        except AudioSocketProtocolError as error:
            self._end_for_protocol_error(error)

    def _end_for_protocol_error(self, error: AudioSocketProtocolError) -> None:
        self._application.log_protocol_error(self, str(error))
        self.end(str(error))

    def _send_hangup(self) -> None:
        # Half closed, not closed: received data that was not read would turn the close into a reset, after
        # which Asterisk hangs up instead of continuing with its dial plan.
        self._transport.write(self._connection.encode_hangup())
        with suppress(OSError):  # the peer may have disconnected
            self._transport.write_eof()
        self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)

    def _set_timer(self, at_time: float | None, callback: Callable[[], object] | None = None) -> None:
        """Replace the timer: run ``callback`` at ``at_time`` (loop time), or never if None."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at_time is None or callback is None else self._loop.call_at(at_time, callback)
