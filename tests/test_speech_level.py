"""The measure that tests of speech have, against signals whose level is known by arithmetic."""

import numpy as np
import pytest

from shared.audio.speech_level import active_speech_level

RATE = 24_000


def tone(seconds: float, level_dbfs: float) -> np.ndarray:
    """A 1 kHz tone of that root-mean-square level."""
    amplitude = 10 ** (level_dbfs / 20) * np.sqrt(2)
    time_s = np.arange(round(seconds * RATE)) / RATE
    return (amplitude * np.sin(2 * np.pi * 1000 * time_s)).astype(np.float32)


@pytest.mark.parametrize("level_dbfs", [-10.0, -20.0, -35.0])
def test_a_steady_tone_has_its_own_level(level_dbfs: float) -> None:
    assert active_speech_level(tone(5, level_dbfs), RATE) == pytest.approx(level_dbfs, abs=0.1)


def test_long_pauses_do_not_lower_the_level_of_speech() -> None:
    burst, pause = tone(2, -20), np.zeros(4 * RATE, np.float32)
    bursts = np.concatenate([pause, burst, pause, burst, pause])
    rms = 10 * np.log10(np.mean(np.square(bursts, dtype=np.float64)))
    assert rms < -26
    assert active_speech_level(bursts, RATE) == pytest.approx(-20, abs=0.6)


def test_short_gaps_inside_speech_count_as_speech() -> None:
    syllable = np.concatenate([tone(0.1, -20), np.zeros(round(0.1 * RATE), np.float32)])
    assert active_speech_level(np.tile(syllable, 30), RATE) == pytest.approx(-23, abs=0.3)


def test_silence_has_no_level() -> None:
    assert active_speech_level(np.zeros(RATE, np.float32), RATE) == float("-inf")
    assert active_speech_level(np.zeros(0, np.float32), RATE) == float("-inf")
