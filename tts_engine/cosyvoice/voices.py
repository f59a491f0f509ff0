"""The voices that a CosyVoice bundle speaks with: its named speakers, enrolled ones, and those on file.

Ids are apart from content: where two have the same id, the bundle's speaker goes before the enrolled voice,
and that before the one on file.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...models.cosyvoice.front_end.voice_encoder import PromptFault, VoiceEncoder, VoicePrompt
from ..errors import BadRequest, UnknownVoice
from ..reading.polyglot import is_known
from ..voice_store import StoredVoice, VoiceStore
from ..voices import MANY, Voice, Voices

Samples = NDArray[np.float32]
_MOST_ENROLLED = 256  # in memory, 490 kB each at most; more belong on file


@dataclass(frozen=True, slots=True, eq=False)
class Speaker:
    """Who speaks. content: the same for the same sound. prompt: the recording, where there is one."""

    content: str
    embedding: Samples
    prompt: VoicePrompt | None


class BundleVoices(Voices):
    """Voices that can be added to.

    speakers: the bundle's, by name, (192,) float32 each. encoder: loads the one that hears recordings.
    library: voices on file; whoever keeps one there adds and removes it there.
    """

    def __init__(
        self,
        speakers: Mapping[str, Samples],
        encoder: Callable[[], VoiceEncoder],
        languages: tuple[str, ...],
        library: VoiceStore | None = None,
    ) -> None:
        about = f"speaks {', '.join(languages)}"
        super().__init__(tuple(Voice(name, MANY, about) for name in speakers))
        self._about = about
        self._speakers = {
            name: Speaker(hashlib.sha256(embedding.tobytes()).hexdigest()[:32], embedding, None)
            for name, embedding in speakers.items()
        }
        self.library = library
        self._enrolled: frozenset[str] = frozenset()
        self._new_encoder = encoder
        self._encoder: VoiceEncoder | None = None
        self._hearing = threading.Lock()  # an encoder hears one recording at a time
        self._changing = threading.Lock()

    def __contains__(self, voice_id: object) -> bool:
        return isinstance(voice_id, str) and self._find(voice_id) is not None

    def get(self, voice_id: str | None) -> Voice:
        """The voice of that id, or the default for None; raises UnknownVoice."""
        if voice_id is None:
            return self.default
        return self._find(voice_id) or super().get(voice_id)

    @property
    def default(self) -> Voice:
        """The bundle's first speaker, else the oldest voice on file that is nobody's in particular."""
        if not self._voices and self.library is not None:
            for stored in self.library.list([""], version=self.library.version, most=1):
                return _on_file(stored)
        return super().default

    def speaker(self, voice_id: str) -> Speaker:
        """Who speaks with a voice, from its file if need be; raises UnknownVoice, and what is wrong there."""
        if voice_id in self._speakers:
            return self._speakers[voice_id]
        if self.library is None:
            raise UnknownVoice(f"no voice {voice_id!r}; it was removed")
        return _recorded(self.library.get(voice_id))

    def encode(self, samples: Samples, sample_rate: int, transcript: str = "") -> VoicePrompt:
        """What ``enroll`` makes of a recording, for a library to keep; limits and time as there."""
        with _refused_politely(), self._hearing:
            return self._loaded().enroll(samples, sample_rate, transcript)

    def enroll(self, samples: Samples, sample_rate: int, transcript: str = "") -> Voice:
        """Make a voice of a recording and keep it in memory; the same recording is the same voice."""
        return self.keep(self.encode(samples, sample_rate, transcript))

    def keep(self, prompt: VoicePrompt) -> Voice:
        """Make a voice of what ``encode`` made, until it is removed; the same prompt is the same voice."""
        voice = Voice(prompt.id, MANY, f"enrolled; {self._about}")
        with self._changing:
            if voice.id not in self._voices and len(self._enrolled) >= _MOST_ENROLLED:
                raise BadRequest(f"{_MOST_ENROLLED} voices are enrolled, and no more may be; remove some")
            self._enrolled = self._enrolled | {voice.id}
            self._speakers = {**self._speakers, voice.id: _recorded(prompt)}
            self._voices = {**self._voices, voice.id: voice}
        return voice

    def remove(self, voice_id: str) -> None:
        """Forget a voice that was enrolled here; streams that speak with it go on."""
        with self._changing:
            if voice_id not in self._enrolled:
                raise UnknownVoice(f"no voice {voice_id!r} was enrolled; enrolled: {len(self._enrolled)}")
            self._enrolled = self._enrolled - {voice_id}
            self._speakers = {name: who for name, who in self._speakers.items() if name != voice_id}
            self._voices = {name: voice for name, voice in self._voices.items() if name != voice_id}

    def hear(self, samples: Samples, sample_rate: int) -> tuple[int, ...]:
        """What is said in a recording, in speech ids."""
        with _refused_politely(), self._hearing:
            return tuple(self._loaded().hear(samples, sample_rate).tolist())

    def close(self) -> None:
        """Let go of the library."""
        if self.library is not None:
            self.library.close()

    def _find(self, voice_id: str) -> Voice | None:
        if voice_id in self._voices:
            return self._voices[voice_id]
        stored = self.library.find(voice_id) if self.library else None
        return _on_file(stored) if stored else None

    def _loaded(self) -> VoiceEncoder:
        """The encoder, which takes a gigabyte, and which a house without enrolment never needs."""
        if self._encoder is None:
            self._encoder = self._new_encoder()
        return self._encoder


def _on_file(stored: StoredVoice) -> Voice:
    """With the language that it was enrolled with, which its text is read in, if that is one of ours."""
    language = stored.language if is_known(stored.language) else MANY
    return Voice(stored.id, language, stored.name)


def _recorded(prompt: VoicePrompt) -> Speaker:
    return Speaker(prompt.id, prompt.embedding, prompt)


@contextmanager
def _refused_politely() -> Iterator[None]:
    try:
        yield
    except PromptFault as fault:
        raise BadRequest(str(fault)) from fault
