"""The names that ``model`` and ``voice`` may have in the speech APIs. A model is a bundle's default voice.

    the name of a bundle   its default voice, and its voice of two with one name
    any other name         the loaded model: clients send the models of the services that they are made for

LocalAI's clients name a voice in ``model`` and send no ``voice``, or the same name again;
``openai.voice_resolver`` looks for such a voice.

Source: mudler/LocalAI, docs of text-to-audio; wyoming_openai at 099e57cc (compatibility.py).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

OWN_MODEL: Final = "vivavoce"
_OWN_MODELS: Final = re.compile(r"(vivavoce|cosyvoice)([.-].*)?", re.ASCII)


class ModelNames:
    """The names of one server's models.

    voices: the id of the default voice by bundle, which may change.
    """

    def __init__(self, bundles: Mapping[str, str] | None = None) -> None:
        self.voices = {} if bundles is None else bundles

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that are this server's own."""
        return iter(dict.fromkeys((OWN_MODEL, *self.voices)))

    def is_own(self, name: str) -> bool:
        """Whether the name is this server's: its own model or a bundle."""
        return name in self.voices or _OWN_MODELS.fullmatch(name) is not None

    def default_voice(self, name: str | None) -> str | None:
        """The id of the voice that a model's name stands for; None is the server's default."""
        return None if name is None else self.voices.get(name)
