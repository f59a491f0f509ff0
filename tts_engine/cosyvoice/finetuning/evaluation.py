"""Compares a trained bundle with its base and with the recordings, on sentences that were held out.

A sentence is spoken by the trained bundle streamed, and at once: the same speech ids pass the flow in one
chunk, whose frames attend to all others, and the vocoder, on the processor. With a recording of the speaker
as its prompt it is spoken by the trained bundle and by the base. A recogniser counts wrong words; the
bundle's own speaker encoder measures the similarity to the speaker's mean.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ....models.cosyvoice.config import FRAMES_PER_SPEECH_ID
from ....models.cosyvoice.flow.policy import FlowPolicy
from ....models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ....models.cosyvoice.training.dataset import TrainingDataset, UtteranceEntry
from ....models.devices.execution import Executor
from ....models.signal.recording_resampler import resample
from ....models.whole_files import written_whole
from ...chunk import SAMPLE_RATE
from ...engine import Engine
from ...reading.languages.multilingual import LanguageGrammars
from ...reading.normalizer import TextNormalizer
from ..backend import CosyVoiceBackend
from ..policy import CosyVoicePolicy

Float = NDArray[np.float32]
Pcm = NDArray[np.int16]  # at 24 kHz

RECORDED, STREAMED, AT_ONCE = "recording", "trained, streamed", "trained, at once"
PROMPTED, BASE = "trained with a prompt", "base with a prompt"
SOURCES = (RECORDED, STREAMED, AT_ONCE, PROMPTED, BASE)
# A sentence is one chunk, and all of its frames attend to each other.
_MAX_IDS = 6000  # more than a sentence has
AT_ONCE_POLICY = CosyVoicePolicy(
    first_hop=_MAX_IDS,
    max_hop=_MAX_IDS,
    flow=FlowPolicy(block_frames=FRAMES_PER_SPEECH_ID * _MAX_IDS),
    executor=Executor.TORCH,
    device="cpu",
)
_RECOGNISER_RATE = 16_000
_AND_IN_A_NUMBER = re.compile(
    r"\b(hundred|thousand|million|billion)\W+and\W+(?=(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|"
    r"twelve|thir|fourteen|fif|sixt|sevent|eighteen|eighty|ninet|twent|fort)\w*\b)"
)
_PIECE = 3  # words that are pushed at a time when streamed


class SpokenFolder:
    """Speech on file, so that an interrupted evaluation goes on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: str) -> Pcm | None:
        """The samples of a key, 24 kHz; None if it was not spoken. Raises OSError."""
        try:
            pcm: Pcm = np.load(self._path(key))
        except (FileNotFoundError, ValueError, EOFError):  # the others: a file that a failing disk cut
            return None
        return pcm

    def write(self, key: str, pcm: Pcm) -> None:
        """Keep samples, whole or not at all. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with written_whole(self._path(key)) as unfinished, unfinished.open("wb") as file:
            np.save(file, pcm)

    def _path(self, key: str) -> Path:
        return self._folder / f"{sha256(key.encode()).hexdigest()[:16]}.npy"


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

    trained: Callable[[], Path]  # called when the bundle is first needed
    base: Path
    voice: str
    sentences: tuple[UtteranceEntry, ...]
    prompt: UtteranceEntry | None  # needed by PROMPTED and BASE
    kept: SpokenFolder


async def speak_sentences(
    plan: EvaluationPlan,
    dataset: TrainingDataset,
    encoder: VoiceEncoder,
    recogniser: SpeechRecogniser,
    *,
    sources: Sequence[str],
    on_progress: Callable[[], None] = lambda: None,
) -> list[EvaluatedSentence]:
    """Every sentence from every source. on_progress: called after each. Raises what ``Engine.open`` does."""
    judge = _Judge(dataset, encoder, recogniser)
    spoken: list[EvaluatedSentence] = []

    def add(entry: UtteranceEntry, source: str, pcm: Pcm) -> None:
        spoken.append(judge.judge(entry, source, _to_float(pcm)))
        on_progress()

    for source in sources:
        if source == RECORDED:
            for entry in plan.sentences:
                add(entry, source, _recorded(dataset, entry))
        else:
            await _speak_as(source, plan, dataset, add)
    return spoken


async def _speak_as(
    source: str,
    plan: EvaluationPlan,
    dataset: TrainingDataset,
    add: Callable[[UtteranceEntry, str, Pcm], None],
) -> None:
    """Add the sentences that are kept, and speak the others."""
    prompt = plan.prompt if source in (PROMPTED, BASE) else None
    speaker = dataset.speaker_embedding(plan.sentences[0].speaker)
    missing: list[tuple[UtteranceEntry, str]] = []
    for entry in plan.sentences:
        key = repr((source, entry.text, speaker.tobytes(), prompt and (prompt.name, prompt.stamp)))
        if (pcm := plan.kept.read(key)) is not None:
            add(entry, source, pcm)
        else:
            missing.append((entry, key))
    if not missing:
        return
    async with await _open_engine(source, plan) as engine:
        voice = plan.voice
        if prompt is not None:
            recording = _to_float(_recorded(dataset, prompt))
            voice = engine.voices.enroll(recording, SAMPLE_RATE, prompt.text).id
        for entry, key in missing:
            pcm = await _speak(engine, entry.text, voice, at_once=source == AT_ONCE)
            plan.kept.write(key, pcm)
            add(entry, source, pcm)


async def _open_engine(source: str, plan: EvaluationPlan) -> Engine:
    if source == AT_ONCE:
        backend = CosyVoiceBackend.load(plan.trained(), AT_ONCE_POLICY)
        return await Engine.open(backend=backend, warm_up=False)
    bundle = plan.base if source == BASE else plan.trained()
    return await Engine.open(str(bundle), warm_up=False)


async def _speak(engine: Engine, text: str, voice: str, *, at_once: bool) -> Pcm:
    words = re.findall(r"\S+\s*", text)
    pieces = ["".join(words[first : first + _PIECE]) for first in range(0, len(words), _PIECE)]
    async with engine.stream(voice=voice, seed=7) as stream:
        for piece in [text] if at_once else pieces:
            stream.push_text(piece)
        stream.end_input()
        return np.frombuffer(b"".join([chunk.pcm async for chunk in stream]), "<i2")


def _recorded(dataset: TrainingDataset, entry: UtteranceEntry) -> Pcm:
    names = [each.name for each in dataset.entries]
    return dataset.samples(names.index(entry.name))


def _to_float(samples: Pcm) -> Float:
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
