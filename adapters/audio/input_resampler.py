"""Resamplers of received audio: the caller's rate to that of a pipeline or of speech detection.

A Pipecat pipeline takes s16le bytes at its own rate, speech detection takes float32 at 16 kHz.
"""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .resample import PassthroughResampler, soxr_resampler
from .upsample import HalfBandUpsampler, Upsampler

DETECTOR_SAMPLE_RATE: Final = 16_000  # Hz that speech detection and recognition work at


class InputResampler(Protocol):
    """Streaming resampler of s16le mono."""

    def push(self, pcm: bytes) -> bytes:
        """Resample ``pcm`` and return the samples that are ready."""


def make_input_resampler(input_rate: int, output_rate: int) -> InputResampler:
    """Return the resampler with the least delay between two rates (Hz)."""
    if input_rate == output_rate:
        return PassthroughResampler()
    if output_rate % input_rate == 0:
        return Upsampler(output_rate // input_rate)
    return soxr_resampler(input_rate, output_rate)


class DetectorResampler:
    """Converts s16le mono at any rate, which may change, to float32 in [-1, 1) at 16 kHz.

    The delay is at most 1 ms at 8, 16, 24, 32 and 48 kHz: the detector's network uses only frequencies below
    8 kHz, so simple filters suffice. At other rates it is that of ``BlockResampler``, about 40 ms.
    """

    def __init__(self) -> None:
        self._upsampler = HalfBandUpsampler()
        self._rare_rate = 0  # Hz, of the resampler
        self._rare_rate_resampler: InputResampler

    def reset(self) -> None:
        """Begin a new signal."""
        self._upsampler.reset()
        self._rare_rate = 0

    def push(self, pcm: bytes, sample_rate: int) -> NDArray[np.float32]:
        """Convert whole milliseconds of ``pcm``."""
        match sample_rate:
            case 16_000:
                return _samples(pcm)
            case 8_000:
                return self._upsampler.push(_samples(pcm))
            case 32_000 | 48_000:
                # The mean of 2 or 3 samples.
                step = sample_rate // DETECTOR_SAMPLE_RATE
                samples = _samples(pcm)
                whole = samples[: len(samples) // step * step]
                return np.asarray(whole.reshape(-1, step).mean(axis=1), np.float32)
            case 24_000:
                # Three samples become two: at 0, and at 1.5 by linear interpolation.
                samples = _samples(pcm)
                triple = samples[: len(samples) // 3 * 3].reshape(-1, 3)
                return np.stack([triple[:, 0], (triple[:, 1] + triple[:, 2]) / 2], axis=1).reshape(-1)
            case _:
                if sample_rate != self._rare_rate:
                    self._rare_rate = sample_rate
                    self._rare_rate_resampler = soxr_resampler(sample_rate, DETECTOR_SAMPLE_RATE)
                return _samples(self._rare_rate_resampler.push(pcm))


def _samples(pcm: bytes) -> NDArray[np.float32]:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
