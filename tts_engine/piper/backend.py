"""Piper voices as a backend: ``voice.onnx`` with ``voice.onnx.json``, one or several in a folder.

Phonemes come from espeak-ng, or are the letters of the text where the voice was trained so. A clause is
encoded as a whole and decoded piece by piece, the first one short.
"""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...models.devices.onnx_providers import CPU, OnnxDevice
from ...models.devices.onnx_sessions import OnnxSessions
from ...models.phonemes.timed_sounds import TimedSounds, earlier
from ...models.piper.config import PiperConfig, PiperVoiceError, read_config
from ...models.piper.stream_resampler import StreamResampler
from ...models.piper.voice import EncodedClause, PhonemeIds, PiperRenderState, PiperVoice
from ...models.signal.level import limit
from ...models.signal.room_tone import RoomTone
from ...models.signal.speaker_sound import SpeakerSound, measure_sound
from ...models.signal.speech_edges import SilenceTrimmer
from ..backends.base import SlotRequest
from ..backends.voice_kind import NOTHING_KEPT, KeptSpeechConfig
from ..chunk import SAMPLE_RATE
from ..errors import BundleError
from ..reading.normalizer import SpokenWord
from ..segmenter import Segment, Segmenter
from ..voice_kit.clause_backend import (
    ClauseBackend,
    RenderedPiece,
    WordTimes,
    clause_identity,
    estimate_times,
    warn_if_slow,
)
from ..voice_kit.espeak import EspeakPhonemizer, PhonemeWord, replace_pronounced
from ..voice_kit.voice_reader import VoiceReader
from ..voices.languages import require_language
from ..voices.voices import Voice, Voices

logger = logging.getLogger(__name__)

# Seconds of each piece of a clause: a shorter first one for an early sound. A shorter one than this is heard
# before the next one is there if 15 calls speak on two cores.
PIECE_S = (0.3, 0.4)

# A sentence of the voice's language measures its level; words of any language will do.
_LEVEL_WORDS = ("one", "two", "three", "four", "five", "banana")
_NARROW = str.maketrans("。！？；：，、—", ".!?;:,,,")


@dataclass(frozen=True, slots=True)
class PiperSpeaker:
    """A speaker of a loaded voice. number: None where the voice has one."""

    voice: PiperVoice
    number: int | None


class PiperVoices:
    """The ``ClauseVoice`` of a folder of Piper voices."""

    def __init__(self, loaded: Sequence[PiperVoice], files: Sequence[Path] = ()) -> None:
        self._speakers = {
            name: PiperSpeaker(voice, number) for voice in loaded for name, number in _speakers(voice.config)
        }
        self.voices = Voices(
            tuple(_describe(name, speaker.voice.config) for name, speaker in self._speakers.items())
        )
        self._files = files
        self._readers = {name: VoiceReader(self.voices.get(name).language) for name in self._speakers}
        names = {voice.config.espeak_voice for voice in loaded} - {None}
        self._phonemizers = {name: EspeakPhonemizer(name) for name in sorted(filter(None, names))}
        self._sounds: dict[str, SpeakerSound] = {}
        self._reported: set[str] = set()
        self._lock = threading.Lock()
        warn_if_slow(self.voices.default.id, self._measure(self.voices.default.id))

    @classmethod
    def load(cls, folder: Path, device: OnnxDevice = CPU) -> "PiperVoices":
        """Load each voice of a folder. Raises BundleError for a file, and if espeak-ng is missing."""
        sessions = OnnxSessions(device)
        try:
            models = _model_files(folder)
            files = [*models, *(model.with_name(f"{model.name}.json") for model in models)]
            return cls([PiperVoice.load(model, sessions) for model in models], files)
        except PiperVoiceError as error:
            raise BundleError(str(error)) from error

    @property
    def warm_up_text(self) -> str:
        """Words that every language's reader lets pass."""
        return "Hello one two three."

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter of the voice's language. Raises BadRequest for a text in another one."""
        require_language(self.voices.get(request.voice), request.delivery.language)
        return self._readers[request.voice].segmenter(request)

    def identity(self) -> str:
        """As ``ClauseVoice.identity``."""
        sound = self._sound(self.voices.default.id)
        return clause_identity(sound, [*self._files, Path(__file__)])

    def close(self) -> None:
        """End the processes of espeak-ng."""
        for phonemizer in self._phonemizers.values():
            phonemizer.close()

    def render(
        self, segment: Segment, request: SlotRequest, noise: np.random.Generator
    ) -> Iterator[RenderedPiece]:
        """Render a segment in pieces of 0.3 s and more."""
        speaker = self._speakers[request.voice]
        words = [word for word in segment.words if not word.is_mark]
        phonemes = self._phonemes(speaker.voice, words)
        if not phonemes.has_sound:
            return
        gain = self._sound(request.voice).gain
        clause = speaker.voice.encode(phonemes, noise, segment.speed_in(request.speed), speaker.number or 0)
        yield from _render_clause(speaker.voice, clause, words, gain)

    def _phonemes(self, voice: PiperVoice, words: Sequence[SpokenWord]) -> PhonemeIds:
        spoken = self._spoken(voice.config, words)
        marks = [word.punctuation.translate(_NARROW) for word in words]
        ids = voice.alphabet.ids([word.phonemes for word in spoken], marks, [word.joined for word in spoken])
        self._report_missing(voice)
        return ids

    def _spoken(self, config: PiperConfig, words: Sequence[SpokenWord]) -> list[PhonemeWord]:
        if config.espeak_voice is None:
            self._report_unused_phonemes(config, words)
            return [PhonemeWord(word.text) for word in words]
        phonemes = self._phonemizers[config.espeak_voice].phonemize_phrases(words)
        return replace_pronounced(words, phonemes)

    def _report_unused_phonemes(self, config: PiperConfig, words: Sequence[SpokenWord]) -> None:
        if config.name not in self._reported and any(word.phonemes for word in words):
            self._reported.add(config.name)
            logger.warning("the voice %s reads letters; phonemes of words are not used", config.name)

    def _report_missing(self, voice: PiperVoice) -> None:
        missing = voice.alphabet.missing - self._reported
        if missing:
            self._reported |= missing
            logger.warning(
                "the voice %s has no sound for %s, which is left out",
                voice.config.name,
                ", ".join(sorted(missing)),
            )

    def room_tone(self, voice: str) -> RoomTone | None:
        """As ``ClauseVoice.room_tone``."""
        return self._sound(voice).room_tone

    def _sound(self, name: str) -> SpeakerSound:
        """The sound of a speaker, measured when it first speaks."""
        with self._lock:
            if name not in self._sounds:
                self._measure(name)
            return self._sounds[name]

    def _measure(self, name: str) -> float:
        """Measure the sound of a speaker and remember it; the seconds of computing for 1 s of speech."""
        speaker = self._speakers[name]
        rate = speaker.voice.config.sample_rate
        words = [SpokenWord(text, "", 0, 0) for text in _LEVEL_WORDS]
        phonemes = self._phonemes(speaker.voice, words)
        started = time.monotonic()
        clause = speaker.voice.encode(phonemes, np.random.default_rng(0), speaker=speaker.number or 0)
        samples, _ = speaker.voice.step(clause, PiperRenderState(0), clause.frames)
        compute_s = time.monotonic() - started
        resampler = StreamResampler(rate, SAMPLE_RATE)
        self._sounds[name] = measure_sound(np.concatenate([resampler.push(samples), resampler.flush()]))
        return compute_s / (len(samples) / rate)


def list_piper_voices(folder: Path) -> tuple[Voice, ...]:
    """The voices of a folder, from the configurations only. Raises BundleError."""
    try:
        configs = [read_config(model) for model in _model_files(folder)]
    except PiperVoiceError as error:
        raise BundleError(str(error)) from error
    return tuple(_describe(name, config) for config in configs for name, _ in _speakers(config))


def load_piper(
    folder: Path, device: OnnxDevice = CPU, kept_speech: KeptSpeechConfig = NOTHING_KEPT
) -> ClauseBackend:
    """The backend of a folder of Piper voices. Raises BundleError."""
    return ClauseBackend(PiperVoices.load(folder, device), kept_speech=kept_speech)


def _render_clause(
    voice: PiperVoice, clause: EncodedClause, words: Sequence[SpokenWord], gain: float
) -> Iterator[RenderedPiece]:
    rate = voice.config.sample_rate
    trimmer, resampler = SilenceTrimmer(rate), StreamResampler(rate, SAMPLE_RATE)
    state, index, rendered = PiperRenderState(clause.onset), 0, 0
    times: WordTimes | None = None
    last = False
    while not last:
        stop = _next_stop(clause, state.frame, index, voice)
        last = stop == clause.frames
        samples, state = voice.step(clause, state, stop)
        trimmed = trimmer.push(samples * np.float32(gain), last=last)
        index += 1
        if times is None and (len(trimmed) or last):
            lead_s = clause.onset * voice.frame_s + trimmer.lead_samples / rate
            times = WordTimes(words, _times(clause, words, lead_s, voice), _sounds(voice, clause, lead_s))
        samples = resampler.push(trimmed)
        if last:
            samples = np.concatenate([samples, resampler.flush()])
        rendered += len(samples)
        end_s = float("inf") if last else rendered / SAMPLE_RATE
        yield RenderedPiece(limit(samples), times.take_until(end_s) if times else (), last)


def _next_stop(clause: EncodedClause, frame: int, index: int, voice: PiperVoice) -> int:
    """The frame at which the next piece ends; a short rest is included."""
    frames = round(PIECE_S[min(index, len(PIECE_S) - 1)] / voice.frame_s)
    stop = frame + frames
    return clause.frames if not voice.renders_ranges or clause.frames - stop < frames // 2 else stop


def _times(
    clause: EncodedClause, words: Sequence[SpokenWord], lead_s: float, voice: PiperVoice
) -> list[tuple[float, float]]:
    if clause.words is None:
        return estimate_times(words, clause.frames * voice.frame_s - lead_s)
    return [(start - lead_s, stop - lead_s) for start, stop in clause.words]


def _sounds(voice: PiperVoice, clause: EncodedClause, lead_s: float) -> tuple[TimedSounds[float], ...]:
    """Sounds of each word; () of voices that read letters, or have no times."""
    if clause.sounds is None or voice.config.espeak_voice is None:
        return ()
    return earlier(clause.sounds, lead_s)


def _model_files(folder: Path) -> list[Path]:
    """Each model with a configuration; a configuration without its model is found when that is read."""
    return [path.with_suffix("") for path in sorted(folder.glob("*.onnx.json"))]


def _speakers(config: PiperConfig) -> Iterator[tuple[str, int | None]]:
    """Each speaker's number by the id of its voice: NAME, or NAME/SPEAKER of a file with several."""
    if len(config.speakers) < 2:
        yield config.name, next(iter(config.speakers.values()), None)
        return
    for name, number in sorted(config.speakers.items(), key=lambda each: each[1]):
        yield f"{config.name}/{name}", number


def _describe(name: str, config: PiperConfig) -> Voice:
    return Voice(name, config.language, f"Piper, {config.language}, {config.sample_rate / 1000:g} kHz")
