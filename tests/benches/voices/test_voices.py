"""The benches of voices: their pure parts, and one run of each that is short."""

import numpy as np
import pytest

from benches.voices import devices, first_audio, packaged_voice
from benches.voices.packaged_voice import SPEEDS, differing_sounds, level_db, longest_pause


@pytest.mark.parametrize(
    ("said", "expected", "count"),
    [("kæt", "kæt", 0), ("kæt", "bæt", 1), ("kæt", "kæts", 1), ("", "kæt", 3), ("kɑtɪ", "tɑk", 3)],
)
def test_differing_sounds_are_counted(said: str, expected: str, count: int) -> None:
    assert differing_sounds(said, expected) == differing_sounds(expected, said) == count


def test_the_longest_pause_is_found_without_its_ends() -> None:
    speech = np.full(2_400, 0.1, np.float32)
    quiet = np.full(6_000, 0.001, np.float32)
    samples = np.concatenate([speech, quiet[:1_000], speech, quiet, speech])
    pause = longest_pause(samples)
    assert len(pause) == pytest.approx(6_000 - 960, abs=2)
    assert level_db(pause) == pytest.approx(-60.0, abs=0.01)
    assert level_db(np.zeros(10, np.float32)) == float("-inf")


def test_speeds_cover_the_range_that_is_promised() -> None:
    assert (SPEEDS[0], SPEEDS[-1], len(SPEEDS)) == (0.85, 2.0, 24)


def test_first_audio_is_measured_in_ten_words() -> None:
    assert {len(clause.split()) for clause in first_audio.CLAUSES} == {10}
    report = first_audio.measure(first_audio.InstalledVoice.PACKAGED, None, 2)
    first_ms, _, cost_s = (figure.value for figure in report.figures)
    assert first_ms > 0 and cost_s > 0


def test_two_devices_are_compared_clause_by_clause() -> None:
    figures = devices.measure(first_audio.InstalledVoice.PACKAGED, None, "cpu", "fp32", 2).figures
    assert [figure.value for figure in figures[4:]] == [2, 0, 0]  # the same device
    assert all(figure.value > 0 for figure in figures[:4])
    tone = np.sin(np.arange(4_096))
    quieter = devices.spectrum_db(tone).max() - devices.spectrum_db(tone / 2).max()
    assert quieter == pytest.approx(6.02, abs=0.01)


@pytest.mark.slow
def test_the_packaged_voice_reaches_its_figures() -> None:
    report = packaged_voice.measure()
    assert [figure.name for figure in report.figures if figure.reached is False] == []
