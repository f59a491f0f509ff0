"""DashScope's names and parameters in terms of the engine: which voice speaks, and how.

Shared by the WebSocket and the HTTP API.
"""

import re
import secrets
from typing import Final, Protocol

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.errors import UnknownVoice
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ...shell.model_names import ModelNames
from ...shell.speech import SynthesisOptions
from .models import check_dashscope_model
from .parameters import MAX_SEED, NEUTRAL_VOLUME, SpeechParameters

# Alibaba's preset voices: longanyang, longxiaochun_v2, loongstella.
_PRESET_VOICE_PATTERN: Final = re.compile(r"loo?ng[a-z]+(_v\d)?", re.ASCII | re.IGNORECASE)


class VoiceResolver(Protocol):
    """Finds the voices that a key may speak with."""

    def resolve(self, name: str | None, grant: Grant, default: str | None = None) -> str:
        """Return the engine's voice id for a name, the default voice for None; raise UnknownVoice."""


def resolve_dashscope_voice(voices: VoiceResolver, name: str, grant: Grant, default: str | None) -> str:
    """Return the engine's voice id for DashScope's name; raise UnknownVoice.

    The name is an enrolled voice, an alias or a preset of DashScope. Presets are Alibaba's own voices, so the
    default voice speaks for them: existing programs then run unchanged. default: that of the model, None is
    the server's.
    """
    try:
        return voices.resolve(name, grant, default)
    except UnknownVoice:
        if not _PRESET_VOICE_PATTERN.fullmatch(name):
            raise
        return voices.resolve(None, grant, default)


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
