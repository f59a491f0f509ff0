"""The melody of a line: widened up to the extremes, joints kept, accents, and an end that rises enough."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from vivavoce.models.hibari.melody import MEAN_HZ, Accent, Melody, end_above_mean, shape
from vivavoce.models.hibari.voice import EncodedLine


def line_of(semitones: np.ndarray, words: int = 4) -> EncodedLine:
    """A line whose pitch is given for each frame, above the voice's mean; NaN is unvoiced."""
    f0 = np.nan_to_num(MEAN_HZ * 2 ** (semitones / 12)).astype(np.float32)
    hidden = np.zeros((1, 130, len(f0)), np.float32)
    edges = np.linspace(0, len(f0), words + 1).astype(int)
    spans = tuple((int(start), int(stop)) for start, stop in pairwise(edges))
    return EncodedLine(hidden, f0, spans, 0, len(f0))


def semitones_of(line: EncodedLine) -> np.ndarray:
    return 12 * np.log2(np.maximum(line.f0, 1) / MEAN_HZ)


FALLING = np.linspace(4, -4, 200)


def test_the_models_own_melody_is_the_same_line() -> None:
    line = line_of(FALLING)
    assert shape(line, Melody()) is line


@pytest.mark.parametrize("factor", [0.8, 1.3, 1.6])
def test_deviations_are_scaled_and_declination_stays(factor: float) -> None:
    pitch = semitones_of(shape(line_of(FALLING), Melody(factor)))
    np.testing.assert_allclose(pitch, FALLING * factor, atol=1e-3)
    assert (np.diff(pitch) < 0).all()


def test_a_shift_moves_every_pitch_and_leaves_silence() -> None:
    line = line_of(np.append(FALLING, np.nan))
    shaped = shape(line, Melody(shift=-3.0))
    np.testing.assert_allclose(semitones_of(shaped)[:-1], FALLING - 3, atol=1e-3)
    assert shaped.f0[-1] == 0
    high = np.linspace(6, 8, 50)
    np.testing.assert_allclose(semitones_of(shape(line_of(high), Melody(shift=3.0))), high + 3, atol=1e-3)


def test_no_pitch_exceeds_the_models_extremes() -> None:
    own = np.linspace(-8.5, 8.8, 300)
    f0 = shape(line_of(own), Melody(1.7)).f0
    assert f0.max() <= 328 and f0.min() >= 116
    extreme = line_of(np.array([-20.0, 10.0, 12.0]))
    np.testing.assert_allclose(shape(extreme, Melody(1.7)).f0, extreme.f0, rtol=1e-5)


def test_each_frame_depends_on_itself_alone() -> None:
    """So two parts of a sentence meet as they do in the whole."""
    line = line_of(np.sin(np.arange(200) / 9) * 6)
    part = replace(line, hidden=line.hidden[:, :, 80:], f0=line.f0[80:], words=((0, 120),))
    np.testing.assert_array_equal(shape(line, Melody(1.4)).f0[80:], shape(part, Melody(1.4)).f0)


def test_unvoiced_frames_stay_and_the_decoder_gets_the_new_pitch() -> None:
    own = FALLING.copy()
    own[50:60] = np.nan
    shaped = shape(line_of(own), Melody(1.4))
    assert (shaped.f0[50:60] == 0).all()
    np.testing.assert_allclose(shaped.hidden[0, 128], np.log1p(shaped.f0) / 5, rtol=1e-6)


def test_an_accent_lifts_its_words_only() -> None:
    line = line_of(np.zeros(200))
    pitch = semitones_of(shape(line, Melody(accents=(Accent((1, 2), 1.5),))))
    np.testing.assert_allclose(pitch[50:100], 1.5, atol=1e-3)
    np.testing.assert_allclose(pitch[[10, 40, 110, 190]], 0, atol=1e-3)


@pytest.mark.parametrize("own", [FALLING, -np.abs(FALLING), FALLING[:40], FALLING + 4])
def test_the_end_rises_as_far_as_is_asked(own: np.ndarray) -> None:
    line = line_of(own, words=1)
    shaped = shape(line, Melody(end_above_mean=2.8))
    assert end_above_mean(shaped) >= 2.0
    assert shaped.f0.max() <= 325


def test_an_end_that_is_high_enough_and_a_line_without_voice_stay() -> None:
    rising = line_of(-FALLING)
    np.testing.assert_allclose(shape(rising, Melody(end_above_mean=2.0)).f0, rising.f0, rtol=1e-5)
    silent = line_of(np.full(20, np.nan))
    assert not shape(silent, Melody(1.4, end_above_mean=2.8)).f0.any()
