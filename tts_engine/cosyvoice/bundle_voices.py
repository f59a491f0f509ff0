"""The voices of a CosyVoice bundle: its named speakers, voices enrolled in memory, and voices on file.

If an id exists more than once, the bundle's speaker is used first, then the enrolled voice, then the stored
one.
"""

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ...models.cosyvoice.front_end.voice_prompt import VoicePrompt, VoicePromptError
from ..errors import BadRequest, UnknownVoice
from ..reading.multilingual.clause_normalizer import is_supported_language
from ..voices.enrollable import EnrollableVoices
from ..voices.store import StoredVoice, VoiceStore
from ..voices.voices import MULTIPLE_LANGUAGES, Voice

Samples = NDArray[np.float32]
_MAX_ENROLLED = 256  # in memory, 490 kB each at most; a store holds more


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerProfile:
    """What the networks are told about a speaker.

    content_hash: equal for equal content. embedding: (192,) float32. prompt: the recording's; None for a
    speaker of whom only the embedding is known.
    """

    content_hash: str
    embedding: Samples
    prompt: VoicePrompt | None


class BundleVoices(EnrollableVoices):
    """The voices of one bundle.

    speakers: by name, the prompt of a clone or an embedding, (192,) float32. load_encoder: called with the
    first recording. languages: ISO 639-1 codes of the training data, for descriptions. store: voices on file.
    digest_encoders: makes ``encoder_digest``, when it is first asked for.
    """

    def __init__(
        self,
        speakers: Mapping[str, VoicePrompt | Samples],
        load_encoder: Callable[[], VoiceEncoder],
        languages: tuple[str, ...],
        store: VoiceStore | None = None,
        digest_encoders: Callable[[], str] = str,
    ) -> None:
        description = f"speaks {', '.join(languages)}"
        super().__init__(tuple(Voice(name, MULTIPLE_LANGUAGES, description) for name in speakers))
        self._description = description
        self._profiles = {name: _profile_of_speaker(speaker) for name, speaker in speakers.items()}
        self.store = store
        self._enrolled: frozenset[str] = frozenset()
        self._digest_encoders = functools.cache(digest_encoders)
        self._load_encoder = load_encoder
        self._encoder: VoiceEncoder | None = None
        self._encoder_lock = threading.Lock()  # an encoder processes one recording at a time
        # Writers replace the dictionaries under this lock; readers need none.
        self._change_lock = threading.Lock()

    def __contains__(self, voice_id: object) -> bool:
        return isinstance(voice_id, str) and self._find_voice(voice_id) is not None

    def get(self, voice_id: str | None) -> Voice:
        """The voice with that id, or the default for None. Raises UnknownVoice."""
        if voice_id is None:
            return self.default
        return self._find_voice(voice_id) or super().get(voice_id)

    @property
    def default(self) -> Voice:
        """The bundle's first speaker, else the oldest stored voice without an owner. Raises UnknownVoice."""
        if not self._voices and self.store is not None:
            for stored in self.store.list([""], version=self.store.version, max_count=1):
                return _voice_from_store(stored)
        return super().default

    def speaker_profile(self, voice_id: str) -> SpeakerProfile:
        """The profile of a voice, which may be on file. Raises UnknownVoice, BadRequest, BundleError."""
        if voice_id in self._profiles:
            return self._profiles[voice_id]
        if self.store is None:
            raise UnknownVoice(f"no voice {voice_id!r}; it was removed")
        return _profile_from_prompt(self.store.get(voice_id))

    @property
    def encoder_digest(self) -> str:
        """Digest of the encoders' files; read at the first use."""
        return self._digest_encoders()

    def encode_prompt(self, samples: Samples, sample_rate: int, transcript: str = "") -> VoicePrompt:
        """Encode a recording, one at a time. Raises BadRequest if it cannot be used."""
        with _prompt_faults_as_bad_request(), self._encoder_lock:
            return self._loaded_encoder().enroll(samples, sample_rate, transcript)

    def register_prompt(self, prompt: VoicePrompt) -> Voice:
        """Add a voice in memory; its id is the prompt's. Raises BadRequest beyond 256 voices."""
        voice = Voice(prompt.id, MULTIPLE_LANGUAGES, f"enrolled; {self._description}")
        with self._change_lock:
            if voice.id not in self._voices and len(self._enrolled) >= _MAX_ENROLLED:
                raise BadRequest(f"{_MAX_ENROLLED} voices are enrolled, and no more may be; remove some")
            self._enrolled = self._enrolled | {voice.id}
            self._profiles = {**self._profiles, voice.id: _profile_from_prompt(prompt)}
            self._voices = {**self._voices, voice.id: voice}
        return voice

    def remove(self, voice_id: str) -> None:
        """Remove a voice enrolled in memory; open streams keep it to their end. Raises UnknownVoice."""
        with self._change_lock:
            if voice_id not in self._enrolled:
                raise UnknownVoice(f"no voice {voice_id!r} was enrolled; enrolled: {len(self._enrolled)}")
            self._enrolled = self._enrolled - {voice_id}
            self._profiles = {name: profile for name, profile in self._profiles.items() if name != voice_id}
            self._voices = {name: voice for name, voice in self._voices.items() if name != voice_id}

    def tokenize_speech(self, samples: Samples, sample_rate: int) -> tuple[int, ...]:
        """The speech ids of a recording. Raises BadRequest if it cannot be used."""
        with _prompt_faults_as_bad_request(), self._encoder_lock:
            return tuple(self._loaded_encoder().tokenize_speech(samples, sample_rate).tolist())

    def close(self) -> None:
        """Close the store."""
        if self.store is not None:
            self.store.close()

    def _find_voice(self, voice_id: str) -> Voice | None:
        if voice_id in self._voices:
            return self._voices[voice_id]
        stored = self.store.find(voice_id) if self.store else None
        return _voice_from_store(stored) if stored else None

    def _loaded_encoder(self) -> VoiceEncoder:
        """The encoder, loaded on first use: it takes 1 GB, which a server without enrolment saves."""
        if self._encoder is None:
            self._encoder = self._load_encoder()
        return self._encoder


def _voice_from_store(stored: StoredVoice) -> Voice:
    """The voice in its enrolled language if text can be read in that, else without one language."""
    language = stored.language if is_supported_language(stored.language) else MULTIPLE_LANGUAGES
    return Voice(stored.id, language, stored.name)


def _profile_of_speaker(speaker: VoicePrompt | Samples) -> SpeakerProfile:
    if isinstance(speaker, VoicePrompt):
        return _profile_from_prompt(speaker)
    return SpeakerProfile(hashlib.sha256(speaker.tobytes()).hexdigest()[:32], speaker, None)


def _profile_from_prompt(prompt: VoicePrompt) -> SpeakerProfile:
    return SpeakerProfile(prompt.id, prompt.embedding, prompt)


@contextmanager
def _prompt_faults_as_bad_request() -> Iterator[None]:
    try:
        yield
    except VoicePromptError as fault:
        raise BadRequest(str(fault)) from fault
