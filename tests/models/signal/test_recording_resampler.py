"""Resampling of a recording: a tone keeps its pitch and level, and the length is exact."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.models.signal.recording_resampler import resample


def tone(hz: float, rate: int) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(rate) / rate)


@pytest.mark.parametrize("rate", [16_000, 22_050, 32_000, 44_100, 48_000, 192_000])
def test_a_tone_keeps_its_pitch_and_level_at_another_rate(rate: int) -> None:
    resampled = resample(tone(1000, rate), rate, 24_000)
    assert len(resampled) == 24_000
    np.testing.assert_allclose(resampled[200:-200], tone(1000, 24_000)[200:-200], atol=2e-3)


def test_resampling_to_the_same_rate_changes_nothing() -> None:
    samples = tone(440, 24_000).astype(np.float32)
    assert np.array_equal(resample(samples, 24_000, 24_000), samples)
