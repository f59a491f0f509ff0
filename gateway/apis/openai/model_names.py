"""The names that ``model`` may have. A server has one voice model, so a name chooses at most a voice.

    vivavoce, tts-1, gpt-4o-mini-tts-2025-12-15    known: the loaded model
    an alias of the settings                       the loaded model, with the alias's voice if it has one
    any other name                                 the same, unless the settings are strict

LocalAI's clients name a voice in ``model`` and send no ``voice``, or the same name again; ``voice_resolver``
looks for such a voice.

Source: mudler/LocalAI, docs of text-to-audio; wyoming_openai at 099e57cc (compatibility.py).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .errors import OpenAIModelNotFound
from .models import OPENAI_MODELS, OWN_MODEL

# OpenAI dates its models: gpt-4o-mini-tts-2025-12-15.
_KNOWN_MODELS: Final = re.compile(r"(vivavoce|cosyvoice|gpt-4o-mini-tts)([.-].*)?|tts-1(-hd)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """Settings of the names."""

    aliases: Mapping[str, str] = field(default_factory=dict)  # "vivavoce" or "vivavoce/VOICE" by further name
    is_strict: bool = False  # whether a name that is neither known nor an alias is refused

    @property
    def voices(self) -> dict[str, str]:
        """The id of a voice for every alias that has one."""
        voices = {name: target.partition("/")[2] for name, target in self.aliases.items()}
        return {name: voice for name, voice in voices.items() if voice}


class ModelNames:
    """The names of one server's model."""

    def __init__(self, policy: ModelPolicy | None = None) -> None:
        self._policy = policy or ModelPolicy()
        self.voices = self._policy.voices

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that a list shows."""
        return iter(dict.fromkeys((OWN_MODEL, *OPENAI_MODELS, *self._policy.aliases)))

    def check(self, name: str | None) -> None:
        """Raise OpenAIModelNotFound for a name that the settings do not allow."""
        if self._policy.is_strict and name is not None and not self.is_listed(name):
            raise OpenAIModelNotFound(
                f"The model '{name}' does not exist; there are {', '.join(self)}, which are one here"
            )

    def is_listed(self, name: str) -> bool:
        """Whether the name is an alias, or of a model that OpenAI or this server has."""
        return name in self._policy.aliases or _KNOWN_MODELS.fullmatch(name) is not None
