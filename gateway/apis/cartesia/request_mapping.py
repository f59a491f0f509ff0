"""Cartesia's voices and fields in terms of the engine."""

import re
from typing import Final

from ....tts_engine.backends.base import Delivery
from ....tts_engine.errors import UnknownVoice
from ...access.access_control import Grant
from ...voice_registry import VoiceRegistry
from ..speech import SynthesisOptions
from .models import CartesiaGenerationConfig, CartesiaSpeechRequest
from .output_format import CartesiaEncoding

_CATALOGUE_VOICE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_NAMED_SPEEDS: Final = {"slow": 0.8, "normal": 1.0, "fast": 1.2}


def resolve_cartesia_voice(voices: VoiceRegistry, voice_id: str, grant: Grant) -> str:
    """Return the engine's voice id; raises UnknownVoice.

    Cartesia's own voices have UUIDs. The server's default voice speaks for them, unless the settings name
    another in ``voice_aliases``: existing programs then run unchanged.
    """
    try:
        return voices.resolve(voice_id, grant)
    except UnknownVoice:
        if not _CATALOGUE_VOICE.fullmatch(voice_id):
            raise
        return voices.resolve(None, grant)


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
    )
