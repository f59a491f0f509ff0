"""What DashScope's two doors, the socket and HTTP, have in common: models, voices, orders and refusals.

Every refusal of ours becomes one of DashScope's codes here, with the status that it has over HTTP.
"""

import re
import secrets
from typing import Final, Protocol, cast

from ....adapters.audio.encoders import AudioFormat, Codec
from ....adapters.dashscope.parameters import MAX_SEED, TaskParameters
from ....tts_engine.backends.base import Delivery
from ....tts_engine.errors import UnknownVoice
from ...access.access_control import Grant
from ..speech import SynthesisOptions
from .errors import DashScopeModelNotFound

_MODEL_PATTERN: Final = re.compile(r"(cosyvoice|vivavoce)([.-].*)?", re.ASCII | re.IGNORECASE)
_PRESET_VOICE_PATTERN: Final = re.compile(
    r"loo?ng[a-z]+(_v\d)?", re.ASCII
)  # longanyang, longxiaochun_v2, loongstella


class VoiceResolver(Protocol):
    """The voices that a key may speak with, by name."""

    def resolve(self, name: str | None, grant: Grant) -> str:
        """The engine's voice for a name, the default for None; raises UnknownVoice."""


def check_dashscope_model(model: str) -> None:
    """Raise ModelNotFound for what is no CosyVoice: an ASR model, say, sent to the wrong server."""
    if not _MODEL_PATTERN.fullmatch(model):
        raise DashScopeModelNotFound(f"Model not exist: {model!r}; any cosyvoice-* is the voice loaded here")


def resolve_dashscope_voice(voices: VoiceResolver, name: str, grant: Grant) -> str:
    """The engine's voice for DashScope's name: a cloned one, an alias, or, for a preset, the default.

    Presets of DashScope ("longanyang") are voices of Alibaba's; a client that names one is answered by the
    voice of this house instead of an error.
    """
    try:
        return voices.resolve(name, grant)
    except UnknownVoice:
        if not _PRESET_VOICE_PATTERN.fullmatch(name):
            raise
        return voices.resolve(None, grant)


def make_synthesis_options(parameters: TaskParameters, voice: str) -> SynthesisOptions:
    """How to speak; raises BadRequest."""
    return SynthesisOptions(
        voice=voice,
        audio=AudioFormat(cast(Codec, parameters.codec), parameters.sample_rate, parameters.bit_rate),
        speed=parameters.rate,
        pitch=parameters.pitch,
        volume=parameters.volume,
        seed=parameters.seed or secrets.randbelow(MAX_SEED) + 1,
        delivery=Delivery(instruction=parameters.instruction, language=parameters.language or None),
    )
