"""Voices of OpenAI's requests: a named voice, or a temporary one made of the recording in ``ref_audio``."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from .....tts_engine.errors import UnknownVoice
from .....tts_engine.reading.pronunciation.entries import lexicon_of
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....access.keys import Scope
from ....access.url_guard import UrlGuard
from ....voice_registry import NewVoice, VoiceRegistry
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import ReferenceRecording
from ...shell.speech_server import ModelNames
from .speech_settings import OpenAISpeechSettings

# OpenAI dates its models: gpt-4o-mini-tts-2025-12-15. Other services take its names, too.
OPENAI_MODEL_NAMES: Final = re.compile(r"tts-1(-hd)?|gpt-4o-mini-tts([.-].*)?", re.ASCII)


class OpenAIVoiceResolver:
    """Resolves the voice of speech requests and of native-stream configurations."""

    def __init__(self, voices: VoiceRegistry, guard: UrlGuard, models: ModelNames | None = None) -> None:
        self.models = models or ModelNames()
        self._voices = voices
        self._guard = guard  # fetches ref_audio

    def resolve(self, settings: OpenAISpeechSettings, grant: Grant) -> str | None:
        """Return the engine's voice id, None if the request brings a recording that the key may use.

        Raises UnknownVoice, ScopeMissing, or BadRequest if the engine clones no voices.
        """
        if settings.ref_audio is None:
            return self._resolve_name(settings.voice, settings.model, grant)
        grant.require(Scope.ENROLL)
        self._voices.cloning_voices()
        return None

    def recording_of(self, settings: OpenAISpeechSettings) -> ReferenceRecording | None:
        """Return the recording of a request, None if it has none. Reading it raises UrlRefused."""
        if settings.ref_audio is None:
            return None
        new = NewVoice("of one request", settings.ref_text, provenance="ref_audio of a request")
        return ReferenceRecording(partial(self._guard.fetch, settings.ref_audio), new)

    @asynccontextmanager
    async def open_voice(self, settings: OpenAISpeechSettings, grant: Grant) -> AsyncIterator[str]:
        """Provide the engine's voice id; a voice made of a recording is removed when the block is left.

        Raises like ``resolve``, and UrlRefused or Overloaded.
        """
        named_voice_id = self.resolve(settings, grant)
        recording = self.recording_of(settings)
        if recording is None:
            assert named_voice_id is not None
            yield named_voice_id
            return
        async with self._voices.temporary(await recording.read(), recording.voice, grant) as voice_id:
            yield voice_id

    def _resolve_name(self, voice: str | None, model: str | None, grant: Grant) -> str:
        default = self._voice_of_model(model, grant)
        try:
            return self._voices.resolve(voice, grant, default)
        except UnknownVoice:
            if voice != model:
                raise
            return self._voices.resolve(None, grant, default)

    def _voice_of_model(self, model: str | None, grant: Grant) -> str | None:
        """Return the voice that a model's name stands for, None if it stands for none."""
        if model is None:
            return None
        if self.models.is_own(model) or OPENAI_MODEL_NAMES.fullmatch(model):
            return self.models.voices.get(model)
        try:
            return self._voices.resolve(model, grant)
        except UnknownVoice:
            return None


def make_synthesis_options(settings: OpenAISpeechSettings, voice_id: str | None) -> SynthesisOptions:
    """Map a request's settings to the engine's; raises BadRequest."""
    return SynthesisOptions(
        voice=voice_id,
        audio=settings.audio,
        speed=settings.speed,
        volume=settings.volume_multiplier,
        seed=settings.seed,
        delivery=Delivery(
            instruction=settings.instructions,
            language=settings.language or None,
            first_hop=settings.initial_codec_chunk_frames or None,
            liveliness=settings.liveliness,
            **settings.sampling,
        ),
        leading_silence_s=settings.leading_silence_ms / 1_000,
        trailing_silence_s=settings.trailing_silence_ms / 1_000,
        lexicon=lexicon_of(settings.pronunciations) if settings.pronunciations else None,
    )
