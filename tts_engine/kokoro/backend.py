"""Kokoro-82M as a backend: ``kokoro*.onnx`` and ``voices*.bin`` or ``voices*.npz`` in a folder.

English is read by the packaged voice's pronunciation rules, which use the same alphabet; other languages by
espeak-ng. Japanese and Chinese text is not supported: Kokoro learnt both from phonemes that neither gives.
Their voices speak the other languages.

A voice is one of the file, or a mixture: "af_bella(2)+af_sky(1)". Without a weight it is 1.
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...models.devices.onnx_providers import CPU, OnnxDevice
from ...models.devices.onnx_sessions import OnnxSessions
from ...models.kokoro.voice import (
    MAX_PHONEMES,
    SAMPLE_RATE,
    KokoroError,
    KokoroModel,
    mix_styles,
    read_styles,
)
from ...models.phonemes.english_ipa import EnglishPhonemizer, SpelledWord
from ...models.phonemes.timed_sounds import earlier
from ...models.signal.level import limit
from ...models.signal.room_tone import RoomTone
from ...models.signal.speaker_sound import SpeakerSound, measure_sound
from ...models.signal.speech_edges import SilenceTrimmer
from ..backends.base import SlotRequest
from ..backends.voice_kind import NOTHING_KEPT, KeptSpeechConfig
from ..errors import BundleError, UnknownVoice
from ..process_limits import available_cores
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

_MAX_THREADS = 4  # that compute one clause
_MAX_SOUNDS = 1_000  # remembered; names of mixtures come from clients
_LEVEL_TEXT = "one two three banana"

_LANGUAGES = {"a": "en-US", "b": "en-GB", "e": "es", "f": "fr", "h": "hi", "i": "it", "p": "pt-BR"}
_ESPEAK_VOICES = {"en-GB": "en-gb", "es": "es", "fr": "fr-fr", "hi": "hi", "it": "it", "pt-BR": "pt-br"}
_UNSUPPORTED = {"j": "Japanese", "z": "Chinese"}  # spoken languages of voices that speak others here
_GENDERS = {"f": "female", "m": "male"}
# Pairs of IPA symbols that Kokoro's alphabet has as one; the longest come first.
_MERGED_PHONEMES = {
    **{"tʃ": "ʧ", "dʒ": "ʤ", "ts": "ʦ", "dz": "ʣ", "eɪ": "A", "aɪ": "I", "aʊ": "W", "oʊ": "O", "əʊ": "Q"},
    **{"ɔɪ": "Y", "ɜːɹ": "ɜɹ", "ɚ": "əɹ", "ɐ": "ə", "r": "ɹ", "g": "ɡ", "\u0329": "", "-": ""},
}
_MERGED = re.compile("|".join(map(re.escape, _MERGED_PHONEMES)))

_PART = re.compile(r"([A-Za-z]\w{0,40})(?:\((\d{1,3}(?:\.\d{1,3})?)\))?")
_MAX_MIXED = 8


@dataclass(frozen=True, slots=True)
class VoiceMixture:
    """Voices by weight."""

    weights: Mapping[str, float]


def parse_mixture(name: str, known: Mapping[str, object]) -> VoiceMixture | None:
    """The mixture that a name such as "af_bella(2)+af_sky" means; None if it means none of known voices."""
    weights: dict[str, float] = {}
    for part in name.split("+", _MAX_MIXED):
        match = _PART.fullmatch(part.strip())
        if match is None or match[1] not in known:
            return None
        weights[match[1]] = weights.get(match[1], 0.0) + float(match[2] or 1)
    return VoiceMixture(weights) if sum(weights.values()) > 0 and len(weights) <= _MAX_MIXED else None


class KokoroVoiceSet(Voices):
    """The voices of the file, and every mixture of them, which is not listed."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(tuple(map(_describe, sorted(names, key=_rank))))

    def __contains__(self, voice_id: object) -> bool:
        return super().__contains__(voice_id) or (isinstance(voice_id, str) and self.is_unlisted(voice_id))

    def is_unlisted(self, name: str) -> bool:
        """Whether a name means a mixture."""
        return parse_mixture(name, self._voices) is not None

    def get(self, voice_id: str | None) -> Voice:
        """The voice with that id, a mixture, or the default for None. Raises UnknownVoice."""
        if voice_id is None or super().__contains__(voice_id):
            return super().get(voice_id)
        mixture = parse_mixture(voice_id, self._voices)
        if mixture is None:
            raise UnknownVoice(
                f"no voice {voice_id[:140]!r}; loaded: {', '.join(self._voices)}, and mixtures as "
                f"{next(iter(self._voices))}(2)+{list(self._voices)[-1]}(1)"
            )
        heaviest = max(mixture.weights, key=lambda name: mixture.weights[name])
        return replace(super().get(heaviest), id=voice_id, description="Kokoro, a mixture of voices")


class KokoroVoices:
    """The ``ClauseVoice`` of a Kokoro folder."""

    warm_up_text = "Hello."

    def __init__(
        self,
        model: KokoroModel,
        styles: Mapping[str, NDArray[np.float32]],
        english: EnglishPhonemizer,
        files: Sequence[Path] = (),
    ) -> None:
        self.voices: Voices = KokoroVoiceSet(tuple(styles))
        self._model, self._styles, self._english = model, styles, english
        self._files = files
        self._readers = {language: VoiceReader(language) for language in _LANGUAGES.values()}
        self._phonemizers: dict[str, EspeakPhonemizer] = {}
        self._sounds: dict[str, SpeakerSound] = {}
        self._reported: set[str] = set()
        self._lock = threading.Lock()
        rtf = self._measure(self.voices.default.id)
        warn_if_slow("of the Kokoro bundle", rtf)

    @classmethod
    def load(
        cls, folder: Path, load_english: Callable[[], EnglishPhonemizer], device: OnnxDevice = CPU
    ) -> "KokoroVoices":
        """Load a folder. Raises BundleError."""
        model_file, voices_file = _find_files(folder)
        english = load_english()
        try:
            threads = min(_MAX_THREADS, available_cores())
            model = KokoroModel(model_file, english.phoneme_ids, threads, OnnxSessions(device))
            return cls(model, read_styles(voices_file), english, (model_file, voices_file))
        except KokoroError as error:
            raise BundleError(str(error)) from error

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter of the request's language. Raises BadRequest for a language that Kokoro lacks."""
        return self._readers[self._language(request.voice, request.delivery.language)].segmenter(request)

    def identity(self) -> str:
        """As ``ClauseVoice.identity``."""
        return clause_identity(self._sound(self.voices.default.id), [*self._files, Path(__file__)])

    def close(self) -> None:
        """End the processes of espeak-ng."""
        for phonemizer in self._phonemizers.values():
            phonemizer.close()

    def render(
        self, segment: Segment, request: SlotRequest, noise: np.random.Generator
    ) -> Iterator[RenderedPiece]:
        """Render a segment; a very long one in several pieces."""
        words = [word for word in segment.words if not word.is_mark]
        phonemes = self._phonemes(
            words, self._language(request.voice, segment.language or request.delivery.language)
        )
        lines = [line for line in _split_lines(words, phonemes) if self._has_sound(line[1])]
        style = self._style(request.voice)
        gain = self._sound(request.voice).gain
        start_s = 0.0
        for index, (line_words, line_phonemes) in enumerate(lines):
            rendered = self._model.render(
                [word.phonemes for word in line_phonemes],
                [word.joined for word in line_phonemes],
                style,
                segment.speed_in(request.speed),
            )
            self._report_missing()
            trimmer = SilenceTrimmer(SAMPLE_RATE)
            samples = limit(trimmer.push(rendered.samples * np.float32(gain), last=True))
            lead_s = trimmer.lead_samples / SAMPLE_RATE - start_s
            length_s = len(samples) / SAMPLE_RATE
            times = rendered.words or estimate_times(line_words, length_s)
            shifted = [(start - lead_s, stop - lead_s) for start, stop in times]
            sounds = earlier(rendered.sounds or (), lead_s)
            found = WordTimes(line_words, shifted, sounds).take_until(math.inf)
            start_s += length_s
            yield RenderedPiece(samples, found, last=index == len(lines) - 1)

    def _language(self, voice_id: str, language: str | None) -> str:
        """The language to read in, with the region of the voice where both have one language."""
        voice = self.voices.get(voice_id)
        require_language(voice, language)
        spoken = (voice.language, *voice.further_languages)
        wanted = (language or voice.language).partition("-")[0].lower()
        return next((each for each in spoken if each.partition("-")[0] == wanted), voice.language)

    def _phonemes(self, words: Sequence[SpokenWord], language: str) -> list[PhonemeWord]:
        """Words as phonemes in Kokoro's alphabet, with their punctuation."""
        if language == "en-US":
            spelled = [SpelledWord(word.text, word.punctuation, word.phonemes) for word in words]
            return [PhonemeWord(word) for word in self._english.word_phonemes(spelled)]
        phonemes = replace_pronounced(words, self._phonemizer(language).phonemize_phrases(words))
        return [
            PhonemeWord(_MERGED.sub(_merge, found.phonemes) + word.punctuation, found.joined)
            for word, found in zip(words, phonemes, strict=True)
        ]

    def _phonemizer(self, language: str) -> EspeakPhonemizer:
        with self._lock:
            if language not in self._phonemizers:
                self._phonemizers[language] = EspeakPhonemizer(_ESPEAK_VOICES[language])
            return self._phonemizers[language]

    def _has_sound(self, phonemes: Sequence[PhonemeWord]) -> bool:
        return any(self._model.has_sound(word.phonemes) for word in phonemes)

    def _report_missing(self) -> None:
        if missing := (self._model.missing | self._english.missing) - self._reported:
            self._reported |= missing
            logger.warning("Kokoro has no sound for %s, which is left out", ", ".join(sorted(missing)))

    def _style(self, voice: str) -> NDArray[np.float32]:
        mixture = parse_mixture(voice, self._styles)
        assert mixture is not None  # ``voices`` found it
        return mix_styles(self._styles, mixture.weights)

    def room_tone(self, voice: str) -> RoomTone | None:
        """As ``ClauseVoice.room_tone``."""
        return self._sound(voice).room_tone

    def _sound(self, voice: str) -> SpeakerSound:
        sound = self._sounds.get(voice)
        if sound is None:
            self._measure(voice)
            sound = self._sounds[voice]
        return sound

    def _measure(self, voice: str) -> float:
        """Measure the sound of a voice and remember it; the seconds of computing for 1 s of speech."""
        words = [SpokenWord(word, "", 0, 0) for word in _LEVEL_TEXT.split()]
        phonemes = [word.phonemes for word in self._phonemes(words, "en-US")]
        started = time.monotonic()
        rendered = self._model.render(phonemes, [False] * len(phonemes), self._style(voice), 1.0)
        compute_s = time.monotonic() - started
        if len(self._sounds) >= _MAX_SOUNDS:
            self._sounds.clear()
        self._sounds[voice] = measure_sound(rendered.samples)
        return compute_s / (len(rendered.samples) / SAMPLE_RATE)


def list_kokoro_voices(folder: Path) -> tuple[Voice, ...]:
    """The voices of a folder, without its network. Raises BundleError."""
    try:
        return tuple(KokoroVoiceSet(tuple(read_styles(_find_files(folder)[1]))))
    except KokoroError as error:
        raise BundleError(str(error)) from error


def load_kokoro(
    folder: Path,
    load_english: Callable[[], EnglishPhonemizer],
    device: OnnxDevice = CPU,
    kept_speech: KeptSpeechConfig = NOTHING_KEPT,
) -> ClauseBackend:
    """The backend of a Kokoro folder. Raises BundleError."""
    return ClauseBackend(KokoroVoices.load(folder, load_english, device), workers=1, kept_speech=kept_speech)


def _find_files(folder: Path) -> tuple[Path, Path]:
    """The model and the voices. Raises BundleError."""
    models = sorted(folder.glob("kokoro*.onnx")) or sorted(folder.glob("*.onnx"))
    voices = [*sorted(folder.glob("voices*.bin")), *sorted(folder.glob("voices*.npz"))]
    if not models or not voices:
        missing = "voices*.bin or voices*.npz" if models else "kokoro*.onnx"
        raise BundleError(f"{folder}: has no {missing}, which a Kokoro voice needs")
    return models[0], voices[0]


def _merge(match: re.Match[str]) -> str:
    return _MERGED_PHONEMES[match.group()]


def _split_lines(
    words: Sequence[SpokenWord], phonemes: Sequence[PhonemeWord]
) -> Iterator[tuple[list[SpokenWord], list[PhonemeWord]]]:
    line: tuple[list[SpokenWord], list[PhonemeWord]] = ([], [])
    length = 0
    for word, found in zip(words, phonemes, strict=True):
        size = len(found.phonemes) + 1
        if line[0] and length + size > MAX_PHONEMES:
            yield line
            line, length = ([], []), 0
        line[0].append(word)
        line[1].append(PhonemeWord(found.phonemes[: MAX_PHONEMES - 1], found.joined))
        length += size
    yield line


def _rank(name: str) -> tuple[int, str]:
    """Voices of supported languages first, by language and name."""
    return (list(_LANGUAGES).index(name[:1]) if name[:1] in _LANGUAGES else len(_LANGUAGES), name)


def _describe(name: str) -> Voice:
    origin = _UNSUPPORTED.get(name[:1])
    language = _LANGUAGES.get(name[:1], "en-US")
    parts = ["Kokoro", _GENDERS.get(name[1:2], ""), f"{origin} accent" if origin else "", "24 kHz"]
    further = tuple(each for each in _LANGUAGES.values() if each != language)
    return Voice(name, language, ", ".join(filter(None, parts)), further)
