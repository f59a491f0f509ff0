"""Comfort noise: its level in dBm0, its band and slope, and a loop without a joint at every rate of calls."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.adapters.playback.background import CALL_RATES, JOINT_S, comfort_noise, make_loop

RATE = 24_000


def samples_of(level_dbm0: float) -> NDArray[np.float64]:
    return np.frombuffer(comfort_noise(level_dbm0), "<i2").astype(np.float64)


def dbfs(samples: NDArray[np.float64]) -> float:
    return float(10 * np.log10(np.mean(samples**2)) - 20 * np.log10(32_768))


def band_db(samples: NDArray[np.float64], low_hz: float, high_hz: float) -> float:
    power = np.abs(np.fft.rfft(samples)) ** 2
    frequencies = np.fft.rfftfreq(len(samples), 1 / RATE)
    return float(10 * np.log10(power[(frequencies >= low_hz) & (frequencies < high_hz)].sum()))


@pytest.mark.parametrize("level_dbm0", [-75.0, -60.0, -40.0])
def test_the_level_is_the_one_stated(level_dbm0: float) -> None:
    # A sine of -3.14 dBFS (of its peak) has 0 dBm0, and an RMS 3.01 dB lower.
    assert dbfs(samples_of(level_dbm0)) == pytest.approx(level_dbm0 - 6.15, abs=0.3)  # rounded to integers


def test_the_noise_is_in_the_band_of_a_telephone_and_falls_by_5_db_an_octave() -> None:
    noise = samples_of(-40.0)
    octaves = [band_db(noise, low, 2 * low) for low in (200, 400, 800, 1_600)]
    # An octave has twice the frequencies, so its power falls by 2 dB.
    assert np.diff(octaves) == pytest.approx([-2.0] * 3, abs=0.3)
    assert band_db(noise, 0, 90) < octaves[-1] - 20 > band_db(noise, 3_500, 12_000)


@pytest.mark.parametrize("rate", CALL_RATES)
def test_its_loop_repeats_without_a_joint_at_the_same_level(rate: int) -> None:
    loop = make_loop(comfort_noise(-45.0), rate).astype(np.float64)
    assert len(loop) == pytest.approx(10 * rate, abs=2)
    assert dbfs(loop) == pytest.approx(-51.15, abs=0.5)
    twice = np.concatenate([loop, loop])
    around = round(JOINT_S * rate)
    joint, largest = np.abs(np.diff(twice[len(loop) - around : len(loop) + around])), np.abs(np.diff(loop))
    assert joint.max() <= largest.max()
    windows = twice[: len(twice) // around * around].reshape(-1, around)
    levels = np.sqrt(np.mean(windows**2, axis=1))
    at = len(loop) // around
    assert levels[at - 2 : at + 2].min() > 0.5 * np.median(levels)  # no dip where it begins again
