"""Cartesia's names and fields in terms of the engine."""

import re
from typing import Final

from .....tts_engine.stream_request import Delivery
from ...shell.model_names import ServiceNames
from ...shell.speech import SynthesisOptions
from .models import CartesiaGenerationConfig, CartesiaSpeechRequest
from .output_format import CartesiaEncoding

CARTESIA_NAMES: Final = ServiceNames(
    voices=re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE),
)
_NAMED_SPEEDS: Final = {"slow": 0.8, "normal": 1.0, "fast": 1.2}


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
