"""ElevenLabs' names and fields in terms of the engine."""

import re
from typing import Final

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.stream_request import Delivery
from ...shell.model_names import ServiceNames
from ...shell.speech import SynthesisOptions
from .models import ElevenLabsSpeechRequest, ElevenLabsTextMessage

ELEVENLABS_NAMES: Final = ServiceNames(voices=re.compile(r"[0-9A-Za-z]{20}", re.ASCII))


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
