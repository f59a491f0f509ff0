"""The voices of a bundle that clones: its named speakers, voices enrolled in memory, and voices on file.

If an id exists more than once, the bundle's speaker is used first, then the enrolled voice, then the stored
one.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequest, UnknownVoice
from .packed_prompt import StorablePrompt
from .recording import Recording
from .store import StoredVoice, VoiceStore
from .voices import MULTIPLE_LANGUAGES, Voice, Voices

_MAX_ENROLLED = 256  # in memory, 490 kB each at most; a store holds more


class EnrollableVoices(Voices, ABC):
    """Voices to which recordings can be added. Methods may be called from any thread.

    speakers: the profiles of the bundle's speakers by name. languages: codes of the training data, for
    descriptions.

    Attributes:
        store: the voices on file, which are found by ``get`` and may be changed there; None without a folder.
        model_version: of the prompts made here, see ``StorablePrompt``.
    """

    def __init__(
        self,
        speakers: Mapping[str, object],
        languages: Sequence[str],
        model_version: int,
        store: VoiceStore | None = None,
    ) -> None:
        self.model_version = model_version
        self._description = f"speaks {', '.join(languages)}"
        super().__init__(tuple(Voice(name, MULTIPLE_LANGUAGES, self._description) for name in speakers))
        self._profiles = dict(speakers)
        self.store = store
        self._enrolled: frozenset[str] = frozenset()
        # Writers replace the dictionaries under this lock; readers need none.
        self._change_lock = threading.Lock()

    @abstractmethod
    def encode_recordings(self, recordings: Sequence[Recording], transcript: str = "") -> StorablePrompt:
        """Encode the recordings of one voice, to be registered here or added to a store.

        Raises BadRequest if they cannot be used.
        """

    async def encode_on(
        self, thread: Executor, recordings: Sequence[Recording], transcript: str
    ) -> StorablePrompt:
        """As ``encode_recordings``, without blocking the event loop. Cancelling discards the result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, self.encode_recordings, recordings, transcript)

    @property
    @abstractmethod
    def encoder_digest(self) -> str:
        """Differs between bundles that encode a recording differently. May read files for a second."""

    @abstractmethod
    def read_prompt(self, content: bytes) -> StorablePrompt:
        """Read the content of a prompt of this model. Raises ValueError for anything else."""

    @abstractmethod
    def profile_of(self, prompt: StorablePrompt) -> object:
        """The speaker profile of a prompt."""

    @abstractmethod
    def reads_language(self, language: str) -> bool:
        """Whether text can be read in a language, a BCP 47 code or ""."""

    def __contains__(self, voice_id: object) -> bool:
        return isinstance(voice_id, str) and self._find_voice(voice_id) is not None

    def get(self, voice_id: str | None) -> Voice:
        """The voice with that id, or the default for None. Raises UnknownVoice."""
        if voice_id is None:
            return self.default
        return self._find_voice(voice_id) or super().get(voice_id)

    def fits_model(self, voice_id: str) -> bool:
        """As ``Voices.fits_model``; a store has the voices of several models."""
        if voice_id in self._voices or self.store is None:
            return True
        stored = self.store.find(voice_id)
        return stored is not None and stored.version == self.store.version

    @property
    def temporary_ids(self) -> frozenset[str]:
        """As ``Voices.temporary_ids``."""
        return self._enrolled

    @property
    def default(self) -> Voice:
        """The bundle's first speaker, else the oldest stored voice without an owner. Raises UnknownVoice."""
        if not self._voices and self.store is not None:
            for stored in self.store.list([""], version=self.store.version, max_count=1):
                return self._voice_from_store(stored)
        return super().default

    def speaker_profile(self, voice_id: str) -> object:
        """The profile of a voice, which may be on file. Raises UnknownVoice, BadRequest, BundleError."""
        if voice_id in self._profiles:
            return self._profiles[voice_id]
        if self.store is None:
            raise UnknownVoice(f"no voice {voice_id!r}; it was removed")
        return self.profile_of(self.store.get(voice_id))

    def encode_prompt(
        self, samples: NDArray[np.float32], sample_rate: int, transcript: str = ""
    ) -> StorablePrompt:
        """Encode one recording; limits and errors as ``enroll``."""
        return self.encode_recordings([Recording(samples, sample_rate)], transcript)

    def enroll(self, samples: NDArray[np.float32], sample_rate: int, transcript: str = "") -> Voice:
        """Encode a recording and register its prompt."""
        return self.register_prompt(self.encode_prompt(samples, sample_rate, transcript))

    def register_prompt(self, prompt: StorablePrompt) -> Voice:
        """Add a voice, kept in memory until it is removed; its id is the prompt's.

        Registering a prompt is idempotent. Raises BadRequest beyond 256 voices.
        """
        return self._register(prompt.id, self.profile_of(prompt))

    def remove(self, voice_id: str) -> None:
        """Remove a voice enrolled in memory; open streams keep it to their end. Raises UnknownVoice."""
        with self._change_lock:
            if voice_id not in self._enrolled:
                raise UnknownVoice(f"no voice {voice_id!r} was enrolled; enrolled: {len(self._enrolled)}")
            self._enrolled = self._enrolled - {voice_id}
            self._profiles = {name: profile for name, profile in self._profiles.items() if name != voice_id}
            self._voices = {name: voice for name, voice in self._voices.items() if name != voice_id}

    def close(self) -> None:
        """Close the store."""
        if self.store is not None:
            self.store.close()

    def _register(self, voice_id: str, profile: object) -> Voice:
        voice = Voice(voice_id, MULTIPLE_LANGUAGES, f"enrolled; {self._description}")
        with self._change_lock:
            if voice_id not in self._voices and len(self._enrolled) >= _MAX_ENROLLED:
                raise BadRequest(f"{_MAX_ENROLLED} voices are enrolled, and no more may be; remove some")
            self._enrolled = self._enrolled | {voice_id}
            self._profiles = {**self._profiles, voice_id: profile}
            self._voices = {**self._voices, voice_id: voice}
        return voice

    def _find_voice(self, voice_id: str) -> Voice | None:
        if voice_id in self._voices:
            return self._voices[voice_id]
        stored = self.store.find(voice_id) if self.store else None
        return self._voice_from_store(stored) if stored else None

    def _voice_from_store(self, stored: StoredVoice) -> Voice:
        """The voice in its enrolled language if text can be read in that, else without one language."""
        language = stored.language if self.reads_language(stored.language) else MULTIPLE_LANGUAGES
        return Voice(stored.id, language, stored.name)
