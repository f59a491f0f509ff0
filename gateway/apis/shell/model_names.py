"""The names that ``model`` and ``voice`` may have in the speech APIs. A model is a bundle's default voice.

    the name of a bundle                           its default voice, and its voice of two with one name
    an alias of the settings                       the loaded model, with the alias's voice if it has one
    vivavoce, or a name of the dialect's service   the loaded model
    any other name                                 the same, unless the settings are strict

LocalAI's clients name a voice in ``model`` and send no ``voice``, or the same name again;
``openai.voice_resolver`` looks for such a voice.

Source: mudler/LocalAI, docs of text-to-audio; wyoming_openai at 099e57cc (compatibility.py).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from ....tts_engine.errors import BadRequest, UnknownVoice
from ...access.access_control import Grant

OWN_MODEL: Final = "vivavoce"
# OpenAI dates its models: gpt-4o-mini-tts-2025-12-15. Other services take its names, too.
OPENAI_MODEL_NAMES: Final = re.compile(r"tts-1(-hd)?|gpt-4o-mini-tts([.-].*)?", re.ASCII)
_OWN_MODELS: Final = re.compile(r"(vivavoce|cosyvoice)([.-].*)?", re.ASCII)


class UnknownModel(BadRequest):
    """The name is not that of a model."""


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """Settings of the names."""

    aliases: Mapping[str, str] = field(default_factory=dict)  # "vivavoce" or "vivavoce/VOICE" by further name
    is_strict: bool = False  # whether a name that is neither known nor an alias is refused
    bundles: Mapping[str, str] = field(default_factory=dict)  # id of the default voice by bundle; may change

    @property
    def voices(self) -> dict[str, str]:
        """The id of a voice for every bundle, and for every alias that has one."""
        voices = {name: target.partition("/")[2] for name, target in self.aliases.items()}
        return {**self.bundles, **{name: voice for name, voice in voices.items() if voice}}


class VoiceResolver(Protocol):
    """Finds the voices that a key may speak with."""

    def resolve(self, name: str | None, grant: Grant, default: str | None = None) -> str:
        """Return the engine's voice id for a name, the default voice for None; raise UnknownVoice."""


class ModelNames:
    """The names of one server's models."""

    def __init__(self, policy: ModelPolicy | None = None) -> None:
        self._policy = policy or ModelPolicy()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that are this server's own."""
        return iter(dict.fromkeys((OWN_MODEL, *self._policy.bundles, *self._policy.aliases)))

    @property
    def voices(self) -> dict[str, str]:
        """The id of a voice for every name that stands for one."""
        return self._policy.voices

    def is_own(self, name: str) -> bool:
        """Whether the name is this server's: its own model, a bundle or an alias."""
        return (
            name in self._policy.bundles
            or name in self._policy.aliases
            or _OWN_MODELS.fullmatch(name) is not None
        )

    def default_voice(self, name: str | None, dialect_names: re.Pattern[str]) -> str | None:
        """The id of the voice that a model's name stands for; None is the server's default.

        dialect_names: of the models of the dialect's service, for which the loaded model speaks. Raises
        UnknownModel for another name, if the settings are strict.
        """
        self.check(name, dialect_names)
        return None if name is None else self.voices.get(name)

    def check(self, name: str | None, dialect_names: re.Pattern[str]) -> None:
        """Raise UnknownModel for a name that the settings do not allow."""
        if not self._policy.is_strict or name is None or self.is_own(name):
            return
        if dialect_names.fullmatch(name) is None:
            raise UnknownModel(f"The model '{name}' does not exist; there are {', '.join(self)}")


@dataclass(frozen=True, slots=True)
class ServiceNames:
    """The names of voices and models of the service whose clients a dialect serves.

    The default voice of the model speaks for the service's own voices, unless the settings name another in
    ``voices.aliases``: existing programs then run unchanged.
    """

    voices: re.Pattern[str]
    models: re.Pattern[str]

    def resolve(
        self, voices: VoiceResolver, models: ModelNames, voice: str, model: str | None, grant: Grant
    ) -> str:
        """Return the engine's voice id; raises UnknownVoice, and UnknownModel if the settings are strict."""
        return self.resolve_voice(voices, voice, grant, models.default_voice(model, self.models))

    def resolve_voice(self, voices: VoiceResolver, voice: str, grant: Grant, default: str | None) -> str:
        """Return the engine's voice id, default for the service's own; raises UnknownVoice."""
        try:
            return voices.resolve(voice, grant, default)
        except UnknownVoice:
            if not self.voices.fullmatch(voice):
                raise
            return voices.resolve(None, grant, default)
