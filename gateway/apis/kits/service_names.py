"""The names of voices that clients of other services send."""

import re
from dataclasses import dataclass
from typing import Protocol

from ....tts_engine.errors import UnknownVoice
from ...access.access_control import Grant
from ..shell.speech_server import ModelNames


class VoiceResolver(Protocol):
    """Finds the voices that a key may speak with."""

    def resolve(self, name: str | None, grant: Grant, default: str | None = None) -> str:
        """Return the engine's voice id for a name, the default voice for None; raise UnknownVoice."""


@dataclass(frozen=True, slots=True)
class ServiceNames:
    """The names of voices of the service whose clients a dialect serves.

    The default voice of the model speaks for the service's own voices, unless the settings name another in
    ``voices.aliases``: existing programs then run unchanged.
    """

    voices: re.Pattern[str]

    def resolve(
        self, voices: VoiceResolver, models: ModelNames, voice: str, model: str | None, grant: Grant
    ) -> str:
        """Return the engine's voice id; raises UnknownVoice."""
        return self.resolve_voice(voices, voice, grant, models.default_voice(model))

    def resolve_voice(self, voices: VoiceResolver, voice: str, grant: Grant, default: str | None) -> str:
        """Return the engine's voice id, default for the service's own; raises UnknownVoice."""
        try:
            return voices.resolve(voice, grant, default)
        except UnknownVoice:
            if not self.voices.fullmatch(voice):
                raise
            return voices.resolve(None, grant, default)
