"""Inworld's names and fields in terms of the engine."""

import re
from typing import Final

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.stream_request import Delivery
from ...shell.model_names import ServiceNames
from ...shell.speech import SynthesisOptions
from .models import InworldVoiceOptions

INWORLD_NAMES: Final = ServiceNames(
    voices=re.compile(r"[A-Z][A-Za-z]*", re.ASCII),  # capitalised first names
)


def make_inworld_options(request: InworldVoiceOptions, voice: str, audio: AudioFormat) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    return SynthesisOptions(
        voice=voice,
        audio=audio,
        speed=request.audio_config.speaking_rate,
        delivery=Delivery(language=request.language),
    )
