"""Cartesia's voices and fields in terms of the engine."""

import re
from typing import Final

from .....tts_engine.errors import UnknownVoice
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ...shell.model_names import ModelNames
from ...shell.speech import SynthesisOptions
from .models import CartesiaGenerationConfig, CartesiaSpeechRequest
from .output_format import CartesiaEncoding

_CATALOGUE_VOICE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_CATALOGUE_MODEL: Final = re.compile(r"sonic([.-].*)?", re.ASCII)
_NAMED_SPEEDS: Final = {"slow": 0.8, "normal": 1.0, "fast": 1.2}


def resolve_cartesia_voice(
    voices: VoiceRegistry, models: ModelNames, request: CartesiaSpeechRequest, grant: Grant
) -> str:
    """Return the engine's voice id; raises UnknownVoice, and UnknownModel if the settings are strict.

    Cartesia's own voices have UUIDs. The default voice of the model speaks for them, unless the settings name
    another in ``voice_aliases``: existing programs then run unchanged.
    """
    default = models.default_voice(request.model_id, _CATALOGUE_MODEL)
    try:
        return voices.resolve(request.voice_id, grant, default)
    except UnknownVoice:
        if not _CATALOGUE_VOICE.fullmatch(request.voice_id):
            raise
        return voices.resolve(None, grant, default)


def make_synthesis_options(
    request: CartesiaSpeechRequest, voice: str, encoding: CartesiaEncoding
) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    config = request.generation_config or CartesiaGenerationConfig()
    # A number is of the API's older form, -1 to 1, whose meaning was never defined.
    named_speed = _NAMED_SPEEDS.get(request.speed, 1.0) if isinstance(request.speed, str) else 1.0
    return SynthesisOptions(
        voice=voice,
        audio=encoding.audio,
        speed=config.speed * named_speed,
        volume=config.volume,
        delivery=Delivery(language=request.locale or request.language),
        lexicon_names=(request.pronunciation_dict_id,) if request.pronunciation_dict_id else (),
    )
