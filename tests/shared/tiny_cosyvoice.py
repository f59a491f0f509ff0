"""A policy and a recording for tests of CosyVoice on small random weights."""

import numpy as np

from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy

# Random weights would end a sentence at random, so every text id gets exactly two speech ids; no pause.
BRIEF = CosyVoicePolicy(length=SpeechLengthRule(2, 2), pause_share=0.0)


def recording(pitch_hz: float = 200.0, seconds: float = 3.2) -> np.ndarray:
    """A frequency-modulated tone at 16 kHz."""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    return (0.3 * np.sin(2 * np.pi * pitch_hz * time_s * (1 + 0.2 * np.sin(7 * time_s)))).astype(np.float32)
