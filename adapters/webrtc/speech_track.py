"""Outgoing aiortc audio track that sends packets as they are fed.

Source: aiortc 1.16 (mediastreams.py, rtcrtpsender.py).
"""

import asyncio
import fractions
from collections import deque
from typing import Final

from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from ...tts_engine.chunk import SAMPLE_RATE

_MAX_WAITING_PACKETS: Final = 2  # 40 ms; more waits only if the encoder falls behind


class SpeechTrack(MediaStreamTrack):
    """Track of 20 ms packets of s16le mono at 24 kHz.

    The caller of ``feed`` sets the pace: nothing is sent between packets, and at most two packets wait.
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
        """Queue ``packet``; if two already wait, the older one is dropped and counted."""
        if len(self._packets) >= _MAX_WAITING_PACKETS:
            self._packets.popleft()
            self.dropped += 1
        self._packets.append(packet)
        self._changed.set()

    def discard(self) -> None:
        """Drop the packets that wait."""
        self._packets.clear()

    async def recv(self) -> AudioFrame:
        """Return the next frame; raises MediaStreamError once the track has ended."""
        while not self._packets:
            if self.readyState != "live":
                raise MediaStreamError
            self._changed.clear()
            await self._changed.wait()
        return self._frame(self._packets.popleft())

    def stop(self) -> None:
        """End the track; a pending ``recv`` raises MediaStreamError."""
        super().stop()
        self._packets.clear()
        self._changed.set()

    def _frame(self, packet: bytes) -> AudioFrame:
        samples = len(packet) // 2
        frame = AudioFrame(format="s16", layout="mono", samples=samples)
        frame.planes[0].update(packet)
        frame.sample_rate = SAMPLE_RATE
        frame.time_base = self._time_base
        frame.pts = self._samples  # without gaps, which the encoder's resampler requires
        self._samples += samples
        return frame
