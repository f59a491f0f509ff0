"""When a caller of the benches begins to speak, how loud, and beside which sounds."""

import numpy as np
import pytest

from benches.caller_speech.callers import RATE, CallerClip, Samples, noise, onset
from benches.caller_speech.detection import detected
from benches.caller_speech.sounds import sounds
from shared.audio.speech_level import active_speech_level


def syllables(breath_db: float) -> Samples:
    """A breath of 0.3 s, and 2 s of syllables that are so much louder."""
    numbers = np.random.default_rng(2)
    breath = noise(2_400, -20 - breath_db, numbers)
    spoken = noise(16_000, -20, numbers) * np.repeat(np.tile([1.0, 0.5], 8), 1_000)
    return np.concatenate([breath, spoken])


@pytest.mark.parametrize(("breath_db", "begins_s"), [(30, 0.3), (10, 0.0)])
def test_a_caller_begins_within_20_db_of_its_level(breath_db: float, begins_s: float) -> None:
    assert begins_s - 0.02 <= onset(syllables(breath_db)) / RATE <= begins_s


@pytest.mark.parametrize("dbfs", [-20.0, -35.0])
def test_a_caller_has_the_level_that_is_asked_for(dbfs: float) -> None:
    samples = CallerClip("noise", syllables(30), 0).at_level(dbfs)
    assert active_speech_level(samples.astype(np.float32), RATE) == pytest.approx(dbfs, abs=0.1)


def test_each_sound_has_its_length_and_does_not_clip_for_most_of_it() -> None:
    made = sounds(3.0, [syllables(30)], np.random.default_rng(1))
    assert len(made) == 10
    for samples in (sound for group in made.values() for sound in group):
        assert len(samples) == 3 * RATE
        assert np.mean(np.abs(samples) > 1) < 0.01


def test_nothing_is_detected_in_silence() -> None:
    begun, _ = detected(bytes(2 * RATE))
    assert begun == []
