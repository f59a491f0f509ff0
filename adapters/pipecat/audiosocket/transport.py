"""An AudioSocket call as a Pipecat transport: input and output processors, and the clock for word times.

``AudioSocketInputTransport`` pushes the caller's audio, at the pipeline's rate, and the caller's keys.
``AudioSocketOutputTransport`` takes audio at the pace at which it is heard, drops it at an interruption, and
hangs up. ``call_handler`` has the queues of the call, ``server`` accepts calls.

Source: pipecat-ai 1.14.0, transports/base_input.py, base_output.py.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol
from uuid import UUID

import soxr
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

from ...audio.resample import BlockResampler, PassthroughResampler
from ...audio.upsample import Upsampler
from ...audiosocket.protocol import MAX_SENT_BYTES, SAMPLE_RATE_OF_KIND, AudioSocketAudio, Dtmf
from ...audiosocket.server_connection import PTIME_S
from ...playback.playout import PlayoutStats
from .call_handler import PipecatCallHandler

OUTPUT_SAMPLE_RATES: Final = frozenset(
    rate for rate in SAMPLE_RATE_OF_KIND.values() if rate * PTIME_S * 2 <= MAX_SENT_BYTES
)
# Speech queued in the playout: covers the delays of a busy event loop. An interruption drops it.
TARGET_LEAD_S: Final = 0.180

_MAX_DELAY_NS: Final = 10_000_000_000  # of word times; later speech counts as lost
_KEYPAD_ENTRIES: Final[Mapping[str, KeypadEntry]] = MappingProxyType(
    {entry.value: entry for entry in KeypadEntry}
)


class AudioSocketParams(TransportParams):
    """Parameters of a call.

    Parameters:
        audio_out_sample_rate: Rate of the audio sent to Asterisk, Hz. 8000 always works; 12000 to 32000 work
            with the channel driver of Asterisk 20.17, 21.12, 22.7, 23.1 and later. Set the pipeline to the
            same rate (``PipelineParams(audio_out_sample_rate=8000)``): resampling adds a delay of up to 155
            ms.
        audio_out_10ms_chunks: Length of a packet in units of 10 ms; 2.
        audio_out_end_silence_secs: Silence before hanging up; 0, so that a call ends with its last word.
    """

    audio_in_enabled: bool = True
    audio_out_enabled: bool = True
    audio_out_sample_rate: int | None = 8_000
    audio_out_10ms_chunks: int = 2
    audio_out_end_silence_secs: int = 0

    @field_validator("audio_out_sample_rate")
    @classmethod
    def _check_rate(cls, sample_rate: int | None) -> int:
        if sample_rate not in OUTPUT_SAMPLE_RATES | {None}:
            raise ValueError(
                f"got {sample_rate} Hz; allowed: {', '.join(map(str, sorted(OUTPUT_SAMPLE_RATES)))}"
            )
        return sample_rate or 8_000


@dataclass(frozen=True, slots=True)
class AudioSocketCaller:
    """The caller, as passed to the handlers of the transport's events."""

    call_id: UUID  # from the dial plan
    peer: str  # address of the connection, host:port


class CallerAudioResampler(Protocol):
    """Resamples a caller's audio, s16le mono, to the pipeline's rate."""

    def push(self, pcm: bytes) -> bytes:
        """Take audio at the caller's rate; return the audio ready at the pipeline's rate."""


def make_input_resampler(input_rate: int, output_rate: int) -> CallerAudioResampler:
    """Return the resampler with the least delay from ``input_rate`` to ``output_rate``, Hz."""
    if input_rate == output_rate:
        return PassthroughResampler()
    if output_rate % input_rate == 0:
        return Upsampler(output_rate // input_rate)
    return BlockResampler(soxr.ResampleStream(input_rate, output_rate, 1, dtype="int16", quality="HQ"))


class AudioSocketTransport(BaseTransport):
    """One phone call as a Pipecat transport.

    Event handlers:
        on_client_connected: ``(transport, caller)``, when the pipeline has started.
        on_client_disconnected: ``(transport, caller)``, once, when the caller has hung up or the connection
            is lost; not when the bot hangs up.

    An ``EndFrame`` hangs up after the last word, a ``CancelFrame`` at once. Keys arrive as
    ``InputDTMFFrame``; keys that Pipecat does not define (A to D, hook flash) are dropped.
    """

    def __init__(
        self, handler: PipecatCallHandler, caller: AudioSocketCaller, params: AudioSocketParams
    ) -> None:
        """Initialize the transport.

        Args:
            handler: Handler of the call.
            caller: The caller.
            params: Parameters of the call.
        """
        super().__init__(name=f"AudioSocketTransport#{caller.call_id}")
        self.caller = caller
        self._audiosocket_handler = handler
        self._audiosocket_input = AudioSocketInputTransport(self, handler, params)
        self._audiosocket_output = AudioSocketOutputTransport(handler, params)
        self._register_event_handler("on_client_connected")
        self._register_event_handler("on_client_disconnected")

    @property
    def stats(self) -> PlayoutStats:
        """Counters of the packets sent so far."""
        return self._audiosocket_handler.stats

    def input(self) -> "AudioSocketInputTransport":
        """Get the input processor.

        Returns:
            The processor that pushes the caller's audio and keys.
        """
        return self._audiosocket_input

    def output(self) -> "AudioSocketOutputTransport":
        """Get the output processor.

        Returns:
            The processor that sends audio to the caller.
        """
        return self._audiosocket_output

    def get_client_id(self, client: Any) -> str:
        """Get the id of a client.

        Args:
            client: The ``AudioSocketCaller`` passed to event handlers.

        Returns:
            The call's UUID.
        """
        return str(client.call_id)

    def hang_up(self) -> None:
        """End the call at once."""
        self._audiosocket_handler.end("the bot hung up")

    async def emit_event(self, event: str) -> None:
        """Call the handlers of an event.

        Args:
            event: Name of the event.
        """
        await self._call_event_handler(event, self.caller)


class AudioSocketInputTransport(BaseInputTransport):
    """Pushes the caller's audio and keys into the pipeline."""

    def __init__(
        self, transport: AudioSocketTransport, handler: PipecatCallHandler, params: AudioSocketParams
    ) -> None:
        """Initialize the processor.

        Args:
            transport: The transport that the processor belongs to.
            handler: Handler of the call.
            params: Parameters of the call.
        """
        super().__init__(params)
        self._audiosocket_transport = transport
        self._audiosocket_handler = handler
        self._audiosocket_task: asyncio.Task[None] | None = None
        self._audiosocket_resamplers: dict[int, CallerAudioResampler] = {}  # by input rate

    async def start(self, frame: StartFrame) -> None:
        """Start to receive the caller's audio.

        Args:
            frame: The start frame.
        """
        await super().start(frame)
        await self._audiosocket_transport.emit_event("on_client_connected")
        await self.push_frame(ClientConnectedFrame())
        await self.set_transport_ready(frame)
        if self._audiosocket_task is None:
            self._audiosocket_handler.is_receiving = True
            self._audiosocket_task = self.create_task(self._audiosocket_receive(), name="receive")

    async def stop(self, frame: EndFrame) -> None:
        """Stop receiving; the output processor hangs up after the last word.

        Args:
            frame: The end frame.
        """
        await super().stop(frame)
        await self._audiosocket_teardown()

    async def cancel(self, frame: CancelFrame) -> None:
        """Stop receiving.

        Args:
            frame: The cancel frame.
        """
        await super().cancel(frame)
        await self._audiosocket_teardown()

    async def cleanup(self) -> None:
        """Release everything; Pipecat calls this in every case."""
        await self._audiosocket_teardown()
        await super().cleanup()

    async def _audiosocket_teardown(self) -> None:
        self._audiosocket_handler.is_receiving = False
        task, self._audiosocket_task = self._audiosocket_task, None
        if task is not None and task is not asyncio.current_task():
            await self.cancel_task(task)

    async def _audiosocket_receive(self) -> None:
        handler = self._audiosocket_handler
        while handler.inbox or not handler.ended:
            while handler.inbox:
                await self._audiosocket_handle_event(handler.inbox.popleft())
            handler.input_or_end.clear()
            if not handler.ended:
                await handler.input_or_end.wait()
        await self._audiosocket_transport.emit_event("on_client_disconnected")

    async def _audiosocket_handle_event(self, event: AudioSocketAudio | Dtmf) -> None:
        match event:
            case AudioSocketAudio(sample_rate, payload):
                audio = self._audiosocket_resampler_for(sample_rate).push(payload)
                if audio:
                    await self.push_audio_frame(InputAudioRawFrame(audio, self.sample_rate, 1))
            case Dtmf(digit) if digit in _KEYPAD_ENTRIES:
                await self.push_frame(InputDTMFFrame(button=_KEYPAD_ENTRIES[digit]))
            case Dtmf(digit):
                logger.debug(f"{self}: key {digit!r} dropped; Pipecat has {' '.join(_KEYPAD_ENTRIES)}")

    def _audiosocket_resampler_for(self, sample_rate: int) -> CallerAudioResampler:
        if sample_rate not in self._audiosocket_resamplers:
            self._audiosocket_resamplers = {sample_rate: make_input_resampler(sample_rate, self.sample_rate)}
        return self._audiosocket_resamplers[sample_rate]


class AudioSocketOutputTransport(BaseOutputTransport):
    """Sends audio to the caller at the pace at which it is heard."""

    def __init__(self, handler: PipecatCallHandler, params: AudioSocketParams) -> None:
        """Initialize the processor.

        Args:
            handler: Handler of the call.
            params: Parameters of the call.
        """
        super().__init__(params)
        self._audiosocket_handler = handler
        self._audiosocket_clock: _PlaybackClock | None = None
        self._audiosocket_interrupting = False
        self._audiosocket_protected_until = 0.0  # loop time; uninterruptible audio is sent

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]
        """Set up the processor; warns if the pipeline has another rate than the call.

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
        """Get the clock by which words are reported.

        Returns:
            The pipeline's clock minus the delay of the speech, so that a word counts when it is heard.
        """
        if self._audiosocket_clock is None:
            self._audiosocket_clock = _PlaybackClock(super().get_clock(), self._audiosocket_handler)
        return self._audiosocket_clock

    async def start(self, frame: StartFrame) -> None:
        """Start to take audio.

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
        self._audiosocket_handler.end("the bot ended the call")

    async def cancel(self, frame: CancelFrame) -> None:
        """Hang up at once.

        Args:
            frame: The cancel frame.
        """
        self._audiosocket_handler.end("the bot was cancelled")
        await super().cancel(frame)

    async def cleanup(self) -> None:
        """Release everything; Pipecat calls this in every case."""
        self._audiosocket_handler.end("the bot is gone")
        await super().cleanup()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Process a frame; an interruption drops the audio that has not been sent.

        Args:
            frame: The frame.
            direction: Its direction.
        """
        if isinstance(frame, InterruptionFrame):
            await self._audiosocket_interrupt(frame, direction)
            return
        if isinstance(frame, TTSAudioRawFrame) and self._audiosocket_clock is not None:
            self._audiosocket_clock.add_arrived(_seconds(frame), frame.pts)
        await super().process_frame(frame, direction)

    async def _audiosocket_interrupt(self, frame: Frame, direction: FrameDirection) -> None:
        # Until Pipecat has emptied its queue, its sending task may write more of the dropped speech.
        self._audiosocket_interrupting = True
        if asyncio.get_running_loop().time() >= self._audiosocket_protected_until:
            if self._audiosocket_clock is not None:
                self._audiosocket_clock.freeze()  # or the words of the dropped speech would be due
            self._audiosocket_handler.discard()
        try:
            await super().process_frame(frame, direction)
        finally:
            self._audiosocket_interrupting = False
            if self._audiosocket_clock is not None and self._audiosocket_clock.is_frozen:
                self._audiosocket_clock.reset()

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        """Push a frame: a word when it is heard, and the end of an utterance also to the playout.

        Args:
            frame: The frame.
            direction: Its direction.
        """
        if frame.pts and direction is FrameDirection.DOWNSTREAM:
            await self._audiosocket_wait_until_heard(frame.pts)
        if isinstance(frame, TTSStoppedFrame | BotStoppedSpeakingFrame):
            self._audiosocket_handler.finish()
            if self._audiosocket_clock is not None:
                self._audiosocket_clock.end_utterance()
        await super().push_frame(frame, direction)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """Queue audio, and wait until at most ``TARGET_LEAD_S`` of it is queued.

        Args:
            frame: The audio.

        Returns:
            Whether the call has not ended.
        """
        handler = self._audiosocket_handler
        if self._audiosocket_interrupting and frame.interruptible:
            return not handler.ended
        handler.play(frame.audio)
        if not frame.interruptible:
            self._audiosocket_protected_until = asyncio.get_running_loop().time() + handler.lead_s()
        if self._audiosocket_clock is not None:
            self._audiosocket_clock.add_queued(_seconds(frame))
        await self._audiosocket_wait_for_lead(TARGET_LEAD_S)
        return not handler.ended

    async def _audiosocket_wait_until_heard(self, pts: int) -> None:
        # Pipecat computes the wait once; a stall of the playback during it delays the word further.
        clock = self._audiosocket_clock
        while clock is not None and not self._audiosocket_handler.ended:
            remaining_ns = pts - clock.get_time()
            if remaining_ns <= 0:
                break
            await asyncio.sleep(remaining_ns / 1e9)

    async def _audiosocket_wait_for_lead(self, lead_s: float) -> None:
        handler = self._audiosocket_handler
        while not handler.ended and handler.lead_s() > lead_s:
            handler.packet_sent_or_end.clear()
            await handler.packet_sent_or_end.wait()


class _PlaybackClock(BaseClock):
    # The pipeline's clock minus the delay of the current speech. Word times assume that audio is played as
    # soon as it arrives, but a busy machine starts late, and a stall skips packets.
    #
    #   arrived     |--------- 1.0 s ---------|
    #   heard           |----- 0.4 s -----|now           delay = now - arrival - 0.4 s

    def __init__(self, clock: BaseClock, handler: PipecatCallHandler) -> None:
        self._clock = clock
        self._handler = handler
        self._arrived_ns = 0
        self._frozen_ns: int | None = None
        self._expected_s = self._queued_s = 0.0  # of speech, since the last silence

    @property
    def is_frozen(self) -> bool:
        return self._frozen_ns is not None

    def get_time(self) -> int:
        if self._frozen_ns is not None:
            return self._frozen_ns
        now_ns = self._clock.get_time()
        heard_s = self._heard_s()
        if heard_s >= self._expected_s - PTIME_S:
            return now_ns
        delay_ns = now_ns - self._arrived_ns - round(heard_s * 1e9)
        return now_ns - min(max(0, delay_ns), _MAX_DELAY_NS)

    def start(self) -> None:
        self._clock.start()

    def add_arrived(self, seconds: float, pts: int | None) -> None:
        if self._heard_s() >= self._expected_s - PTIME_S:
            self.reset()
            self._arrived_ns = pts or self._clock.get_time()
        self._expected_s += seconds

    def add_queued(self, seconds: float) -> None:
        self._queued_s += seconds

    def end_utterance(self) -> None:
        if self._queued_s >= self._expected_s - PTIME_S:  # otherwise the next utterance has arrived
            self.reset()

    def freeze(self) -> None:
        self._frozen_ns = self.get_time()

    def reset(self) -> None:
        self._frozen_ns = None
        self._expected_s = self._queued_s = 0.0

    def _heard_s(self) -> float:
        return max(0.0, self._queued_s - self._handler.lead_s())


def _seconds(frame: OutputAudioRawFrame) -> float:
    return frame.num_frames / frame.sample_rate
