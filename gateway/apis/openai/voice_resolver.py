"""Voices of OpenAI's requests: a named voice, or a temporary one made of the recording in ``ref_audio``."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ....tts_engine.backends.base import Delivery
from ...access.access_control import Grant
from ...access.keys import Scope
from ...access.url_guard import UrlGuard
from ...voice_registry import NewVoice, VoiceRegistry
from ..speech import SynthesisOptions
from .errors import OpenAIModelNotFound
from .models import OPENAI_MODELS, OWN_MODEL, OpenAISpeechSettings

# OpenAI dates its models: gpt-4o-mini-tts-2025-12-15.
_KNOWN_MODELS: Final = re.compile(r"(vivavoce|cosyvoice|gpt-4o-mini-tts)([.-].*)?|tts-1(-hd)?", re.ASCII)


class OpenAIVoiceResolver:
    """Resolves the voice of speech requests and of native-stream configurations."""

    def __init__(self, voices: VoiceRegistry, guard: UrlGuard) -> None:
        self._voices = voices
        self._guard = guard  # fetches ref_audio

    def resolve(self, settings: OpenAISpeechSettings, grant: Grant) -> str | None:
        """Return the engine's voice id, None if the request brings a recording that the key may use.

        Raises OpenAIModelNotFound, UnknownVoice, ScopeMissing, or BadRequest if the engine clones no voices.
        """
        check_openai_model(settings.model)
        if settings.ref_audio is None:
            return self._voices.resolve(settings.voice, grant)
        grant.require(Scope.ENROLL)
        self._voices.check_cloning()
        return None

    @asynccontextmanager
    async def open_voice(self, settings: OpenAISpeechSettings, grant: Grant) -> AsyncIterator[str]:
        """Provide the engine's voice id; a voice made of a recording is removed when the block is left.

        Raises like ``resolve``, and UrlRefused or Overloaded.
        """
        named_voice_id = self.resolve(settings, grant)
        if named_voice_id is not None:
            yield named_voice_id
            return
        assert settings.ref_audio is not None
        recording = await self._guard.fetch(settings.ref_audio)
        new = NewVoice("of one request", settings.ref_text, provenance="ref_audio of a request")
        async with self._voices.temporary(recording, new, grant) as voice_id:
            yield voice_id


def make_synthesis_options(settings: OpenAISpeechSettings, voice_id: str | None) -> SynthesisOptions:
    """Map a request's settings to the engine's; raises BadRequest."""
    return SynthesisOptions(
        voice=voice_id,
        audio=settings.audio,
        speed=settings.speed,
        volume=settings.volume_multiplier,
        seed=settings.seed,
        delivery=Delivery(instruction=settings.instructions, language=settings.language or None),
    )


def check_openai_model(model: str | None) -> None:
    """Raise OpenAIModelNotFound for the name of another kind of model, like whisper-1."""
    if model is not None and not _KNOWN_MODELS.fullmatch(model):
        allowed = ", ".join((OWN_MODEL, *OPENAI_MODELS))
        raise OpenAIModelNotFound(
            f"The model '{model}' does not exist; there are {allowed}, which are one here"
        )
