"""Reads speakers_xtts.pth, the studio voices of a release, and voice files that upstream's API cached.

    {name: {"gpt_cond_latent": (1, 32, width), "speaker_embedding": (1, 512, 1)}}      speakers_xtts.pth
    {"gpt_conditioning_latents": ..., "speaker_embedding": ...}                        NAME.pth of the API

Values are found by key; upstream takes them by their order.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/xtts_manager.py, TTS/tts/models/base_tts.py.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from ...checkpoint.weight_files import WeightFileError, read_pickled_data
from ..config import CONDITIONING_LATENTS, SPEAKER_EMBEDDING_WIDTH, XttsConfig
from ..voice import XttsVoice

VOICES_FILE = "speakers_xtts.pth"
_LATENT_KEYS = ("gpt_cond_latent", "gpt_conditioning_latents")
_SPEAKER_KEY = "speaker_embedding"


def read_voices(path: Path, config: XttsConfig, device: str = "cpu") -> dict[str, XttsVoice]:
    """The voices of speakers_xtts.pth by name; ``device`` "meta" reads shapes only.

    Raises WeightFileError.
    """
    held = read_pickled_data(path, device)
    if not isinstance(held, Mapping):
        raise WeightFileError(f"{path.name}: no table of voices; download it again")
    return {str(name): _voice(path, str(name), entry, config) for name, entry in held.items()}


def _voice(path: Path, name: str, entry: object, config: XttsConfig) -> XttsVoice:
    held = entry if isinstance(entry, Mapping) else {}
    latents = next((held[key] for key in _LATENT_KEYS if key in held), None)
    speaker = held.get(_SPEAKER_KEY)
    shape = (1, CONDITIONING_LATENTS, config.gpt.hidden)
    if not isinstance(latents, Tensor) or not isinstance(speaker, Tensor):
        raise WeightFileError(f"{path.name}: voice {name!r} has no {_LATENT_KEYS[0]} and {_SPEAKER_KEY}")
    if tuple(latents.shape) != shape or speaker.numel() != SPEAKER_EMBEDDING_WIDTH:
        raise WeightFileError(
            f"{path.name}: voice {name!r} is {list(latents.shape)} and {list(speaker.shape)}, expected "
            f"{list(shape)} and {SPEAKER_EMBEDDING_WIDTH} numbers; is it of the same release as config.json?"
        )
    return XttsVoice(latents[0].float(), speaker.reshape(-1).float())
