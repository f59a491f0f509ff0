"""ElevenLabs' voices and fields in terms of the engine."""

import re
from typing import Final

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.errors import UnknownVoice
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ...shell.model_names import ModelNames
from ...shell.speech import SynthesisOptions
from .models import ElevenLabsSpeechRequest, ElevenLabsTextMessage

_CATALOGUE_VOICE: Final = re.compile(r"[0-9A-Za-z]{20}", re.ASCII)
_CATALOGUE_MODEL: Final = re.compile(r"eleven_.*", re.ASCII)


def resolve_elevenlabs_voice(
    voices: VoiceRegistry, models: ModelNames, voice_id: str, model_id: str | None, grant: Grant
) -> str:
    """Return the engine's voice id; raises UnknownVoice, and UnknownModel if the settings are strict.

    ElevenLabs' own voices have ids of 20 letters and digits. The default voice of the model speaks for
    them, unless the settings name another in ``voice_aliases``: existing programs then run unchanged.
    """
    default = models.default_voice(model_id, _CATALOGUE_MODEL)
    try:
        return voices.resolve(voice_id, grant, default)
    except UnknownVoice:
        if not _CATALOGUE_VOICE.fullmatch(voice_id):
            raise
        return voices.resolve(None, grant, default)


def make_elevenlabs_options(
    voice: str,
    audio: AudioFormat,
    speech: ElevenLabsSpeechRequest | ElevenLabsTextMessage,
    language: str | None,
    seed: int | None,
) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    return SynthesisOptions(
        voice=voice,
        audio=audio,
        speed=speech.speed,
        seed=seed or 0,
        delivery=Delivery(language=language),
        lexicon_names=tuple(
            each.pronunciation_dictionary_id for each in speech.pronunciation_dictionary_locators or ()
        ),
    )
