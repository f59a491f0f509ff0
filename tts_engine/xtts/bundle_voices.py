"""The voices of an XTTS bundle: the studio voices of its file, and voices made of recordings."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...models.signal.recording_resampler import resample
from ...models.xtts.checkpoint.bundle import open_bundle
from ...models.xtts.checkpoint.voice_prompt import XttsVoicePrompt
from ...models.xtts.config import XTTS_INPUT_RATE
from ...models.xtts.networks import load_voice_encoder
from ...models.xtts.voice import VoiceConditioningConfig, XttsVoice, XttsVoiceEncoder
from ..errors import BadRequest
from ..voices.enrollable import EnrollableVoices
from ..voices.packed_prompt import StorablePrompt, model_name
from ..voices.recording import Recording
from ..voices.store import VoiceStore
from ..voices.voices import Voice

Samples = NDArray[np.float32]

MIN_RECORDING_S, MAX_RECORDING_S = 3.0, 30.0  # of all recordings of a voice; more is cut
_MIN_LEVEL = 10 ** (-50 / 20)  # root mean square of full scale; below it, a recording counts as silent


class XttsVoices(EnrollableVoices):
    """The voices of one bundle, with cloning.

    studio: by name. load_encoder: called for each voice that is made, so that the encoders take no memory
    meanwhile. languages: codes of the bundle. Their ``model_version`` is the number of the encoders' weights.
    """

    def __init__(
        self,
        studio: Mapping[str, XttsVoice],
        load_encoder: Callable[[], XttsVoiceEncoder],
        conditioning: VoiceConditioningConfig,
        languages: Sequence[str],
        folder: Path | None = None,
    ) -> None:
        """folder: of a ``VoiceStore``; None keeps enrolled voices in memory only. Raises BundleError."""
        version = load_encoder().version()
        store = None if folder is None else VoiceStore(folder, version, read_prompt=XttsVoicePrompt.load)
        super().__init__(studio, languages, version, store)
        self._load_encoder, self._conditioning = load_encoder, conditioning
        self._languages = frozenset(code.partition("-")[0] for code in languages)
        self._encoder_lock = threading.Lock()  # an encoder processes one voice at a time

    def encode_recordings(self, recordings: Sequence[Recording], transcript: str = "") -> XttsVoicePrompt:
        """Encode recordings of 3 s and more together. The transcript is kept, and does not change the voice.

        Raises BadRequest.
        """
        _check(recordings)
        inputs = [_at_input_rate(each) for each in recordings]
        with self._encoder_lock:
            encoder = self._load_encoder()
            try:
                voice = encoder.encode(inputs, self._conditioning)
            except ValueError as fault:
                raise BadRequest(str(fault)) from fault
        return XttsVoicePrompt(voice, encoder.version(), transcript.strip())

    @property
    def encoder_digest(self) -> str:
        """The number of the encoders' weights, and how they are used."""
        return f"{model_name(self.model_version)} {self._conditioning}"

    def read_prompt(self, content: bytes) -> XttsVoicePrompt:
        """Read the content of a saved prompt. Raises VoicePromptError."""
        return XttsVoicePrompt.from_bytes(content)

    def profile_of(self, prompt: StorablePrompt) -> XttsVoice:
        """The conditioning of a prompt."""
        assert isinstance(prompt, XttsVoicePrompt)
        return prompt.voice

    def reads_language(self, language: str) -> bool:
        """Whether the bundle speaks a language."""
        return language.partition("-")[0].lower() in self._languages

    def register(self, voice_id: str, prompt: XttsVoicePrompt) -> Voice:
        """Add a voice under a name of the operator's, as ``register_prompt``."""
        return self._register(voice_id, prompt.voice)

    def tokenize_speech(self, samples: Samples, sample_rate: int) -> tuple[int, ...]:
        """Not supported. Raises BadRequest."""
        raise BadRequest("XTTS converts no recordings to another voice; give text")


def _at_input_rate(recording: Recording) -> Samples:
    """Samples at 22,050 Hz, the rate of the encoders."""
    samples = recording.samples.astype(np.float32)
    if recording.sample_rate == XTTS_INPUT_RATE:
        return samples
    return resample(samples, recording.sample_rate, XTTS_INPUT_RATE)


def _check(recordings: Sequence[Recording]) -> None:
    total_s = sum(each.duration_s for each in recordings)
    if not total_s >= MIN_RECORDING_S:
        raise BadRequest(
            f"the recordings of a voice have {total_s:.1f} s; "
            f"give {MIN_RECORDING_S:.0f} to {MAX_RECORDING_S:.0f} s"
        )
    for each in recordings:
        level = (
            float(np.sqrt(np.mean(np.square(each.samples, dtype=np.float64)))) if len(each.samples) else 0.0
        )
        if not level >= _MIN_LEVEL:
            raise BadRequest("a recording is silent (below -50 dBFS) or not numbers; give one of a voice")


def open_encoders(folder: Path) -> XttsVoices:
    """As ``Checkpoints.open_encoders``: the encoders of a bundle without its language model and vocoder."""
    bundle = open_bundle(folder)
    settings = bundle.settings
    load_encoder = partial(load_voice_encoder, bundle)
    return XttsVoices({}, load_encoder, settings.conditioning, settings.languages)
