"""TODO."""

import asyncio
import fractions
from collections import deque
from typing import Final

from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from ...tts_engine.chunk import SAMPLE_RATE

_MAX_WAITING_PACKETS: Final = 2  # unsent: more is an encoder that falls behind


class SpeechTrack(MediaStreamTrack):
    """Our voice: takes 20 ms packets of s16le mono and gives them to aiortc as they come.

    The clock is whoever feeds: nothing is sent that was not fed, and never more than two packets late.
    """

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.dropped = 0
        self._time_base = fractions.Fraction(1, SAMPLE_RATE)
        self._samples = 0
        self._packets: deque[bytes] = deque()
        self._changed = asyncio.Event()

    def feed(self, packet: bytes) -> None:
        """Send ``packet`` next; where two wait unsent, the oldest is dropped and counted."""
        if len(self._packets) >= _MAX_WAITING_PACKETS:
            self._packets.popleft()
            self.dropped += 1
        self._packets.append(packet)
        self._changed.set()

    def discard(self) -> None:
        """Drop what is not yet sent."""
        self._packets.clear()

    async def recv(self) -> AudioFrame:
        """The next frame; raises MediaStreamError once the track has ended."""
        while not self._packets:
            if self.readyState != "live":
                raise MediaStreamError
            self._changed.clear()
            await self._changed.wait()
        return self._frame(self._packets.popleft())

    def stop(self) -> None:
        """End the track and wake who waits for its next frame."""
        super().stop()
        self._packets.clear()
        self._changed.set()

    def _frame(self, packet: bytes) -> AudioFrame:
        samples = len(packet) // 2
        frame = AudioFrame(format="s16", layout="mono", samples=samples)
        frame.planes[0].update(packet)
        frame.sample_rate = SAMPLE_RATE
        frame.time_base = self._time_base
        frame.pts = self._samples  # without gaps, as the encoder's resampler wants it
        self._samples += samples
        return frame
