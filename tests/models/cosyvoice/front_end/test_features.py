"""Features of speech: bands of tones, the floor of silence, numbers of frames."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.models.cosyvoice.front_end import features


def tone(hz: float, rate: int, seconds: float = 1.0) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(round(rate * seconds)) / rate)


def test_a_higher_tone_lies_in_a_higher_band() -> None:
    low = features.mel_spectrogram(tone(300, 24_000), 8000)
    high = features.mel_spectrogram(tone(3000, 24_000), 8000)
    assert low[:, 25].argmax() < high[:, 25].argmax()


def test_the_mel_of_version_2_ends_at_8_kilohertz() -> None:
    hiss = tone(10_000, 24_000)
    assert features.mel_spectrogram(hiss, 8000)[:, 10:40].max() < -3
    assert features.mel_spectrogram(hiss, None)[:, 10:40].max() > -1


def test_mel_frames_are_counted_by_whole_hops() -> None:
    assert features.mel_spectrogram(np.zeros(features.MIN_MEL_SAMPLES), 8000).shape == (80, 1)
    assert features.mel_spectrogram(np.zeros(4800), 8000).shape == (80, 10)
    assert features.mel_spectrogram(np.zeros(4799), 8000).shape == (80, 9)


def test_silence_is_the_floor_of_each_feature() -> None:
    silence = np.zeros(16_000)
    assert features.mel_spectrogram(silence, 8000) == pytest.approx(math.log(1e-5), abs=1e-5)
    assert features.whisper_log_mel(silence) == pytest.approx((-10 + 4) / 4)
    assert features.kaldi_filter_bank(silence) == pytest.approx(math.log(np.finfo(np.float32).eps))


def test_whisper_features_span_eight_decades() -> None:
    mel = features.whisper_log_mel(np.concatenate([tone(440, 16_000), np.zeros(16_000)]))
    assert mel.max() - mel.min() == pytest.approx(2)
    assert mel.shape == (128, 200)


def test_one_window_gives_one_row_of_the_filter_bank() -> None:
    assert features.kaldi_filter_bank(np.zeros(features.MIN_FILTER_BANK_SAMPLES)).shape == (1, 80)
    assert features.kaldi_filter_bank(np.zeros(16_000)).shape == (98, 80)
