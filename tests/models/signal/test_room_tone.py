"""Room tone against the silence that it is like: level, spectrum in bands, no seam, no sound at the ends."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.models.signal.room_tone import RoomTone


def silence(level_db: float = -70.0, samples: int = 24_000) -> NDArray[np.float32]:
    """Noise that falls by 6 dB an octave above 700 Hz."""
    white = np.random.default_rng(1).standard_normal(samples + 5_000)
    noise = np.convolve(white, 0.83 ** np.arange(200), "valid")[:samples]
    return (noise / np.sqrt(np.mean(noise**2)) * 10 ** (level_db / 20)).astype(np.float32)


def level_db(samples: NDArray[np.float32]) -> float:
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2)))


def bands_db(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """Level of each octave of 24 kHz speech from 94 Hz on, by one transform of all samples."""
    power = np.abs(np.fft.rfft(samples)) ** 2 / len(samples) ** 2
    edges = (np.array([94, 188, 375, 750, 1500, 3000, 6000, 12000]) / 12_000 * (len(power) - 1)).astype(int)
    return 10 * np.log10([power[low:high].sum() for low, high in itertools.pairwise(edges)])


@pytest.mark.parametrize("samples", [2_400, 24_000])
def test_the_tone_has_level_and_spectrum_of_the_silence(samples: int) -> None:
    source = silence(samples=samples)
    tone = RoomTone.like(source).period
    assert level_db(tone) == pytest.approx(level_db(source), abs=0.5)
    np.testing.assert_allclose(bands_db(tone), bands_db(source), atol=2.0)


def test_a_loud_silence_is_made_fainter() -> None:
    assert level_db(RoomTone.like(silence(-40.0)).period) == pytest.approx(-62.0, abs=0.1)
    assert not RoomTone.like(np.zeros(4_800, np.float32)).period.any()


def test_the_period_goes_on_at_its_start_without_a_seam() -> None:
    period = RoomTone.like(silence()).period
    pause = RoomTone.like(silence()).pause(len(period) - 2_000, 4_000)
    np.testing.assert_array_equal(pause[200:-200], np.roll(period, 2_000)[200:3_800])
    around = np.diff(np.roll(period, 2_000)[:4_000], 2)
    assert np.abs(around[1_990:2_010]).max() < 4 * around.std()


@pytest.mark.parametrize("samples", [0, 1, 100, 6_000, 200_000])
def test_a_pause_has_the_length_that_is_asked_for_and_begins_and_ends_softly(samples: int) -> None:
    tone = RoomTone.like(silence())
    before = tone.period.copy()
    pause = tone.pause(12_345, samples)
    assert pause.shape == (samples,) and pause.dtype == np.float32
    assert samples < 2 or pause[0] == pause[-1] == 0
    np.testing.assert_array_equal(tone.period, before)


def speech_over(floor: NDArray[np.float32]) -> NDArray[np.float32]:
    """Three bursts that die away over a floor of 2 s."""
    samples = floor.copy()
    times = np.arange(9_600) / 24_000
    burst = 0.2 * np.sin(2 * np.pi * 150 * times) * np.exp(-np.maximum(0, times - 0.2) * 35)
    for start in (4_800, 14_400, 28_800):
        samples[start : start + len(burst)] += burst.astype(np.float32)
    return samples


@pytest.mark.parametrize("floor_db", [-92.0, -75.0, -65.0])
def test_the_tone_of_speech_is_that_of_its_steady_quiet_part(floor_db: float) -> None:
    tone = RoomTone.of_speech(speech_over(silence(floor_db, 48_000)))
    assert tone is not None
    assert level_db(tone.period) == pytest.approx(floor_db, abs=1.0)


def test_speech_over_digital_silence_or_without_a_quiet_part_has_no_tone() -> None:
    assert RoomTone.of_speech(speech_over(np.zeros(48_000, np.float32))) is None
    assert RoomTone.of_speech(speech_over(silence(-120.0, 48_000))) is None
    assert RoomTone.of_speech(silence(-30.0, 48_000)) is None
    assert RoomTone.of_speech(np.zeros(0, np.float32)) is None


@pytest.mark.parametrize("rate", [8_000, 12_000])
def test_at_a_lower_rate_the_tone_is_the_part_that_is_heard_there(rate: int) -> None:
    tone = RoomTone.like(silence())
    low = tone.at_rate(rate)
    assert (low.sample_rate, len(low.period)) == (rate, len(tone.period) * rate // 24_000)
    below = np.fft.rfft(tone.period)
    below[len(low.period) // 2 :] = 0
    expected = np.fft.irfft(below)[:: 24_000 // rate]
    np.testing.assert_allclose(low.period, expected, atol=1e-7)
    assert np.abs(expected).max() > 1e-4
    pause, fade = low.pause(0, rate), rate // 200
    np.testing.assert_array_equal(pause[fade:-fade], low.period[fade : rate - fade])
    assert pause[0] == pause[-1] == 0 and pause[fade - 1] != low.period[fade - 1]
