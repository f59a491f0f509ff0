"""What DashScope's two doors, the socket and HTTP, have in common: models, voices, orders and refusals.

Every refusal of ours becomes one of DashScope's codes here, with the status that it has over HTTP.
"""

import re
import secrets
from dataclasses import dataclass
from typing import Final, Protocol, cast

from ...adapters.dashscope import ErrorCode
from ...adapters.dashscope_parameters import MOST_SEED, Invalid, TaskParameters
from ...adapters.encoders import AudioFormat, Codec
from ...adapters.ssml import BadSsml
from ...tts_engine.backend import Delivery
from ...tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ..access.access import Grant
from ..access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing, UrlRefused
from .speech import SpeechOrder

_MODELS: Final = re.compile(r"(cosyvoice|vivavoce)([.-].*)?", re.ASCII | re.IGNORECASE)
_PRESETS: Final = re.compile(r"loo?ng[a-z]+(_v\d)?", re.ASCII)  # longanyang, longxiaochun_v2, loongstella


class ModelNotFound(BadRequest):
    """No model of that name is here."""


class Voices(Protocol):
    """The voices that a key may speak with, by name."""

    def resolve(self, name: str | None, grant: Grant) -> str:
        """The engine's voice for a name, the default for None; raises UnknownVoice."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in DashScope's words. status: over HTTP. retry_after_s: when it is a matter of time."""

    code: ErrorCode
    message: str
    status: int
    retry_after_s: float | None = None


def refusal_of(error: Exception) -> Refusal:
    """DashScope's words for an error of ours; an error that is none of ours is told nothing about."""
    match error:
        case KeyRefused():
            return Refusal(ErrorCode.INVALID_API_KEY, "Invalid API-key provided.", 401)
        case ScopeMissing() | OriginRefused():
            return Refusal(ErrorCode.ACCESS_DENIED, str(error), 403)
        case Overloaded(reason="shutting_down", retry_after_s=wait_s):
            return Refusal(ErrorCode.THROTTLED, str(error), 503, wait_s)
        case RateLimited(retry_after_s=wait_s) | Overloaded(retry_after_s=wait_s):
            sentence = f"Requests rate limit exceeded, please try again later. ({error})"
            return Refusal(ErrorCode.THROTTLED, sentence, 429, wait_s)
        case ModelNotFound():
            return Refusal(ErrorCode.MODEL_NOT_FOUND, str(error), 404)
        case UnknownVoice():
            return Refusal(ErrorCode.INVALID_PARAMETER, f"[tts:]Engine return error code: 418 ({error})", 400)
        case UrlRefused():
            return Refusal(ErrorCode.NOT_FETCHED, str(error), 400)
        case BadRequest() | Invalid() | BadSsml():
            return Refusal(ErrorCode.INVALID_PARAMETER, str(error), 400)
        case VivavoceError():
            return Refusal(ErrorCode.INTERNAL, str(error), 500)
        case _:
            return Refusal(ErrorCode.INTERNAL, "the task failed inside the server", 500)


def check_model(model: str) -> None:
    """Raise ModelNotFound for what is no CosyVoice: an ASR model, say, sent to the wrong server."""
    if not _MODELS.fullmatch(model):
        raise ModelNotFound(f"Model not exist: {model!r}; any cosyvoice-* is the voice loaded here")


def resolve_voice(voices: Voices, name: str, grant: Grant) -> str:
    """The engine's voice for DashScope's name: a cloned one, an alias, or, for a preset, the default.

    Presets of DashScope ("longanyang") are voices of Alibaba's; a client that names one is answered by the
    voice of this house instead of an error.
    """
    try:
        return voices.resolve(name, grant)
    except UnknownVoice:
        if not _PRESETS.fullmatch(name):
            raise
        return voices.resolve(None, grant)


def order_of(parameters: TaskParameters, voice: str) -> SpeechOrder:
    """How to speak; raises BadRequest."""
    return SpeechOrder(
        voice=voice,
        audio=AudioFormat(cast(Codec, parameters.codec), parameters.sample_rate, parameters.bit_rate),
        speed=parameters.rate,
        pitch=parameters.pitch,
        volume=parameters.volume,
        seed=parameters.seed or secrets.randbelow(MOST_SEED) + 1,
        delivery=Delivery(instruction=parameters.instruction, language=parameters.language or None),
    )
