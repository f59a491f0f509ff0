"""Prompts of voices for tests of the voice store."""

import numpy as np

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.voices.store import VoiceStore


def prompt(seed: int = 0, version: CosyVoiceVersion = CosyVoiceVersion.V2, chunks: int = 1) -> VoicePrompt:
    random = np.random.default_rng(seed)
    return VoicePrompt(
        version,
        f"voice {seed} speaks",
        random.integers(0, 6561, 25 * chunks, dtype=np.int32),
        random.standard_normal((80, 50 * chunks), dtype=np.float32),
        random.standard_normal(192, dtype=np.float32),
    )


def contents(store: VoiceStore) -> set[str]:
    return {path.name for path in (store.folder / "contents").iterdir()}
