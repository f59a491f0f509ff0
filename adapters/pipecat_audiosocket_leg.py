"""One AudioSocket connection of Pipecat's transport: the caller's audio and keys are kept for a pipeline, the
bot's speech leaves in packets of 20 ms on an absolute schedule, silence included.

What a caller may do is ``audiosocket_line``'s to say, the pace is ``playout.Playout``'s; who answers is the
exchange's affair (``pipecat_audiosocket``), and what goes on in the pipeline the transport's.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, assert_never
from uuid import UUID

from ..tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance
from ..tts_engine.errors import MissingExtra
from .audiosocket import Audio, CallId, Dtmf, Hangup, ProtocolError
from .audiosocket_line import LINGER_S, UNSENT_IN_KERNEL, Patience, ServerLine
from .playout import Playout, PlayoutStats
from .resample import Passthrough

try:
    from loguru import logger
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat transport", "pipecat") from error

_PATIENCE: Final = Patience(first_message_s=5.0, stalled_s=5.0)
_MOST_AUDIO_UNREAD: Final = 150  # messages, 3 s; what a pipeline cannot keep up with is dropped
_MOST_KEYS_UNREAD: Final = 64


class Exchange(Protocol):
    """What a leg asks of the server."""

    def admit(self, leg: "Leg") -> bool:
        """A connection came; whether it may become a call."""

    def open(self, leg: "Leg", uuid: UUID) -> int:
        """A call has begun; answers the rate at which it is sent audio, Hz."""

    def leave(self, leg: "Leg") -> None:
        """A call is over; its connection may take a moment longer."""

    def forget(self) -> None:
        """A connection is gone."""


class Leg(asyncio.Protocol):
    """One connection to ``exchange``. All of it runs on the loop; nothing of it waits."""

    def __init__(self, exchange: Exchange) -> None:
        self.name = self.peer = "?"  # for logs: the call's id, once there is one
        self.sample_rate = 8_000
        self.listening = False  # whether a pipeline takes the caller's audio
        self.over = False
        self.inbox: deque[Audio | Dtmf] = deque()
        self.heard_or_over = asyncio.Event()  # set when something is in the inbox, or nothing more comes
        self.sent_or_over = asyncio.Event()  # set, and cleared by who waits, at each packet
        self.dropped_audio = 0
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self._started = self._loop.time()
        self._line = ServerLine(self._started, _PATIENCE)
        self._playout: Playout | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.name = self.peer = f"{host}:{port}"
        _prepare(transport.get_extra_info("socket"))
        if self._exchange.admit(self):
            self._set_timer(self._line.deadline, self._on_deadline)
            return
        logger.warning(f"Call from {self.name} refused: too many calls are up")
        self.over = True
        self._say_goodbye()

    def data_received(self, data: bytes) -> None:
        if not self.over:
            self._line.receive_data(data)
            self._take_events()

    def eof_received(self) -> None:
        if not self.over:
            self._line.receive_eof()
            self._take_events()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._close("the caller hung up" if exc is None else f"the connection broke ({exc})")
        self._exchange.forget()

    # What the transport's two ends call

    @property
    def stats(self) -> PlayoutStats:
        """What was sent so far."""
        return PlayoutStats() if self._playout is None else self._playout.stats

    def lead_s(self) -> float:
        """Seconds of speech that the caller has not heard yet."""
        if self._playout is None or self.over:
            return 0.0
        return self._playout.lead_s(self._loop.time())

    def play(self, pcm: bytes) -> None:
        """Queue speech behind what is there."""
        if self._playout is not None and not self.over:
            self._playout.push(_chunk(pcm, self.sample_rate))

    def finish(self) -> None:
        """End what is being said: silence after it is no underrun."""
        if self._playout is not None:
            self._playout.finish()

    def discard(self) -> None:
        """Drop what has not been sent."""
        if self._playout is not None:
            self._playout.discard(self._loop.time())
        self.sent_or_over.set()

    def hang_up(self, reason: str) -> None:
        """End the call with 0x00, so that the dial plan goes on."""
        if not self.over:
            self._close(reason)
            self._say_goodbye()

    # What the peer says

    def _take_events(self) -> None:
        try:
            for event in self._line.events(self._loop.time()):
                self._handle(event)
                if self.over:
                    return
        except ProtocolError as error:
            self._fault(error)
        else:
            self._set_timer(self._line.deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        try:
            self._line.check(self._loop.time())
        except ProtocolError as error:
            self._fault(error)

    def _handle(self, event: CallId | Audio | Dtmf | Hangup) -> None:
        match event:
            case CallId(uuid):
                self._open(uuid)
            case Audio() | Dtmf():
                self._keep(event)
            case Hangup():
                self._close("the caller hung up")
                self._transport.close()
                self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)
            case _:
                assert_never(event)

    def _open(self, uuid: UUID) -> None:
        self.name = str(uuid)
        self.sample_rate = self._exchange.open(self, uuid)
        self._playout = Playout(
            start=self._loop.time(), sample_rate=self.sample_rate, resampler=Passthrough()
        )
        logger.info(f"Call {self.name} opened from {self.peer}")
        self._tick()

    def _keep(self, event: Audio | Dtmf) -> None:
        full = len(self.inbox) >= _MOST_AUDIO_UNREAD
        if isinstance(event, Dtmf):
            full = len(self.inbox) >= _MOST_AUDIO_UNREAD + _MOST_KEYS_UNREAD
        elif not self.listening:
            return  # said before the bot was there to listen
        if full:
            self.dropped_audio += 1
            return
        self.inbox.append(event)
        self.heard_or_over.set()

    # What the peer hears

    def _tick(self) -> None:
        assert self._playout is not None
        for packet in self._playout.due(self._loop.time()):
            audio = Audio(self.sample_rate, packet)
            if message := self._line.packet(audio, self._transport.get_write_buffer_size()):
                self._transport.write(message)
            elif self._line.stalled:
                self._close("the peer stopped reading")
                self._transport.abort()
                return
        self.sent_or_over.set()
        self._ticker = self._loop.call_at(self._playout.next_due(), self._tick)

    # Ends

    def _fault(self, error: ProtocolError) -> None:
        logger.warning(f"Call {self.name}: {error}")
        self.hang_up(str(error))

    def _say_goodbye(self) -> None:
        # Half closed, not closed: data that we have not read would turn the close into a reset, which makes
        # Asterisk hang the caller up instead of going on with its dial plan.
        self._transport.write(self._line.goodbye())
        with suppress(OSError):  # a peer that is gone need not be told
            self._transport.write_eof()
        self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)

    def _close(self, reason: str) -> None:
        if self.over:
            return
        self.over = True
        if self._ticker is not None:
            self._ticker.cancel()
        self._exchange.leave(self)
        self.heard_or_over.set()
        self.sent_or_over.set()
        self._log_numbers(reason)

    def _log_numbers(self, reason: str) -> None:
        stats = self.stats
        logger.info(
            f"Call {self.name} closed after {self._loop.time() - self._started:.1f} s, {reason}: "
            f"{stats.packets} packets, {stats.late_packets} late, {stats.skipped_packets} skipped, "
            f"{self._line.dropped} dropped, {stats.underruns} underruns, "
            f"{self.dropped_audio} messages of the caller not taken"
        )

    def _set_timer(self, at: float | None, then: Callable[[], object] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None or then is None else self._loop.call_at(at, then)


def _chunk(pcm: bytes, sample_rate: int) -> AudioChunk:
    # Playout takes what an engine makes; text and words are Pipecat's affair here.
    samples = len(pcm) // 2 * SAMPLE_RATE // sample_rate
    return AudioChunk(pcm, 0, (0, samples), (0, 0), (), Provenance(None, None, 0.0, 0.0), False)


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)
