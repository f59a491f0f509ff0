"""Deepgram's models, which are voices, in terms of the engine."""

import re
from typing import Final

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.errors import UnknownVoice
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ...shell.model_names import ModelNames
from ...shell.speech import SynthesisOptions
from .models import DeepgramQuery

_CATALOGUE_VOICE: Final = re.compile(r"(aura(-2)?|flux)-[a-z]+-[a-z]{2}", re.ASCII)


def resolve_deepgram_voice(voices: VoiceRegistry, models: ModelNames, model: str, grant: Grant) -> str:
    """Return the engine's voice id, the default for ""; raises UnknownVoice.

    A model may also be a bundle, an alias of a model or the server's own, each of which is its default
    voice. The server's default voice speaks for Deepgram's own models, unless the settings name another in
    ``voices.aliases``: existing programs then run unchanged.
    """
    try:
        return voices.resolve(model, grant)
    except UnknownVoice:
        if models.is_own(model):
            return voices.resolve(None, grant, models.voices.get(model))
        if not _CATALOGUE_VOICE.fullmatch(model):
            raise
        return voices.resolve(None, grant)


def make_deepgram_options(query: DeepgramQuery, voice: str, audio: AudioFormat) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    return SynthesisOptions(voice=voice, audio=audio, speed=query.speed)
