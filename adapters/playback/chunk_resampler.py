"""Brings the chunks of a stream to the listener's rate."""

from ...tts_engine.chunk import SAMPLE_RATE, AudioChunk
from ..audio.resample import resampler_to


class ChunkResampler:
    """Resamples chunks of 24 kHz; those that a voice rendered at the listener's rate stay as they are.

    sample_rate: of the listener, Hz.
    """

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._resampler = resampler_to(sample_rate)
        self._withholds = False

    def push(self, chunk: AudioChunk) -> bytes:
        """Return the samples that are ready, s16le; raises ValueError for a chunk of another rate."""
        if chunk.sample_rate == self._sample_rate:
            return self.drain() + chunk.pcm if self._withholds else chunk.pcm
        if chunk.sample_rate != SAMPLE_RATE:
            raise ValueError(
                f"got a chunk at {chunk.sample_rate} Hz for a listener at {self._sample_rate} Hz; "
                f"it must be at that rate or at {SAMPLE_RATE} Hz"
            )
        self._withholds = True
        return self._resampler.push(chunk.pcm)

    def drain(self) -> bytes:
        """Return the withheld samples; the next chunk begins a new signal."""
        if not self._withholds:
            return b""
        self._withholds = False
        return self._resampler.drain()

    def reset(self) -> None:
        """Drop the withheld samples; the next chunk begins a new signal."""
        self._withholds = False
        self._resampler.reset()
