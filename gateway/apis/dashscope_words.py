"""What DashScope's two doors, the socket and HTTP, have in common: models, voices, orders and refusals.

Every refusal of ours becomes one of DashScope's codes here, with the status that it has over HTTP.
"""

import re
import secrets
from dataclasses import dataclass
from typing import Final, Protocol, cast

from ...adapters.dashscope import DashScopeErrorCode
from ...adapters.dashscope_parameters import MAX_SEED, InvalidDashScopeField, TaskParameters
from ...adapters.encoders import AudioFormat, Codec
from ...adapters.ssml import BadSsml
from ...tts_engine.backend import Delivery
from ...tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ..access.access import Grant
from ..access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing, UrlRefused
from .speech import SynthesisOptions

_MODEL_PATTERN: Final = re.compile(r"(cosyvoice|vivavoce)([.-].*)?", re.ASCII | re.IGNORECASE)
_PRESET_VOICE_PATTERN: Final = re.compile(
    r"loo?ng[a-z]+(_v\d)?", re.ASCII
)  # longanyang, longxiaochun_v2, loongstella


class DashScopeModelNotFound(BadRequest):
    """No model of that name is here."""


class VoiceResolver(Protocol):
    """The voices that a key may speak with, by name."""

    def resolve(self, name: str | None, grant: Grant) -> str:
        """The engine's voice for a name, the default for None; raises UnknownVoice."""


@dataclass(frozen=True, slots=True)
class DashScopeErrorResponse:
    """An error in DashScope's words. status: over HTTP. retry_after_s: when it is a matter of time."""

    code: DashScopeErrorCode
    message: str
    status: int
    retry_after_s: float | None = None


def to_dashscope_error(error: Exception) -> DashScopeErrorResponse:
    """DashScope's words for an error of ours; an error that is none of ours is told nothing about."""
    match error:
        case KeyRefused():
            return DashScopeErrorResponse(
                DashScopeErrorCode.INVALID_API_KEY, "Invalid API-key provided.", 401
            )
        case ScopeMissing() | OriginRefused():
            return DashScopeErrorResponse(DashScopeErrorCode.ACCESS_DENIED, str(error), 403)
        case Overloaded(reason="shutting_down", retry_after_s=wait_s):
            return DashScopeErrorResponse(DashScopeErrorCode.THROTTLED, str(error), 503, wait_s)
        case RateLimited(retry_after_s=wait_s) | Overloaded(retry_after_s=wait_s):
            message = f"Requests rate limit exceeded, please try again later. ({error})"
            return DashScopeErrorResponse(DashScopeErrorCode.THROTTLED, message, 429, wait_s)
        case DashScopeModelNotFound():
            return DashScopeErrorResponse(DashScopeErrorCode.MODEL_NOT_FOUND, str(error), 404)
        case UnknownVoice():
            return DashScopeErrorResponse(
                DashScopeErrorCode.INVALID_PARAMETER, f"[tts:]Engine return error code: 418 ({error})", 400
            )
        case UrlRefused():
            return DashScopeErrorResponse(DashScopeErrorCode.DOWNLOAD_FAILED, str(error), 400)
        case BadRequest() | InvalidDashScopeField() | BadSsml():
            return DashScopeErrorResponse(DashScopeErrorCode.INVALID_PARAMETER, str(error), 400)
        case VivavoceError():
            return DashScopeErrorResponse(DashScopeErrorCode.INTERNAL, str(error), 500)
        case _:
            return DashScopeErrorResponse(
                DashScopeErrorCode.INTERNAL, "the task failed inside the server", 500
            )


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
