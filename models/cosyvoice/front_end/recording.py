"""Limits of a recording that is to become a voice, and their check."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .voice_prompt import VoicePromptError

Float = NDArray[np.float32]

MIN_RECORDING_S, MAX_RECORDING_S = 3.0, 30.0
MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 8_000, 192_000  # Hz; below 16 kHz it sounds as on a telephone
SAMPLE_RATE_STEP = 25  # Hz; other rates would need resampling kernels of many megabytes
MIN_LEVEL_DBFS = -50.0  # of the loudest 20 ms


def check_recording(samples: ArrayLike, sample_rate: int) -> Float:
    """Return the samples as (N,) float32 in [-1, 1].

    ``samples`` are floats in [-1, 1] or int16 of one channel, ``sample_rate`` is in Hz. Raises
    VoicePromptError that states the limit.
    """
    _check_rate(sample_rate)
    speech = _as_floats(np.asarray(samples))
    seconds = len(speech) / sample_rate
    if not MIN_RECORDING_S <= seconds <= MAX_RECORDING_S:
        raise VoicePromptError(
            f"the recording is {seconds:.1f} s long; {MIN_RECORDING_S:g} to {MAX_RECORDING_S:g} s are allowed"
        )
    if not np.isfinite(speech).all():
        raise VoicePromptError("the recording holds NaN or infinite samples; give numbers in [-1, 1]")
    peak = float(np.abs(speech).max())
    if peak > 1:
        raise VoicePromptError(f"the recording reaches {peak:.4g}; floats in [-1, 1] or int16 are allowed")
    level = _loudest_dbfs(speech, sample_rate)
    if level < MIN_LEVEL_DBFS:
        raise VoicePromptError(
            f"the recording is silent: its loudest 20 ms are at {level:.0f} dBFS; "
            f"a voice above {MIN_LEVEL_DBFS:.0f} dBFS is needed"
        )
    return speech


def _check_rate(sample_rate: int) -> None:
    if not MIN_SAMPLE_RATE <= sample_rate <= MAX_SAMPLE_RATE:
        raise VoicePromptError(
            f"the recording has {sample_rate:,} Hz; {MIN_SAMPLE_RATE:,} to {MAX_SAMPLE_RATE:,} Hz are allowed"
        )
    if sample_rate % SAMPLE_RATE_STEP:
        raise VoicePromptError(
            f"the recording has {sample_rate:,} Hz; a whole multiple of {SAMPLE_RATE_STEP} Hz is needed"
        )


def _as_floats(samples: NDArray[Any]) -> Float:
    if samples.ndim == 2 and 1 in samples.shape:
        samples = samples.reshape(-1)
    if samples.ndim != 1:
        raise VoicePromptError(
            f"the recording has shape {samples.shape}; one channel is allowed, give (samples,)"
        )
    if samples.dtype == np.int16:
        return samples.astype(np.float32) / np.float32(32_768)
    if not np.issubdtype(samples.dtype, np.floating):
        raise VoicePromptError(f"the recording holds {samples.dtype}; floats in [-1, 1] or int16 are allowed")
    return samples.astype(np.float32)


def _loudest_dbfs(speech: Float, sample_rate: int) -> float:
    window = sample_rate // 50
    windows = speech[: len(speech) // window * window].reshape(-1, window).astype(np.float64)
    power = float(np.max(np.mean(windows**2, axis=1)))
    return 10 * float(np.log10(max(power, 1e-12)))
