"""The voices that an engine speaks with."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequest, UnknownVoice

MULTIPLE_LANGUAGES = "mul"  # BCP 47 for more than one language


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice that is loaded. language: BCP 47; of text that comes without one."""

    id: str
    language: str
    description: str


class Voices:
    """The voices of one engine, the default first. Safe to use from any thread.

    This class is a fixed set of them; a backend that clones voices has one of its own.
    """

    def __init__(self, voices: tuple[Voice, ...]) -> None:
        self._voices = {voice.id: voice for voice in voices}

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
            raise UnknownVoice(f"no voice {voice_id!r}; loaded: {', '.join(self._voices) or 'none'}")
        return self._voices[voice_id]

    def speaker_profile(self, voice_id: str) -> object:
        """What the backend has to know of a voice, if anything; blocks where that is on file.

        Raises UnknownVoice, and what is wrong with a file.
        """
        return None

    @property
    def default(self) -> Voice:
        """The first one; raises UnknownVoice where there is none."""
        for voice in self:
            return voice
        raise UnknownVoice("no voice is loaded; enrol one")

    def enroll(self, samples: NDArray[np.float32], sample_rate: int, transcript: str = "") -> Voice:
        """Make a voice of a recording; raises BadRequest where it, or the loaded model, cannot be used.

        samples: (N,) mono, in [-1, 1]. transcript: what is said in it. Takes seconds: an event loop calls it
        through ``asyncio.to_thread``.
        """
        raise self._no_cloning_error()

    def remove(self, voice_id: str) -> None:
        """Forget a voice that was enrolled; streams that speak with it go on. Raises UnknownVoice."""
        raise self._no_cloning_error()

    def tokenize_speech(self, samples: NDArray[np.float32], sample_rate: int) -> tuple[int, ...]:
        """What is said in a recording, in speech ids of the loaded model; limits and time as ``enroll``."""
        raise self._no_cloning_error()

    def _no_cloning_error(self) -> BadRequest:
        return BadRequest(f"the loaded model speaks with {', '.join(self._voices)} only and clones no voice")
