"""Output of an AudioSocket call in Pipecat: audio at the pace at which it is heard.

An interruption drops the audio that has not been sent; words are pushed when they are heard.

Source: pipecat-ai 1.14.0, transports/base_output.py.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
from typing import Final

from loguru import logger
from pipecat.clocks.base_clock import BaseClock
from pipecat.frames.frames import (
    BotStoppedSpeakingFrame,
    CancelFrame,
    EndFrame,
    Frame,
    InterruptionFrame,
    OutputAudioRawFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessorSetup
from pipecat.transports.base_output import BaseOutputTransport

from .call_handler import PipecatCallHandler
from .params import AudioSocketParams
from .playback_clock import PlaybackClock

# Speech pushed ahead of what is heard: covers the delays of a busy event loop, such as the 0.8 s in which
# Pipecat loads what another call's pipeline needs. An interruption drops it.
TARGET_LEAD_S: Final = 1.0


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
        self._audiosocket_clock: PlaybackClock | None = None
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
            self._audiosocket_clock = PlaybackClock(super().get_clock(), self._audiosocket_handler)
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
        await self._audiosocket_handler.wait_played()
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
        if isinstance(frame, UserStartedSpeakingFrame | UserStoppedSpeakingFrame):
            self._audiosocket_handler.set_caller_speaks(isinstance(frame, UserStartedSpeakingFrame))
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
            if isinstance(frame, BotStoppedSpeakingFrame):
                await self._audiosocket_handler.wait_for_lead(0.0)  # the caller still hears the bot
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
        await handler.wait_for_lead(TARGET_LEAD_S)
        return not handler.ended

    async def _audiosocket_wait_until_heard(self, pts: int) -> None:
        # Pipecat computes the wait once; a stall of the playback during it delays the word further.
        clock = self._audiosocket_clock
        while clock is not None and not self._audiosocket_handler.ended:
            remaining_ns = pts - clock.get_time()
            if remaining_ns <= 0:
                break
            await asyncio.sleep(remaining_ns / 1e9)


def _seconds(frame: OutputAudioRawFrame) -> float:
    return frame.num_frames / frame.sample_rate
