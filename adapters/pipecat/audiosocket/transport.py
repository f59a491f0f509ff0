"""An AudioSocket call as a Pipecat transport: its two ends in a pipeline, and when a word counts as heard.

``AudioSocketInputTransport`` brings the caller's audio, at the pipeline's rate, and the caller's keys;
``AudioSocketOutputTransport`` takes audio no faster than it is heard, drops it at an interruption, and hangs
up. The connection below is ``pipecat_audiosocket_leg``; who answers calls is ``pipecat_audiosocket``.

Source: pipecat-ai 1.14.0, transports/base_input.py, base_output.py.
"""

# Pipecat is typed, but for what its functions return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol
from uuid import UUID

import soxr

from ....tts_engine.errors import MissingExtra
from ...audio.resample import BlockResampler, PassthroughResampler
from ...audio.upsample import Upsampler
from ...audiosocket.protocol import MAX_SENT_BYTES, SAMPLE_RATE_OF_KIND, AudioSocketAudio, Dtmf
from ...audiosocket.server_connection import PTIME_S
from ...playback.playout import PlayoutStats
from .call_protocol import PipecatAudioSocketProtocol

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

OUTPUT_SAMPLE_RATES: Final = frozenset(
    rate for rate in SAMPLE_RATE_OF_KIND.values() if rate * PTIME_S * 2 <= MAX_SENT_BYTES
)
TARGET_LEAD_S: Final = 0.180  # in the playout: what a busy event loop may be late; an interruption drops it

_MAX_DELAY_NS: Final = 3_000_000_000  # speech that comes later than that does not come
_KEYPAD_ENTRIES: Final[Mapping[str, KeypadEntry]] = MappingProxyType(
    {entry.value: entry for entry in KeypadEntry}
)


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
        if sample_rate not in OUTPUT_SAMPLE_RATES | {None}:
            raise ValueError(
                f"got {sample_rate} Hz; allowed: {', '.join(map(str, sorted(OUTPUT_SAMPLE_RATES)))}"
            )
        return sample_rate or 8_000


@dataclass(frozen=True, slots=True)
class AudioSocketCaller:
    """Who is on the line: the call's id, as the dial plan gave it, and where the connection comes from."""

    call_id: UUID
    peer: str


class InputResampler(Protocol):
    """What brings a caller's audio, s16le mono, to the pipeline's rate."""

    def push(self, pcm: bytes) -> bytes:
        """Take audio at the caller's rate and return what is ready at the pipeline's."""


def make_input_resampler(input_rate: int, output_rate: int) -> InputResampler:
    """The ear of least delay between two rates, Hz."""
    if input_rate == output_rate:
        return PassthroughResampler()
    if output_rate % input_rate == 0:
        return Upsampler(output_rate // input_rate)
    return BlockResampler(soxr.ResampleStream(input_rate, output_rate, 1, dtype="int16", quality="HQ"))


class AudioSocketTransport(BaseTransport):
    """One phone call as a Pipecat transport.

    Event handlers:
        on_client_connected: ``(transport, caller)``, when the pipeline has started.
        on_client_disconnected: ``(transport, caller)``, once, when the caller has hung up or is lost; not
            when the bot hangs up.

    An ``EndFrame`` hangs up after the last word, a ``CancelFrame`` at once. Keys come as
    ``InputDTMFFrame``; those that Pipecat does not know (A to D, hook flash) are dropped.
    """

    def __init__(
        self, protocol: PipecatAudioSocketProtocol, caller: AudioSocketCaller, params: AudioSocketParams
    ) -> None:
        """Initialize the transport.

        Args:
            line: The connection.
            caller: Who is on it.
            params: Parameters of the call.
        """
        super().__init__(name=f"AudioSocketTransport#{caller.call_id}")
        self.caller = caller
        self._audiosocket_protocol = protocol
        self._audiosocket_input = AudioSocketInputTransport(self, protocol, params)
        self._audiosocket_output = AudioSocketOutputTransport(protocol, params)
        self._register_event_handler("on_client_connected")
        self._register_event_handler("on_client_disconnected")

    @property
    def stats(self) -> PlayoutStats:
        """What was sent so far: packets, late ones, underruns."""
        return self._audiosocket_protocol.stats

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
            client: The ``AudioSocketCaller`` that events were given.

        Returns:
            The call's UUID.
        """
        return str(client.call_id)

    def hang_up(self) -> None:
        """End the call at once."""
        self._audiosocket_protocol.end("the bot hung up")

    async def emit_event(self, event: str) -> None:
        """Call the handlers of an event.

        Args:
            event: Its name.
        """
        await self._call_event_handler(event, self.caller)


class AudioSocketInputTransport(BaseInputTransport):
    """The caller's audio and keys."""

    def __init__(
        self, transport: AudioSocketTransport, protocol: PipecatAudioSocketProtocol, params: AudioSocketParams
    ) -> None:
        """Initialize the input end.

        Args:
            transport: The transport that it is an end of.
            line: The connection.
            params: Parameters of the call.
        """
        super().__init__(params)
        self._audiosocket_transport = transport
        self._audiosocket_protocol = protocol
        self._audiosocket_task: asyncio.Task[None] | None = None
        self._audiosocket_resamplers: dict[int, InputResampler] = {}  # by the rate that the caller sends

    async def start(self, frame: StartFrame) -> None:
        """Begin to listen.

        Args:
            frame: The start frame.
        """
        await super().start(frame)
        await self._audiosocket_transport.emit_event("on_client_connected")
        await self.push_frame(ClientConnectedFrame())
        await self.set_transport_ready(frame)
        if self._audiosocket_task is None:
            self._audiosocket_protocol.is_receiving = True
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
        self._audiosocket_protocol.is_receiving = False
        task, self._audiosocket_task = self._audiosocket_task, None
        if task is not None and task is not asyncio.current_task():
            await self.cancel_task(task)

    async def _audiosocket_listen(self) -> None:
        protocol = self._audiosocket_protocol
        while protocol.inbox or not protocol.ended:
            while protocol.inbox:
                await self._audiosocket_handle_event(protocol.inbox.popleft())
            protocol.input_or_end.clear()
            if not protocol.ended:
                await protocol.input_or_end.wait()
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

    def _audiosocket_resampler_for(self, sample_rate: int) -> InputResampler:
        if sample_rate not in self._audiosocket_resamplers:
            self._audiosocket_resamplers = {sample_rate: make_input_resampler(sample_rate, self.sample_rate)}
        return self._audiosocket_resamplers[sample_rate]


class AudioSocketOutputTransport(BaseOutputTransport):
    """What the caller hears, at the pace at which it is heard."""

    def __init__(self, protocol: PipecatAudioSocketProtocol, params: AudioSocketParams) -> None:
        """Initialize the output end.

        Args:
            line: The connection.
            params: Parameters of the call.
        """
        super().__init__(params)
        self._audiosocket_protocol = protocol
        self._audiosocket_clock: _PlaybackClock | None = None
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
            self._audiosocket_clock = _PlaybackClock(super().get_clock(), self._audiosocket_protocol)
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
        self._audiosocket_protocol.end("the bot ended the call")

    async def cancel(self, frame: CancelFrame) -> None:
        """Hang up at once.

        Args:
            frame: The cancel frame.
        """
        self._audiosocket_protocol.end("the bot was cancelled")
        await super().cancel(frame)

    async def cleanup(self) -> None:
        """Release everything; the one call that always comes."""
        self._audiosocket_protocol.end("the bot is gone")
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
            self._audiosocket_protocol.discard()
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
            self._audiosocket_protocol.finish()
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
        protocol = self._audiosocket_protocol
        if self._audiosocket_interrupting and frame.interruptible:
            return not protocol.ended
        protocol.play(frame.audio)
        if not frame.interruptible:
            self._audiosocket_protected_until = asyncio.get_running_loop().time() + protocol.lead_s()
        if self._audiosocket_clock is not None:
            self._audiosocket_clock.speech_is_queued(_seconds(frame))
        await self._audiosocket_wait_for_lead(TARGET_LEAD_S)
        return not protocol.ended

    async def _audiosocket_wait_for_lead(self, lead_s: float) -> None:
        protocol = self._audiosocket_protocol
        while not protocol.ended and protocol.lead_s() > lead_s:
            protocol.packet_sent_or_end.clear()
            await protocol.packet_sent_or_end.wait()


class _PlaybackClock(BaseClock):
    # The pipeline's clock, less what the speech being heard is behind it. Word times say when a word is heard
    # if all that arrives is played at once; a busy machine starts late, and a stall skips packets.
    #
    #   arrives     |--------- 1.0 s ---------|
    #   is heard        |----- 0.4 s -----|now           behind by now - arrival - 0.4 s

    def __init__(self, clock: BaseClock, protocol: PipecatAudioSocketProtocol) -> None:
        self._clock = clock
        self._protocol = protocol
        self._arrived_ns = 0
        self._expected_s = self._queued_s = 0.0  # of speech, since it last began out of silence

    def get_time(self) -> int:
        now_ns = self._clock.get_time()
        heard_s = self._heard_s()
        if heard_s >= self._expected_s - PTIME_S:
            return now_ns
        behind_ns = now_ns - self._arrived_ns - round(heard_s * 1e9)
        return now_ns - min(max(0, behind_ns), _MAX_DELAY_NS)

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
        return max(0.0, self._queued_s - self._protocol.lead_s())


def _seconds(frame: OutputAudioRawFrame) -> float:
    return frame.num_frames / frame.sample_rate
