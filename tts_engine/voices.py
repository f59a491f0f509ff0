"""The voices that an engine speaks with."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import BadRequest, UnknownVoice


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice that is loaded. language: BCP 47."""

    id: str
    language: str
    description: str


class Voices:
    """The voices of one engine, the default first."""

    def __init__(self, voices: tuple[Voice, ...]) -> None:
        self._voices = {voice.id: voice for voice in voices}
        self.default = voices[0]

    def __iter__(self) -> Iterator[Voice]:
        return iter(self._voices.values())

    def __len__(self) -> int:
        return len(self._voices)

    def __contains__(self, voice_id: object) -> bool:
        return voice_id in self._voices

    def get(self, voice_id: str | None) -> Voice:
        """The voice of that id, or the default for None; raises UnknownVoice."""
        if voice_id is None:
            return self.default
        if voice_id not in self._voices:
            raise UnknownVoice(f"no voice {voice_id!r}; loaded: {', '.join(self._voices)}")
        return self._voices[voice_id]

    def enroll(self, samples: NDArray[np.float32], sample_rate: int, transcript: str) -> Voice:
        """Make a voice from a recording; raises BadRequest where the loaded model cannot."""
        raise BadRequest(f"the loaded model speaks with {', '.join(self._voices)} only and clones no voice")
