"""The bench of intelligibility: its channels to the recogniser, and a short run."""

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from benches.word_errors import measure, to_telephone_band, to_wide_band
from vivavoce.tts_engine.errors import MissingExtra


def tone(frequency_hz: float) -> NDArray[np.float32]:
    """Return one second of a sine at 24 kHz."""
    return (0.3 * np.sin(2 * np.pi * frequency_hz * np.arange(24_000) / 24_000)).astype(np.float32)


def level(samples: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(samples))))


def test_the_telephone_channel_passes_the_speech_band_only() -> None:
    assert level(to_telephone_band(tone(1000))) == pytest.approx(level(tone(1000)), rel=0.05)
    assert level(to_telephone_band(tone(6000))) < 0.02 * level(tone(6000))
    assert level(to_wide_band(tone(6000))) == pytest.approx(level(tone(6000)), rel=0.05)


def test_both_channels_return_sixteen_kilohertz() -> None:
    assert len(to_wide_band(tone(500))) == pytest.approx(16_000, abs=2)
    assert len(to_telephone_band(tone(500))) == pytest.approx(16_000, abs=64)


def test_a_missing_recogniser_raises_the_pip_line_of_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[stt\]"):
        measure(1)


@pytest.mark.slow
@pytest.mark.asr
def test_a_short_run_finds_no_wrong_words_and_small_errors_of_word_times() -> None:
    shown: list[str] = []
    report = measure(2, shown.append)
    (word_start,) = (figure for figure in report.figures if figure.unit == "ms")
    assert [figure.value for figure in report.figures if figure.unit == "%"] == [0, 0]
    assert shown == []
    assert 0 < word_start.value < 100
