"""Voices of recordings: bad recordings are one sentence."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from vivavoce.models.xtts.voice import XttsVoiceEncoder


def test_a_recording_of_a_second_makes_a_voice(voice_encoder: XttsVoiceEncoder) -> None:
    samples = np.random.default_rng(1).normal(0, 0.1, 22_050).astype(np.float32)
    voice = voice_encoder.encode([samples])
    assert voice.latents.shape == (32, 64) and voice.speaker.shape == (512,)
    assert float(voice.speaker.norm()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(22_050, np.float32), "silent"),
        (np.full(22_050, np.nan, np.float32), "silent or not numbers"),
        (np.ones(2_000, np.float32), "must have at least 0.33 s"),
    ],
)
def test_a_recording_without_a_voice_is_refused(
    voice_encoder: XttsVoiceEncoder, samples: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        voice_encoder.encode([samples])
