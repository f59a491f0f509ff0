"""The voices of a CosyVoice bundle: how recordings and speakers become profiles."""

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...models.cosyvoice.config import CosyVoiceVersion
from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ...models.cosyvoice.front_end.voice_prompt import VoicePrompt, VoicePromptError
from ..errors import BadRequest
from ..reading.languages.registry import is_supported_language
from ..segmenter import SpokenWord
from ..voice_kit.spoken_words import estimate_seconds
from ..voices.enrollable import EnrollableVoices
from ..voices.packed_prompt import StorablePrompt
from ..voices.recording import Recording
from ..voices.store import VoiceStore

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerProfile:
    """What the networks are told about a speaker.

    content_hash: equal for equal content. embedding: (192,) float32. prompt: the recording's; None for a
    speaker of whom only the embedding is known. pace: of the recording, as of ``SpeakingPace``.
    """

    content_hash: str
    embedding: Samples
    prompt: VoicePrompt | None
    pace: float = 1.0


class BundleVoices(EnrollableVoices):
    """The voices of one bundle.

    speakers: by name, the prompt of a clone or an embedding, (192,) float32. load_encoder: called with the
    first recording. languages: ISO 639-1 codes of the training data, for descriptions. store: voices on file.
    digest_encoders: makes ``encoder_digest``, when it is first asked for. version: of the encoders.
    """

    def __init__(
        self,
        speakers: Mapping[str, VoicePrompt | Samples],
        load_encoder: Callable[[], VoiceEncoder],
        languages: tuple[str, ...],
        store: VoiceStore | None = None,
        digest_encoders: Callable[[], str] = str,
        version: CosyVoiceVersion = CosyVoiceVersion.V2,
    ) -> None:
        profiles = {name: _profile_of_speaker(speaker) for name, speaker in speakers.items()}
        super().__init__(profiles, languages, version.value, store)
        self._digest_encoders = functools.cache(digest_encoders)
        self._load_encoder = load_encoder
        self._encoder: VoiceEncoder | None = None
        self._encoder_lock = threading.Lock()  # an encoder processes one recording at a time

    @property
    def encoder_digest(self) -> str:
        """Digest of the encoders' files; read at the first use."""
        return self._digest_encoders()

    def follows_instructions(self, voice_id: str) -> bool:
        """As ``Voices.follows_instructions``."""
        return True

    def read_prompt(self, content: bytes) -> VoicePrompt:
        """Read the content of a saved prompt. Raises VoicePromptError."""
        return VoicePrompt.from_bytes(content)

    def encode_recordings(self, recordings: Sequence[Recording], transcript: str = "") -> VoicePrompt:
        """Encode the recording of a voice, one at a time. Raises BadRequest if it cannot be used."""
        recording = only_recording(recordings)
        with _prompt_faults_as_bad_request(), self._encoder_lock:
            return self._loaded_encoder().enroll(recording.samples, recording.sample_rate, transcript)

    def profile_of(self, prompt: StorablePrompt) -> SpeakerProfile:
        """The profile of a clone."""
        assert isinstance(prompt, VoicePrompt)
        return _profile_from_prompt(prompt)

    def reads_language(self, language: str) -> bool:
        """Whether there is a grammar for a language."""
        return is_supported_language(language)

    def tokenize_speech(self, samples: Samples, sample_rate: int) -> tuple[int, ...]:
        """The speech ids of a recording. Raises BadRequest if it cannot be used."""
        with _prompt_faults_as_bad_request(), self._encoder_lock:
            return tuple(self._loaded_encoder().tokenize_speech(samples, sample_rate).tolist())

    def _loaded_encoder(self) -> VoiceEncoder:
        """The encoder, loaded on first use: it takes 1 GB, which a server without enrolment saves."""
        if self._encoder is None:
            self._encoder = self._load_encoder()
        return self._encoder


def only_recording(recordings: Sequence[Recording]) -> Recording:
    """The recording of a voice, of which CosyVoice takes one. Raises BadRequest for several."""
    if len(recordings) != 1:
        raise BadRequest(f"{len(recordings)} recordings; CosyVoice makes a voice of one (XTTS of several)")
    return recordings[0]


def _profile_of_speaker(speaker: VoicePrompt | Samples) -> SpeakerProfile:
    if isinstance(speaker, VoicePrompt):
        return _profile_from_prompt(speaker)
    return SpeakerProfile(hashlib.sha256(speaker.tobytes()).hexdigest()[:32], speaker, None)


def _profile_from_prompt(prompt: VoicePrompt) -> SpeakerProfile:
    return SpeakerProfile(prompt.id, prompt.embedding, prompt, _pace_of_recording(prompt))


def _pace_of_recording(prompt: VoicePrompt) -> float:
    """Its length, of the usual length of its transcript; 1.0 without one."""
    usual_s = estimate_seconds(SpokenWord(word, "", 0, 0) for word in prompt.transcript.split())
    return prompt.duration_s / usual_s if usual_s else 1.0


@contextmanager
def _prompt_faults_as_bad_request() -> Iterator[None]:
    try:
        yield
    except VoicePromptError as fault:
        raise BadRequest(str(fault)) from fault
