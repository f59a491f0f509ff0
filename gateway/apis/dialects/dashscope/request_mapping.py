"""DashScope's names and parameters in terms of the engine: which voice speaks, and how.

Shared by the WebSocket and the HTTP API.
"""

import re
import secrets
from typing import Final

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.stream_request import Delivery
from ...kits.service_names import ServiceNames
from ...shell.speech import SynthesisOptions
from ...shell.speech_server import ModelNames
from .models import check_dashscope_model
from .parameters import MAX_SEED, NEUTRAL_VOLUME, SpeechParameters

DASHSCOPE_NAMES: Final = ServiceNames(
    voices=re.compile(r"loo?ng[a-z]+(_v\d)?", re.ASCII | re.IGNORECASE),  # longanyang, longxiaochun_v2
)


def voice_of_dashscope_model(models: ModelNames, model: str) -> str | None:
    """The id of the default voice of a model's bundle, None for the loaded one.

    Raises DashScopeModelNotFound for a name that is neither this server's nor a CosyVoice.
    """
    if not models.is_own(model):
        check_dashscope_model(model)
    return models.voices.get(model)


def make_synthesis_options(parameters: SpeechParameters, voice: str) -> SynthesisOptions:
    """Return the options of an utterance; raise BadRequest if the encoder refuses the format."""
    return SynthesisOptions(
        voice=voice,
        audio=AudioFormat(parameters.format, parameters.sample_rate, parameters.bit_rate),
        speed=parameters.rate,
        pitch=parameters.pitch,
        volume=parameters.volume / NEUTRAL_VOLUME,
        seed=parameters.seed or secrets.randbelow(MAX_SEED) + 1,
        delivery=Delivery(instruction=parameters.instruction, language=parameters.language),
        finds_ssml=False,  # DashScope has a parameter for it
        lexicon=parameters.hot_fix.lexicon,
    )
