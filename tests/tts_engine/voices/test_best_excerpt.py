"""The part of a long recording that is used: the speaker who speaks most, without noise and silence."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.tts_engine.voices.best_excerpt import find_excerpt

_RATE = 16_000
Samples = NDArray[np.float32]


def voice(seconds: float, f0: float, formants: tuple[float, ...], numbers: np.random.Generator) -> Samples:
    """Syllables and pauses of a pulse train through resonances, which differ from sound to sound."""
    parts: list[NDArray[np.float64]] = []
    while sum(map(len, parts)) < seconds * _RATE:
        count = round(numbers.uniform(0.6, 2.0) * _RATE)
        time_s = np.arange(count) / _RATE
        harmonics = np.arange(1, int(3_800 / f0)) * f0 * numbers.uniform(0.95, 1.05)
        places = np.array(formants) * numbers.uniform(0.9, 1.1, len(formants))
        levels = (1 / (1 + ((harmonics[:, None] - places) / 120) ** 2)).sum(1)
        sound = levels @ np.sin(2 * np.pi * harmonics[:, None] * time_s)
        parts += [0.1 * sound * np.hanning(count), np.zeros(round(numbers.uniform(0.2, 0.6) * _RATE))]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("seed", range(6))
def test_the_excerpt_has_the_speaker_who_speaks_most_and_no_noise(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    blocks = [(1, voice(30, 110, (500, 1_400, 2_400), numbers)) for _ in range(3)]
    blocks.append((2, voice(25, 210, (750, 1_900, 3_000), numbers)))
    blocks.append((3, 0.05 * numbers.normal(size=12 * _RATE).astype(np.float32)))
    blocks.append((4, np.zeros(8 * _RATE, np.float32)))
    order = numbers.permutation(len(blocks))
    samples = np.concatenate([blocks[at][1] for at in order])
    kinds = np.concatenate([np.full(len(blocks[at][1]), blocks[at][0]) for at in order])
    samples += 1e-3 * numbers.normal(size=len(samples)).astype(np.float32)
    part = find_excerpt(samples, _RATE)
    used = kinds[round(part.start_s * _RATE) : round(part.stop_s * _RATE)]
    assert 10 <= part.stop_s - part.start_s <= 25
    assert np.mean(used == 1) > 0.97


def test_the_excerpt_begins_and_ends_in_pauses() -> None:
    samples = voice(90, 120, (600, 1_500, 2_500), np.random.default_rng(3))
    part = find_excerpt(samples, _RATE)
    for at in (part.start_s, part.stop_s):
        around = samples[max(0, round((at - 0.04) * _RATE)) : round((at + 0.04) * _RATE)]
        assert np.abs(around).max() < 0.05 * np.abs(samples).max()


def test_the_excerpt_is_no_longer_than_is_used() -> None:
    samples = voice(40, 120, (600, 1_500, 2_500), np.random.default_rng(3))
    for longest_s in (20.0, 6.0):
        part = find_excerpt(samples, _RATE, longest_s)
        assert min(10.0, longest_s) - 0.1 <= part.stop_s - part.start_s <= longest_s + 1e-6


def test_a_recording_without_speech_has_an_excerpt_too() -> None:
    part = find_excerpt(np.zeros(60 * _RATE, np.float32), _RATE)
    assert 10 <= part.stop_s - part.start_s <= 25
