"""Limits of a recording: each is refused with a message that states it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.audio.harmonic_voice import harmonic_voice
from vivavoce.models.cosyvoice.front_end.recording import check_recording
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePromptError


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.zeros(96_000, np.float32), 24_000, "silent: its loudest 20 ms are at -120 dBFS"),
        (harmonic_voice(1), 24_000, "1.0 s long; 3 to 30 s"),
        (harmonic_voice(40), 24_000, "40.0 s long; 3 to 30 s"),
        (harmonic_voice(4, 7_975), 7_975, "7,975 Hz; 8,000 to 192,000 Hz"),
        (harmonic_voice(4), 24_001, "whole multiple of 25 Hz"),
        (np.stack([harmonic_voice(4), harmonic_voice(4)]), 24_000, "one channel is allowed"),
        (np.full(96_000, np.nan, np.float32), 24_000, "NaN or infinite"),
        (harmonic_voice(4) * 100, 24_000, "floats in [-1, 1]"),
        (np.ones(96_000, np.int64), 24_000, "int64; floats"),
        (np.zeros(0, np.float32), 24_000, "0.0 s long; 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_recording_outside_a_limit_is_refused_with_the_limit(
    samples: NDArray[np.float32], rate: int, message: str
) -> None:
    with pytest.raises(VoicePromptError) as caught:
        check_recording(samples, rate)
    assert message in str(caught.value)


def test_one_channel_may_have_two_dimensions() -> None:
    assert check_recording(harmonic_voice(4)[:, None], 24_000).shape == (96_000,)
