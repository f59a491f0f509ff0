"""Compares a trained bundle with its base and with the recordings, on sentences that were held out.

A sentence is spoken by the trained bundle streamed and at once, and by the base with a recording of the
speaker as its prompt. A recogniser counts wrong words; the bundle's own speaker encoder measures the
similarity to the speaker's mean.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ....models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ....models.cosyvoice.training.dataset import TrainingDataset, UtteranceEntry
from ....models.signal.recording_resampler import resample
from ...chunk import SAMPLE_RATE
from ...engine import Engine
from ...reading.multilingual_clause_normalizer import LanguageGrammars
from ...reading.normalizer import TextNormalizer

Float = NDArray[np.float32]

RECORDED, STREAMED, AT_ONCE, BASE = "recording", "trained, streamed", "trained, at once", "base with a prompt"
SOURCES = (RECORDED, STREAMED, AT_ONCE, BASE)
_RECOGNISER_RATE = 16_000
_AND_IN_A_NUMBER = re.compile(
    r"\b(hundred|thousand|million|billion)\W+and\W+(?=(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|"
    r"twelve|thir|fourteen|fif|sixt|sevent|eighteen|eighty|ninet|twent|fort)\w*\b)"
)
_PIECE = 3  # words that are pushed at a time when streamed


class SpeechRecogniser(Protocol):
    """Writes down what is said."""

    def transcribe(self, samples: Float) -> str:
        """The words of (N,) samples at 16 kHz."""
        ...


@dataclass(frozen=True, slots=True)
class EvaluatedSentence:
    """One sentence as one source says it."""

    text: str
    source: str
    heard: str
    wrong_words: int
    words: int
    similarity: float  # cosine, to the speaker's mean
    samples: Float  # 24 kHz


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """The figures of one source over all sentences."""

    source: str
    wrong_percent: float  # of the words
    similarity: float
    seconds: float


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What is compared: bundles, voice, and sentences."""

    trained: Path
    base: Path | None  # None: only the trained one speaks
    voice: str
    sentences: tuple[UtteranceEntry, ...]
    prompt: UtteranceEntry | None


async def speak_sentences(
    plan: EvaluationPlan,
    dataset: TrainingDataset,
    encoder: VoiceEncoder,
    recogniser: SpeechRecogniser,
    *,
    sources: Sequence[str] = SOURCES,
    on_progress: Callable[[], None] = lambda: None,
) -> list[EvaluatedSentence]:
    """Every sentence from every source. on_progress: called after each. Raises what ``Engine.open`` does."""
    numbers = {entry.name: number for number, entry in enumerate(dataset.entries)}
    judge = _Judge(dataset, encoder, recogniser)
    spoken: list[EvaluatedSentence] = []

    def add(entry: UtteranceEntry, source: str, samples: Float) -> None:
        spoken.append(judge.judge(entry, source, samples))
        on_progress()

    if RECORDED in sources:
        for entry in plan.sentences:
            add(entry, RECORDED, _to_float(dataset.samples(numbers[entry.name])))
    engine = await Engine.open(str(plan.trained), warm_up=False)
    try:
        for entry in plan.sentences:
            for source in (STREAMED, AT_ONCE):
                if source in sources:
                    add(entry, source, await _speak(engine, entry.text, plan.voice, source == STREAMED))
    finally:
        await engine.aclose()
    if BASE in sources and plan.base is not None and plan.prompt is not None:
        engine = await Engine.open(str(plan.base), warm_up=False)
        try:
            prompt = _to_float(dataset.samples(numbers[plan.prompt.name]))
            voice = engine.voices.enroll(prompt, SAMPLE_RATE, plan.prompt.text)
            for entry in plan.sentences:
                add(entry, BASE, await _speak(engine, entry.text, voice.id, True))
        finally:
            await engine.aclose()
    return spoken


async def _speak(engine: Engine, text: str, voice: str, streamed: bool) -> Float:
    pieces = [text]
    if streamed:
        words = re.findall(r"\S+\s*", text)
        pieces = ["".join(words[first : first + _PIECE]) for first in range(0, len(words), _PIECE)]
    async with engine.stream(voice=voice, seed=7) as stream:
        for piece in pieces:
            stream.push_text(piece)
        stream.end_input()
        pcm = b"".join([chunk.pcm async for chunk in stream])
    return _to_float(np.frombuffer(pcm, "<i2"))


def _to_float(samples: NDArray[np.int16]) -> Float:
    return samples.astype(np.float32) / np.float32(32_768)


class _Judge:
    def __init__(self, dataset: TrainingDataset, encoder: VoiceEncoder, recogniser: SpeechRecogniser) -> None:
        self._dataset, self._encoder, self._recogniser = dataset, encoder, recogniser

    def judge(self, entry: UtteranceEntry, source: str, samples: Float) -> EvaluatedSentence:
        heard = self._recogniser.transcribe(resample(samples, SAMPLE_RATE, _RECOGNISER_RATE))
        expected = words_of(entry.text)
        mean = self._dataset.speaker_embedding(entry.speaker)
        embedding = self._encoder.embed_speaker(samples, SAMPLE_RATE)
        similarity = float(embedding @ mean) / max(float(np.linalg.norm(embedding)), 1e-12)
        wrong = count_wrong_words(expected, words_of(heard))
        return EvaluatedSentence(entry.text, source, heard, wrong, len(expected), similarity, samples)


def words_of(text: str) -> list[str]:
    """Words as they are said, in lower case without punctuation; each ideograph is a word.

    Recognisers write "$5" for "five dollars": numbers are read as the engine reads them. Latin letters are
    read in English, where "one hundred and five" counts as "one hundred five".
    """
    normalizer = TextNormalizer(_grammars().clause_normalizer())
    clauses = [*normalizer.push(text), *normalizer.flush()]
    spoken = " ".join(word.text for clause in clauses for word in clause.words)
    plain = unicodedata.normalize("NFKC", spoken).lower().replace("'", "").replace("〇", "零")
    plain = _AND_IN_A_NUMBER.sub(r"\1 ", plain)
    return re.findall(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+", plain)


@cache
def _grammars() -> LanguageGrammars:
    return LanguageGrammars.load()


def count_wrong_words(expected: Sequence[str], heard: Sequence[str]) -> int:
    """Words replaced, left out and added: the edit distance."""
    costs = list(range(len(heard) + 1))
    for row, word in enumerate(expected, 1):
        before, costs[0] = costs[0], row
        for column, other in enumerate(heard, 1):
            replaced = before + (word != other)
            before = costs[column]
            costs[column] = min(replaced, costs[column] + 1, costs[column - 1] + 1)
    return costs[-1]


def summarize(spoken: Sequence[EvaluatedSentence]) -> list[SourceFigures]:
    """The figures of each source, in the order of ``SOURCES``."""
    figures = []
    for source in SOURCES:
        found = [one for one in spoken if one.source == source]
        if found:
            wrong = sum(one.wrong_words for one in found)
            words = max(1, sum(one.words for one in found))
            similarity = float(np.mean([one.similarity for one in found]))
            seconds = sum(len(one.samples) for one in found) / SAMPLE_RATE
            figures.append(SourceFigures(source, 100 * wrong / words, similarity, seconds))
    return figures


def choose_checkpoint(figures: Mapping[str, SourceFigures]) -> str:
    """The checkpoint with the fewest wrong words; within one point of it, the most similar one."""
    fewest = min(one.wrong_percent for one in figures.values())
    good = {name: one for name, one in figures.items() if one.wrong_percent <= fewest + 1}
    return max(good, key=lambda name: good[name].similarity)
