"""Input of an AudioSocket call in Pipecat: the caller's audio, at the pipeline's rate, and keys.

Source: pipecat-ai 1.14.0, transports/base_input.py.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from loguru import logger
from pipecat.audio.dtmf.types import KeypadEntry
from pipecat.frames.frames import (
    CancelFrame,
    ClientConnectedFrame,
    EndFrame,
    InputAudioRawFrame,
    InputDTMFFrame,
    StartFrame,
)
from pipecat.transports.base_input import BaseInputTransport

from ...audio.input_resampler import InputResampler, make_input_resampler
from ...audiosocket.protocol import AudioSocketAudio, Dtmf
from .call_handler import PipecatCallHandler
from .params import AudioSocketParams

_KEYPAD_ENTRIES: Final[Mapping[str, KeypadEntry]] = MappingProxyType(
    {entry.value: entry for entry in KeypadEntry}
)


class AudioSocketInputTransport(BaseInputTransport):
    """Pushes the caller's audio and keys into the pipeline."""

    def __init__(
        self,
        handler: PipecatCallHandler,
        params: AudioSocketParams,
        emit_event: Callable[[str], Awaitable[None]],
    ) -> None:
        """Initialize the processor.

        Args:
            handler: Handler of the call.
            params: Parameters of the call.
            emit_event: Calls the handlers of an event of the transport.
        """
        super().__init__(params)
        self._audiosocket_emit_event = emit_event
        self._audiosocket_handler = handler
        self._audiosocket_task: asyncio.Task[None] | None = None
        self._audiosocket_resamplers: dict[int, InputResampler] = {}  # by input rate

    async def start(self, frame: StartFrame) -> None:
        """Start to receive the caller's audio.

        Args:
            frame: The start frame.
        """
        await super().start(frame)
        await self._audiosocket_emit_event("on_client_connected")
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
        await self._audiosocket_emit_event("on_client_disconnected")

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
