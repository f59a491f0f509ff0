"""Inworld's voices and fields in terms of the engine."""

import re
from typing import Final

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.errors import UnknownVoice
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ...shell.model_names import ModelNames
from ...shell.speech import SynthesisOptions
from .models import InworldVoiceOptions

_CATALOGUE_VOICE: Final = re.compile(r"[A-Z][A-Za-z]*", re.ASCII)
_CATALOGUE_MODEL: Final = re.compile(r"inworld-tts-.*", re.ASCII)


def resolve_inworld_voice(
    voices: VoiceRegistry, models: ModelNames, request: InworldVoiceOptions, grant: Grant
) -> str:
    """Return the engine's voice id; raises UnknownVoice, and UnknownModel if the settings are strict.

    Inworld's own voices are capitalised first names. The default voice of the model speaks for them, unless
    the settings name another in ``voice_aliases``: existing programs then run unchanged.
    """
    default = models.default_voice(request.model_id, _CATALOGUE_MODEL)
    try:
        return voices.resolve(request.voice_id, grant, default)
    except UnknownVoice:
        if not _CATALOGUE_VOICE.fullmatch(request.voice_id):
            raise
        return voices.resolve(None, grant, default)


def make_inworld_options(request: InworldVoiceOptions, voice: str, audio: AudioFormat) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    return SynthesisOptions(
        voice=voice,
        audio=audio,
        speed=request.audio_config.speaking_rate,
        delivery=Delivery(language=request.language),
    )
