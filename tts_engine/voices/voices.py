"""The voices of one engine: a fixed set, and the base class of ``EnrollableVoices``."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequest, UnknownVoice

MULTIPLE_LANGUAGES = "mul"  # ISO 639-2 code, valid in BCP 47


@dataclass(frozen=True, slots=True)
class Voice:
    """A loaded voice. language: BCP 47; text without a language of its own is read in it."""

    id: str
    language: str
    description: str
    further_languages: tuple[str, ...] = ()  # that it speaks too, with an accent


class Voices:
    """The voices of one engine, the default first. Methods may be called from any thread.

    This base class is a fixed set that clones no voice; see ``EnrollableVoices`` for one that does.
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
        """The voice with that id, or the default for None. Raises UnknownVoice."""
        if voice_id is None:
            return self.default
        if voice_id not in self._voices:
            raise UnknownVoice(f"no voice {voice_id!r}; loaded: {', '.join(self._voices) or 'none'}")
        return self._voices[voice_id]

    def is_unlisted(self, name: str) -> bool:
        """Whether a name that the iterator does not give is a voice too, such as a mixture of voices."""
        return False

    def id_beside(self, voice_id: str, name: str) -> str | None:
        """The id of the voice called ``name`` in the bundle of another voice, None if it has none."""
        return name if name in self else None

    def follows_instructions(self, voice_id: str) -> bool:
        """Whether a voice that these contain speaks as ``Delivery.instruction`` says."""
        return False

    def fits_model(self, voice_id: str) -> bool:
        """Whether a voice that these contain was made for the model of this engine."""
        return True

    @property
    def temporary_ids(self) -> frozenset[str]:
        """The ids of voices that are kept in memory until they are removed."""
        return frozenset()

    def speaker_profile(self, voice_id: str) -> object:
        """What the backend needs to know about a voice, None if nothing. May read a file.

        Raises UnknownVoice; BadRequest or BundleError if the stored voice cannot be used.
        """
        return None

    @property
    def default(self) -> Voice:
        """The first voice. Raises UnknownVoice if there is none."""
        for voice in self:
            return voice
        raise UnknownVoice("no voice is loaded; enrol one")

    def enroll(self, samples: NDArray[np.float32], sample_rate: int, transcript: str = "") -> Voice:
        """Clone a voice from a recording and keep it in memory. Enrolling the same recording is idempotent.

        samples: (N,) mono, in [-1, 1]. sample_rate: Hz. transcript: the words spoken; improves similarity.
        Takes seconds: call it from an event loop through ``asyncio.to_thread``. Raises BadRequest if the
        recording cannot be used or the backend cannot clone voices.
        """
        raise self._no_cloning_error()

    def remove(self, voice_id: str) -> None:
        """Remove an enrolled voice; open streams keep it to their end. Raises UnknownVoice."""
        raise self._no_cloning_error()

    def tokenize_speech(self, samples: NDArray[np.float32], sample_rate: int) -> tuple[int, ...]:
        """The speech ids of a recording, for ``Engine.convert``; limits and errors as ``enroll``."""
        raise self._no_cloning_error()

    def _no_cloning_error(self) -> BadRequest:
        return BadRequest(f"the loaded model speaks with {', '.join(self._voices)} only and clones no voice")
