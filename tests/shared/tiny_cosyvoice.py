"""What tests of CosyVoice behind the engine share: how it speaks in them, and a recording to clone."""

import numpy as np

from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy

# Random weights end a sentence at random: two speech ids for each text id, always, and no pause.
BRIEF = CosyVoicePolicy(length=SpeechLengthRule(2, 2), pause_share=0.0)


def recording(pitch_hz: float = 200.0, seconds: float = 3.2) -> np.ndarray:
    """A tone that wobbles, at 16 kHz."""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    return (0.3 * np.sin(2 * np.pi * pitch_hz * time_s * (1 + 0.2 * np.sin(7 * time_s)))).astype(np.float32)
