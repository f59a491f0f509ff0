"""The voices of an XTTS bundle: the studio voices of its file, and voices made of recordings."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...models.cosyvoice.front_end.features import resample
from ...models.xtts.config import XTTS_INPUT_RATE
from ...models.xtts.voice import VoiceConditioningConfig, XttsVoice, XttsVoiceEncoder
from ..errors import BadRequest, UnknownVoice
from ..voices.voices import MULTIPLE_LANGUAGES, Voice, Voices

Samples = NDArray[np.float32]

MIN_RECORDING_S, MAX_RECORDING_S = 3.0, 30.0  # of all recordings of a voice; more is cut
_MIN_LEVEL = 10 ** (-50 / 20)  # root mean square of full scale; below it, a recording counts as silent
_MAX_ENROLLED = 256  # 130 kB each


class XttsVoices(Voices):
    """The voices of one bundle, with cloning. studio: by name."""

    def __init__(
        self,
        studio: Mapping[str, XttsVoice],
        load_encoder: Callable[[], XttsVoiceEncoder],
        conditioning: VoiceConditioningConfig,
        languages: Sequence[str],
    ) -> None:
        self._description = f"speaks {', '.join(languages)}"
        super().__init__(tuple(Voice(name, MULTIPLE_LANGUAGES, self._description) for name in studio))
        self._profiles = dict(studio)
        self._enrolled: frozenset[str] = frozenset()
        self._load_encoder, self._conditioning = load_encoder, conditioning
        self._encoder_lock = threading.Lock()  # an encoder processes one voice at a time
        # Writers replace the dictionaries under this lock; readers need none.
        self._change_lock = threading.Lock()

    def speaker_profile(self, voice_id: str) -> XttsVoice:
        """The conditioning of a voice. Raises UnknownVoice."""
        if voice_id not in self._profiles:
            raise UnknownVoice(f"no voice {voice_id!r}; it was removed")
        return self._profiles[voice_id]

    def enroll(self, samples: Samples, sample_rate: int, transcript: str = "") -> Voice:
        """Clone a voice from a recording of 3 to 30 s; see ``Voices.enroll``. The transcript is not used."""
        return self.enroll_recordings([samples], sample_rate)

    def enroll_recordings(self, recordings: Sequence[Samples], sample_rate: int) -> Voice:
        """Clone a voice from several recordings, 3 s and more together. Raises BadRequest."""
        digest = hashlib.sha256(f"{sample_rate} {[len(each) for each in recordings]}".encode())
        for each in recordings:
            digest.update(np.ascontiguousarray(each, np.float32).tobytes())
        voice_id = f"voice-{digest.hexdigest()[:32]}"
        if voice_id in self._enrolled:
            return self.get(voice_id)
        return self.register(voice_id, self.encode(recordings, sample_rate))

    def encode(self, recordings: Sequence[Samples], sample_rate: int) -> XttsVoice:
        """The conditioning of recordings. Raises BadRequest if they cannot be used."""
        _check(recordings, sample_rate)
        inputs = [at_input_rate(each, sample_rate) for each in recordings]
        with self._encoder_lock:
            try:
                return self._load_encoder().encode(inputs, self._conditioning)
            except ValueError as fault:
                raise BadRequest(str(fault)) from fault

    def register(self, voice_id: str, conditioning: XttsVoice) -> Voice:
        """Add a voice, kept in memory until it is removed. Raises BadRequest beyond 256 voices."""
        voice = Voice(voice_id, MULTIPLE_LANGUAGES, f"enrolled; {self._description}")
        with self._change_lock:
            if voice_id not in self._voices and len(self._enrolled) >= _MAX_ENROLLED:
                raise BadRequest(f"{_MAX_ENROLLED} voices are enrolled, and no more may be; remove some")
            self._enrolled = self._enrolled | {voice_id}
            self._profiles = {**self._profiles, voice_id: conditioning}
            self._voices = {**self._voices, voice_id: voice}
        return voice

    def remove(self, voice_id: str) -> None:
        """Remove an enrolled voice; open streams keep it to their end. Raises UnknownVoice."""
        with self._change_lock:
            if voice_id not in self._enrolled:
                raise UnknownVoice(f"no voice {voice_id!r} was enrolled; enrolled: {len(self._enrolled)}")
            self._enrolled = self._enrolled - {voice_id}
            self._profiles = {name: each for name, each in self._profiles.items() if name != voice_id}
            self._voices = {name: each for name, each in self._voices.items() if name != voice_id}

    def tokenize_speech(self, samples: Samples, sample_rate: int) -> tuple[int, ...]:
        """Not supported. Raises BadRequest."""
        raise BadRequest("XTTS converts no recordings to another voice; give text")


def at_input_rate(samples: Samples, sample_rate: int) -> Samples:
    """Samples at 22,050 Hz, the rate of the encoders."""
    samples = samples.astype(np.float32)
    return samples if sample_rate == XTTS_INPUT_RATE else resample(samples, sample_rate, XTTS_INPUT_RATE)


def _check(recordings: Sequence[Samples], sample_rate: int) -> None:
    total_s = sum(len(each) for each in recordings) / sample_rate
    if not total_s >= MIN_RECORDING_S:
        raise BadRequest(
            f"the recordings of a voice have {total_s:.1f} s; "
            f"give {MIN_RECORDING_S:.0f} to {MAX_RECORDING_S:.0f} s"
        )
    for each in recordings:
        level = float(np.sqrt(np.mean(np.square(each, dtype=np.float64)))) if len(each) else 0.0
        if not level >= _MIN_LEVEL:
            raise BadRequest("a recording is silent (below -50 dBFS) or not numbers; give one of a voice")
