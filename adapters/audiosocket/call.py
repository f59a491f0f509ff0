"""One AudioSocket call on an event loop: its socket, its timers, and the task that serves it.

``server_connection`` has the rules of a call; ``AudioSocketCall`` applies them to an asyncio transport and
ends calls so that Asterisk continues with its dial plan. The application decides which calls are accepted
(``CallApplication``) and what happens on each of them (``CallHandler``).

    connection_made --admit--> waiting for the id --CallId: open, run--> in the call --> ended --> closed
                       '-> refused with 0x00
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, assert_never
from uuid import UUID

from .protocol import AudioSocketAudio, AudioSocketProtocolError, CallId, Dtmf, Hangup
from .server_connection import AudioSocketServerConnection, AudioSocketTimeouts
from .socket_options import LINGER_S, set_socket_options


class CallHandler(Protocol):
    """The application's part of one call. All methods run on the event loop and must not block."""

    def on_audio(self, audio: AudioSocketAudio) -> None:
        """Take audio of the caller."""

    def on_dtmf(self, digit: str) -> None:
        """Take a key that the caller pressed."""

    def tick(self, now: float) -> int:
        """Send the packets due at ``now`` (monotonic s) and return their number."""

    async def run(self) -> None:
        """Serve the call. The call ends when this returns or raises."""

    def on_ended(self, reason: str) -> None:
        """Note that the call has ended; called once. ``run`` is not cancelled by the call."""


class CallApplication(Protocol):
    """Accepts calls, creates their handlers and writes the log."""

    def admit(self, call: "AudioSocketCall") -> bool:
        """Return whether a new connection may become a call."""

    def open(self, call: "AudioSocketCall", call_id: UUID, start: float) -> CallHandler:
        """Create the handler of a call whose first packet is due at ``start`` (monotonic s)."""

    def on_ended(self, call: "AudioSocketCall", reason: str) -> None:
        """Note that an admitted connection has ended, with or without a call id; called once."""

    def log_protocol_error(self, call: "AudioSocketCall", error: str) -> None:
        """Log an error of the peer, which ends the call."""

    def log_internal_error(self, call: "AudioSocketCall", error: Exception) -> None:
        """Log an error of this program, which ends the call."""


class CallPacer(Protocol):
    """Calls ``tick`` of each joined call about every 20 ms, and ``fail`` if that raises."""

    def join(self, call: "AudioSocketCall", /) -> float:
        """Add a call; return the time of its first tick, monotonic seconds."""

    def leave(self, call: "AudioSocketCall", /) -> None:
        """Remove a call; does nothing for a call that has not joined."""


class AudioSocketCall(asyncio.Protocol):
    """One connection. An exception of its handler ends this connection and no other."""

    def __init__(
        self,
        application: CallApplication,
        pacer: CallPacer,
        timeouts: AudioSocketTimeouts,
        on_closed: Callable[["AudioSocketCall"], None],
    ) -> None:
        """Create the protocol; ``on_closed`` is called when both its connection and its task have ended."""
        self.peer = "?"  # address of the caller
        self.call_id: UUID | None = None
        self.ended = False  # no packets and no events any more; the connection may remain for LINGER_S
        self.task: asyncio.Task[None] | None = None  # runs the handler
        self._application = application
        self._pacer = pacer
        self._timeouts = timeouts
        self._on_closed = on_closed
        self._handler: CallHandler | None = None
        self._loop = asyncio.get_running_loop()
        self._connection = AudioSocketServerConnection(self._loop.time(), timeouts)
        self._connected = True
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    @property
    def name(self) -> str:
        """Name for the log: the call's id, or the caller's address before the id has arrived."""
        return f"from {self.peer}" if self.call_id is None else str(self.call_id)

    @property
    def dropped(self) -> int:
        """Number of packets not sent because the peer read late."""
        return self._connection.dropped

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection, or refuse it with 0x00."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{host}:{port}"
        set_socket_options(transport.get_extra_info("socket"))
        if self._application.admit(self):
            self._set_timer(self._connection.deadline, self._on_deadline)
        else:
            self.ended = True
            self._send_hangup()

    def data_received(self, data: bytes) -> None:
        """Handle received messages; after the end of the call they are dropped."""
        if not self.ended:
            self._connection.receive_data(data)
            self._handle_events()

    def eof_received(self) -> None:
        """Treat the end of the stream as a hangup, because Asterisk hangs up by closing."""
        if not self.ended:
            self._connection.receive_eof()
            self._handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the call if it has not ended yet."""
        self._set_timer(None)
        self._end(f"the caller's connection broke ({exc})" if exc else "the caller hung up")
        self._connected = False
        self._report_closed()

    # Called by the pacer

    def tick(self, now: float) -> int:
        """Send the packets due at ``now`` (monotonic s) and return their number."""
        return 0 if self._handler is None or self.ended else self._handler.tick(now)

    def fail(self, error: Exception) -> None:
        """End the call because of an error of this program."""
        self._application.log_internal_error(self, error)
        self.end("internal error")

    # Called by the handler

    def send(self, packet: AudioSocketAudio) -> None:
        """Write a packet, or drop it if the peer reads late; a peer that reads nothing is disconnected."""
        if message := self._connection.encode_packet(packet, self._transport.get_write_buffer_size()):
            self._transport.write(message)
        elif self._connection.has_stalled:
            self._application.log_protocol_error(
                self, f"the peer has taken nothing for {self._timeouts.stalled_s:g} s"
            )
            self._end("the peer stopped reading")
            self._transport.abort()

    def end(self, reason: str) -> None:
        """End the call with 0x00, so that the dial plan continues; does nothing if the call has ended."""
        if not self.ended:
            self._end(reason)
            self._send_hangup()

    def cancel_task(self) -> None:
        """Cancel the handler's task, if there is one."""
        if self.task is not None:
            self.task.cancel()

    def _handle_events(self) -> None:
        try:
            for event in self._connection.events(self._loop.time()):
                self._handle_event(event)
                if self.ended:
                    return
        except AudioSocketProtocolError as error:
            self._end_for_protocol_error(error)
        except Exception as error:  # boundary: an error in one call must not affect the others
            self.fail(error)
        else:
            self._set_timer(self._connection.deadline, self._on_deadline)

    def _handle_event(self, event: CallId | AudioSocketAudio | Dtmf | Hangup) -> None:
        match event:
            case AudioSocketAudio():
                assert self._handler is not None  # the connection yields the id first
                self._handler.on_audio(event)
            case Dtmf(digit):
                assert self._handler is not None
                self._handler.on_dtmf(digit)
            case CallId(uuid):
                self._open(uuid)
            case Hangup():
                self._end("the caller hung up")
                self._transport.close()
                self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)
            case _:
                assert_never(event)

    def _open(self, call_id: UUID) -> None:
        self.call_id = call_id
        start = self._pacer.join(self)
        self._handler = self._application.open(self, call_id, start)
        self.task = self._loop.create_task(self._run(self._handler))
        self.task.add_done_callback(lambda _: self._report_closed())

    async def _run(self, handler: CallHandler) -> None:
        try:
            await handler.run()
        except Exception as error:  # boundary: an error in one call must not affect the others
            self.fail(error)
        finally:
            self.end("its handler returned")

    def _on_deadline(self) -> None:
        try:
            self._connection.check_deadline(self._loop.time())
        except AudioSocketProtocolError as error:
            self._end_for_protocol_error(error)

    def _end_for_protocol_error(self, error: AudioSocketProtocolError) -> None:
        self._application.log_protocol_error(self, str(error))
        self.end(str(error))

    def _end(self, reason: str) -> None:
        if self.ended:
            return
        self.ended = True
        self._pacer.leave(self)
        if self._handler is not None:
            self._handler.on_ended(reason)
        self._application.on_ended(self, reason)

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

    def _report_closed(self) -> None:
        if not self._connected and (self.task is None or self.task.done()):
            self._on_closed(self)
