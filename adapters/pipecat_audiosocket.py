"""Phone calls for Pipecat: Asterisk dials in over AudioSocket, and each call is a transport of its own.

    async def answer(transport: AudioSocketTransport) -> None:      # one call, from ring to hang-up
        pipeline = Pipeline([transport.input(), stt, user, llm, tts, transport.output(), assistant])
        ...

    async with AudioSocketServer(answer, port=9092) as server:
        await server.wait_closed()

What it owes Asterisk: one whole message in one write, 20 ms each, on an absolute schedule from the call's
first moment on, silence included; whole packets dropped where the peer falls behind; never a part of a
message, never kinds 0x01, 0x03 or 0xff; always reading. What a caller may do is ``audiosocket_line``'s to
say, the pace is ``playout.Playout``'s.

Source: app_audiosocket.c, chan_audiosocket.c and res_audiosocket.c of Asterisk 23.4.1; pipecat-ai 1.14.0,
transports/base_input.py, base_output.py.
"""

# Pipecat is typed, but for what its functions return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, assert_never
from uuid import UUID

import numpy as np
import soxr
from numpy.typing import NDArray

from ..tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance
from ..tts_engine.errors import MissingExtra
from .audiosocket import MAX_SENT_BYTES, SAMPLE_RATES, Audio, CallId, Dtmf, Hangup, ProtocolError
from .audiosocket_line import LINGER_S, PTIME_S, UNSENT_IN_KERNEL, Patience, ServerLine
from .playout import Playout, PlayoutStats
from .resample import Passthrough

try:
    from loguru import logger
    from pipecat.audio.dtmf.types import KeypadEntry
    from pipecat.clocks.base_clock import BaseClock
    from pipecat.frames.frames import (
        BotStoppedSpeakingFrame,
        CancelFrame,
        ClientConnectedFrame,
        EndFrame,
        Frame,
        InputAudioRawFrame,
        InputDTMFFrame,
        InterruptionFrame,
        OutputAudioRawFrame,
        StartFrame,
        TTSAudioRawFrame,
        TTSStoppedFrame,
    )
    from pipecat.processors.frame_processor import FrameDirection, FrameProcessorSetup
    from pipecat.transports.base_input import BaseInputTransport
    from pipecat.transports.base_output import BaseOutputTransport
    from pipecat.transports.base_transport import BaseTransport, TransportParams
    from pydantic import field_validator
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat transport", "pipecat") from error

__all__ = ["AudioSocketParams", "AudioSocketServer", "AudioSocketTransport", "Caller"]

RATES_OUT: Final = frozenset(rate for rate in SAMPLE_RATES.values() if rate * PTIME_S * 2 <= MAX_SENT_BYTES)
AHEAD_S: Final = 0.180  # in the playout: what a busy event loop may be late; an interruption drops it

_PATIENCE: Final = Patience(first_message_s=5.0, stalled_s=5.0)
_MOST_AUDIO_UNREAD: Final = 150  # messages, 3 s; what a pipeline cannot keep up with is dropped
_MOST_KEYS_UNREAD: Final = 64
_MOST_BEHIND_NS: Final = 3_000_000_000  # speech that comes later than that does not come
_TAPS: Final = 16  # a phase, of the upsampler: 1 ms of delay at 8 kHz
_KEYS: Final[Mapping[str, KeypadEntry]] = MappingProxyType({entry.value: entry for entry in KeypadEntry})


class AudioSocketParams(TransportParams):
    """Parameters of a call.

    Parameters:
        audio_out_sample_rate: Of what Asterisk is sent. 8000 always works; 12000 to 32000 with the channel
            driver of Asterisk 20.17, 21.12, 22.7, 23.1 and later. Give the pipeline the same
            (``PipelineParams(audio_out_sample_rate=8000)``): resampling on the way costs up to 155 ms.
        audio_out_10ms_chunks: A packet is 20 ms.
        audio_out_end_silence_secs: None, so that hanging up takes no longer than the last word.
    """

    audio_in_enabled: bool = True
    audio_out_enabled: bool = True
    audio_out_sample_rate: int | None = 8_000
    audio_out_10ms_chunks: int = 2
    audio_out_end_silence_secs: int = 0

    @field_validator("audio_out_sample_rate")
    @classmethod
    def _check_rate(cls, sample_rate: int | None) -> int:
        if sample_rate not in RATES_OUT | {None}:
            raise ValueError(f"got {sample_rate} Hz; allowed: {', '.join(map(str, sorted(RATES_OUT)))}")
        return sample_rate or 8_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is on the line: the call's id, as the dial plan gave it, and where the connection comes from."""

    call_id: UUID
    peer: str


class AudioSocketServer:
    """Accepts calls and hands out one transport a call.

    ``answer(transport)`` runs in a task of its own and has the call until it returns; then, and when it
    raises, the call is hung up. Calls beyond ``max_calls`` are refused at once.

    Args:
        answer: What is done with a call.
        host: Address to listen on.
        port: Port; 0 for any free one, see ``port``.
        params: Makes the parameters of each call; the transport takes them as they are.
        max_calls: Calls at once.
    """

    def __init__(
        self,
        answer: Callable[["AudioSocketTransport"], Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        port: int = 9092,
        params: Callable[[], AudioSocketParams] = AudioSocketParams,
        max_calls: int = 100,
    ) -> None:
        self.params = params
        self._answer = answer
        self._address = host, port
        self._max_calls = max_calls
        self._legs: set[_Leg] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._listener: asyncio.Server | None = None
        self._closed = asyncio.Event()

    async def __aenter__(self) -> "AudioSocketServer":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def port(self) -> int:
        """The port that it listens on; after ``start``."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def calls(self) -> int:
        """Calls that are up now."""
        return len(self._legs)

    @property
    def bots(self) -> int:
        """Answers that have not returned yet; a bot needs a moment after its call."""
        return len(self._tasks)

    async def start(self) -> None:
        """Listen; raises OSError if the address cannot be had."""
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Leg(self), host, port)

    async def wait_closed(self) -> None:
        """Wait until ``aclose`` is called."""
        await self._closed.wait()

    async def aclose(self, within_s: float = 5.0) -> None:
        """Take no more calls, hang up those that are up, wait for their tasks, and cancel late ones."""
        self._closed.set()
        self._max_calls = 0
        if self._listener is not None:
            self._listener.close()
        for leg in tuple(self._legs):
            leg.hang_up("the server is closing")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._nobody.wait()

    # What legs call

    def admit(self, leg: "_Leg") -> bool:
        """A connection came; whether it may become a call."""
        self._connections += 1
        self._nobody.clear()
        if len(self._legs) >= self._max_calls:
            return False
        self._legs.add(leg)
        return True

    def leave(self, leg: "_Leg") -> None:
        """A call is over; its connection may take a moment longer."""
        self._legs.discard(leg)

    def forget(self) -> None:
        """A connection is gone."""
        self._connections -= 1
        if not self._connections:
            self._nobody.set()

    def attend(self, leg: "_Leg", transport: "AudioSocketTransport") -> None:
        """A call has begun."""
        task = asyncio.get_running_loop().create_task(self._attend(leg, transport))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self, leg: "_Leg", transport: "AudioSocketTransport") -> None:
        try:
            await self._answer(transport)
        except Exception:  # boundary: one call's fault must not reach the others
            logger.exception(f"Call {leg.name} failed")
        finally:
            leg.hang_up("the bot is done")


class _Leg(asyncio.Protocol):
    # One connection. All of it runs on the loop; nothing of it waits.

    def __init__(self, server: AudioSocketServer) -> None:
        self.name = "?"
        self.sample_rate = 8_000
        self.listening = False  # whether a pipeline takes the caller's audio
        self.over = False
        self.inbox: deque[Audio | Dtmf] = deque()
        self.heard_or_over = asyncio.Event()  # set when something is in the inbox, or nothing more comes
        self.sent_or_over = asyncio.Event()  # set, and cleared by who waits, at each packet
        self.dropped_audio = 0
        self._loop = asyncio.get_running_loop()
        self._server = server
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
        self.name = f"{host}:{port}"
        _prepare(transport.get_extra_info("socket"))
        if self._server.admit(self):
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
        self._server.forget()

    # What the transport's two ends call

    @property
    def stats(self) -> PlayoutStats:
        return PlayoutStats() if self._playout is None else self._playout.stats

    def lead_s(self) -> float:
        if self._playout is None or self.over:
            return 0.0
        return self._playout.lead_s(self._loop.time())

    def play(self, pcm: bytes) -> None:
        if self._playout is not None and not self.over:
            self._playout.push(_chunk(pcm, self.sample_rate))

    def finish(self) -> None:
        if self._playout is not None:
            self._playout.finish()

    def discard(self) -> None:
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
        caller = Caller(uuid, self.name)
        self.name = str(uuid)
        params = self._server.params()
        self.sample_rate = params.audio_out_sample_rate or 8_000
        self._playout = Playout(
            start=self._loop.time(), sample_rate=self.sample_rate, resampler=Passthrough()
        )
        logger.info(f"Call {self.name} opened from {caller.peer}")
        self._tick()
        self._server.attend(self, AudioSocketTransport(self, caller, params))

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
        self._server.leave(self)
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


class AudioSocketTransport(BaseTransport):
    """One phone call as a Pipecat transport.

    Event handlers:
        on_client_connected: ``(transport, caller)``, when the pipeline has started.
        on_client_disconnected: ``(transport, caller)``, once, when the caller has hung up or is lost; not
            when the bot hangs up.

    An ``EndFrame`` hangs up after the last word, a ``CancelFrame`` at once. Keys come as
    ``InputDTMFFrame``; those that Pipecat does not know (A to D, hook flash) are dropped.
    """

    def __init__(self, line: _Leg, caller: Caller, params: AudioSocketParams) -> None:
        """Initialize the transport.

        Args:
            line: The connection.
            caller: Who is on it.
            params: Parameters of the call.
        """
        super().__init__(name=f"AudioSocketTransport#{caller.call_id}")
        self.caller = caller
        self._audiosocket_line = line
        self._audiosocket_input = AudioSocketInputTransport(self, line, params)
        self._audiosocket_output = AudioSocketOutputTransport(line, params)
        self._register_event_handler("on_client_connected")
        self._register_event_handler("on_client_disconnected")

    @property
    def stats(self) -> PlayoutStats:
        """What was sent so far: packets, late ones, underruns."""
        return self._audiosocket_line.stats

    def input(self) -> "AudioSocketInputTransport":
        """Get the input end.

        Returns:
            The processor that brings the caller's audio and keys.
        """
        return self._audiosocket_input

    def output(self) -> "AudioSocketOutputTransport":
        """Get the output end.

        Returns:
            The processor that plays to the caller.
        """
        return self._audiosocket_output

    def get_client_id(self, client: Any) -> str:
        """The id of a client.

        Args:
            client: The ``Caller`` that events were given.

        Returns:
            The call's UUID.
        """
        return str(client.call_id)

    def hang_up(self) -> None:
        """End the call at once."""
        self._audiosocket_line.hang_up("the bot hung up")

    async def announce(self, event: str) -> None:
        """Call the handlers of an event.

        Args:
            event: Its name.
        """
        await self._call_event_handler(event, self.caller)


class AudioSocketInputTransport(BaseInputTransport):
    """The caller's audio and keys."""

    def __init__(self, transport: AudioSocketTransport, line: _Leg, params: AudioSocketParams) -> None:
        """Initialize the input end.

        Args:
            transport: The transport that it is an end of.
            line: The connection.
            params: Parameters of the call.
        """
        super().__init__(params)
        self._audiosocket_transport = transport
        self._audiosocket_line = line
        self._audiosocket_task: asyncio.Task[None] | None = None
        self._audiosocket_ears: dict[int, _Ear] = {}  # by the rate that the caller sends

    async def start(self, frame: StartFrame) -> None:
        """Begin to listen.

        Args:
            frame: The start frame.
        """
        await super().start(frame)
        await self._audiosocket_transport.announce("on_client_connected")
        await self.push_frame(ClientConnectedFrame())
        await self.set_transport_ready(frame)
        if self._audiosocket_task is None:
            self._audiosocket_line.listening = True
            self._audiosocket_task = self.create_task(self._audiosocket_listen(), name="listen")

    async def stop(self, frame: EndFrame) -> None:
        """Listen no more; the output end hangs up when the last word has been said.

        Args:
            frame: The end frame.
        """
        await super().stop(frame)
        await self._audiosocket_teardown()

    async def cancel(self, frame: CancelFrame) -> None:
        """Listen no more.

        Args:
            frame: The cancel frame.
        """
        await super().cancel(frame)
        await self._audiosocket_teardown()

    async def cleanup(self) -> None:
        """Release everything; the one call that always comes."""
        await self._audiosocket_teardown()
        await super().cleanup()

    async def _audiosocket_teardown(self) -> None:
        self._audiosocket_line.listening = False
        task, self._audiosocket_task = self._audiosocket_task, None
        if task is not None and task is not asyncio.current_task():
            await self.cancel_task(task)

    async def _audiosocket_listen(self) -> None:
        line = self._audiosocket_line
        while line.inbox or not line.over:
            while line.inbox:
                await self._audiosocket_take(line.inbox.popleft())
            line.heard_or_over.clear()
            if not line.over:
                await line.heard_or_over.wait()
        await self._audiosocket_transport.announce("on_client_disconnected")

    async def _audiosocket_take(self, event: Audio | Dtmf) -> None:
        match event:
            case Audio(sample_rate, payload):
                audio = self._audiosocket_ear(sample_rate).hear(payload)
                if audio:
                    await self.push_audio_frame(InputAudioRawFrame(audio, self.sample_rate, 1))
            case Dtmf(digit) if digit in _KEYS:
                await self.push_frame(InputDTMFFrame(button=_KEYS[digit]))
            case Dtmf(digit):
                logger.debug(f"{self}: key {digit!r} dropped; Pipecat has {' '.join(_KEYS)}")

    def _audiosocket_ear(self, sample_rate: int) -> "_Ear":
        if sample_rate not in self._audiosocket_ears:
            self._audiosocket_ears = {sample_rate: _ear(sample_rate, self.sample_rate)}
        return self._audiosocket_ears[sample_rate]


class AudioSocketOutputTransport(BaseOutputTransport):
    """What the caller hears, at the pace at which it is heard."""

    def __init__(self, line: _Leg, params: AudioSocketParams) -> None:
        """Initialize the output end.

        Args:
            line: The connection.
            params: Parameters of the call.
        """
        super().__init__(params)
        self._audiosocket_line = line
        self._audiosocket_clock: _HeardClock | None = None
        self._audiosocket_interrupting = False
        self._audiosocket_protected_until = 0.0  # loop's time at which all that must be heard was sent

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]
        """Set up the output end.

        Args:
            setup: Configuration of the pipeline.
        """
        await super().setup(setup)
        if setup.audio_out_sample_rate != self.sample_rate:
            logger.warning(
                f"{self}: the pipeline speaks at {setup.audio_out_sample_rate} Hz and the call at "
                f"{self.sample_rate}; resampling delays speech by up to 155 ms. Use "
                f"PipelineParams(audio_out_sample_rate={self.sample_rate})"
            )

    def get_clock(self) -> BaseClock:
        """Get the clock by which words are told.

        Returns:
            The pipeline's, less what the speech is late: a word counts when it is heard.
        """
        if self._audiosocket_clock is None:
            self._audiosocket_clock = _HeardClock(super().get_clock(), self._audiosocket_line)
        return self._audiosocket_clock

    async def start(self, frame: StartFrame) -> None:
        """Begin to play.

        Args:
            frame: The start frame.
        """
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def stop(self, frame: EndFrame) -> None:
        """Hang up when the last word has been heard.

        Args:
            frame: The end frame.
        """
        await super().stop(frame)
        await self._audiosocket_wait_for_lead(0.0)
        self._audiosocket_line.hang_up("the bot ended the call")

    async def cancel(self, frame: CancelFrame) -> None:
        """Hang up at once.

        Args:
            frame: The cancel frame.
        """
        self._audiosocket_line.hang_up("the bot was cancelled")
        await super().cancel(frame)

    async def cleanup(self) -> None:
        """Release everything; the one call that always comes."""
        self._audiosocket_line.hang_up("the bot is gone")
        await super().cleanup()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Process a frame; an interruption drops at once what has not been sent.

        Args:
            frame: The frame.
            direction: Where it is going.
        """
        if isinstance(frame, InterruptionFrame):
            await self._audiosocket_interrupt(frame, direction)
            return
        if isinstance(frame, TTSAudioRawFrame) and self._audiosocket_clock is not None:
            self._audiosocket_clock.speech_arrives(_seconds(frame))
        await super().process_frame(frame, direction)

    async def _audiosocket_interrupt(self, frame: Frame, direction: FrameDirection) -> None:
        # Until Pipecat has emptied its queue, its sender could hand over another packet of it.
        self._audiosocket_interrupting = True
        if asyncio.get_running_loop().time() >= self._audiosocket_protected_until:
            self._audiosocket_line.discard()
            if self._audiosocket_clock is not None:
                self._audiosocket_clock.speech_ends()
        try:
            await super().process_frame(frame, direction)
        finally:
            self._audiosocket_interrupting = False

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        """Push a frame; the end of speech is told to the playout, too.

        Args:
            frame: The frame.
            direction: Where it is going.
        """
        if isinstance(frame, TTSStoppedFrame | BotStoppedSpeakingFrame):
            self._audiosocket_line.finish()
            if self._audiosocket_clock is not None:
                self._audiosocket_clock.utterance_ends()
        await super().push_frame(frame, direction)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """Queue audio, and wait until no more than the next packet is queued.

        Args:
            frame: The audio.

        Returns:
            Whether the call is up.
        """
        line = self._audiosocket_line
        if self._audiosocket_interrupting and frame.interruptible:
            return not line.over
        line.play(frame.audio)
        if not frame.interruptible:
            self._audiosocket_protected_until = asyncio.get_running_loop().time() + line.lead_s()
        if self._audiosocket_clock is not None:
            self._audiosocket_clock.speech_is_queued(_seconds(frame))
        await self._audiosocket_wait_for_lead(AHEAD_S)
        return not line.over

    async def _audiosocket_wait_for_lead(self, lead_s: float) -> None:
        line = self._audiosocket_line
        while not line.over and line.lead_s() > lead_s:
            line.sent_or_over.clear()
            await line.sent_or_over.wait()


class _HeardClock(BaseClock):
    # The pipeline's clock, less what the speech being heard is behind it. Word times say when a word is heard
    # if all that arrives is played at once; a busy machine starts late, and a stall skips packets.
    #
    #   arrives     |--------- 1.0 s ---------|
    #   is heard        |----- 0.4 s -----|now           behind by now - arrival - 0.4 s

    def __init__(self, clock: BaseClock, line: _Leg) -> None:
        self._clock = clock
        self._line = line
        self._arrived_ns = 0
        self._expected_s = self._queued_s = 0.0  # of speech, since it last began out of silence

    def get_time(self) -> int:
        now_ns = self._clock.get_time()
        heard_s = self._heard_s()
        if heard_s >= self._expected_s - PTIME_S:
            return now_ns
        behind_ns = now_ns - self._arrived_ns - round(heard_s * 1e9)
        return now_ns - min(max(0, behind_ns), _MOST_BEHIND_NS)

    def start(self) -> None:
        self._clock.start()

    def speech_arrives(self, seconds: float) -> None:
        if self._heard_s() >= self._expected_s - PTIME_S:
            self.speech_ends()
            self._arrived_ns = self._clock.get_time()
        self._expected_s += seconds

    def speech_is_queued(self, seconds: float) -> None:
        self._queued_s += seconds

    def utterance_ends(self) -> None:
        if self._queued_s >= self._expected_s - PTIME_S:  # else the next one has arrived
            self.speech_ends()

    def speech_ends(self) -> None:
        self._expected_s = self._queued_s = 0.0

    def _heard_s(self) -> float:
        return max(0.0, self._queued_s - self._line.lead_s())


class _Ear(Protocol):
    def hear(self, pcm: bytes) -> bytes: ...


class _SameRate:
    def hear(self, pcm: bytes) -> bytes:
        return pcm


class _Upsampler:
    # To a multiple of the rate, as a polyphase FIR: general resamplers withhold 60-116 ms from 8 to 16 kHz.

    def __init__(self, factor: int) -> None:
        length = _TAPS * factor
        time = (np.arange(length) - (length - 1) / 2) / factor
        taps = np.sinc(0.95 * time) * np.kaiser(length, 7.0)
        phases = taps.reshape(_TAPS, factor)
        self._phases: NDArray[np.float64] = (phases / phases.sum(axis=0))[::-1].copy()
        self._past: NDArray[np.float64] = np.zeros(_TAPS - 1)

    def hear(self, pcm: bytes) -> bytes:
        samples = np.concatenate([self._past, np.frombuffer(pcm, "<i2")])
        self._past = samples[-(_TAPS - 1) :]
        windows = np.lib.stride_tricks.sliding_window_view(samples, _TAPS)
        out = np.rint(windows @ self._phases).clip(-32_768, 32_767)
        return out.astype("<i2").tobytes()


class _AnyRate:
    def __init__(self, rate_in: int, rate_out: int) -> None:
        self._stream = soxr.ResampleStream(rate_in, rate_out, 1, dtype="int16", quality="HQ")

    def hear(self, pcm: bytes) -> bytes:
        return bytes(self._stream.resample_chunk(np.frombuffer(pcm, "<i2")).tobytes())


def _ear(rate_in: int, rate_out: int) -> _Ear:
    if rate_in == rate_out:
        return _SameRate()
    if rate_out % rate_in == 0:
        return _Upsampler(rate_out // rate_in)
    return _AnyRate(rate_in, rate_out)


def _seconds(frame: OutputAudioRawFrame) -> float:
    return frame.num_frames / frame.sample_rate


def _chunk(pcm: bytes, sample_rate: int) -> AudioChunk:
    # Playout takes what an engine makes; text and words are Pipecat's affair here.
    samples = len(pcm) // 2 * SAMPLE_RATE // sample_rate
    return AudioChunk(pcm, 0, (0, samples), (0, 0), (), Provenance(None, None, 0.0, 0.0), False)


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)
