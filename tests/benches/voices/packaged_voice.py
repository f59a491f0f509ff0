"""Measurement of the packaged voice: pitch at joints, of questions and in all, speed, room tone, names.

What is measured is what the backend renders: its segments, with the context that it gives each line. The
sentences are in ``melody.toml`` and ``questions.toml``; names are words of CMUdict that the voice's own
lexicons lack.
"""

import random
import statistics
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.models.hibari.melody import end_above_mean
from vivavoce.models.hibari.phonemizer import Phonemizer
from vivavoce.models.hibari.prepared_files import read_names, read_words
from vivavoce.models.hibari.voice import EncodedLine
from vivavoce.models.phonemes.english_ipa import SpelledWord
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, StepResult
from vivavoce.tts_engine.hibari import backend as hibari_backend
from vivavoce.tts_engine.hibari.backend import VOICE, HibariBackend, _render
from vivavoce.tts_engine.reading.clause_boundaries import BoundaryKind
from vivavoce.tts_engine.reading.pauses import usual_pause_s
from vivavoce.tts_engine.segmenter import Segment, Segmenter

MAX_END_SEMITONES, MAX_START_SEMITONES = 0.7, 0.2
MAX_CUT_SEMITONES = 1.5
MIN_QUESTION_SEMITONES, MAX_FALLING_SEMITONES = 2.0, 0.0
MIN_DEVIATION_SEMITONES = 3.4
MAX_SPEED_ERROR_PERCENT = 1.0
MAX_TONE_DB = -60.0
MAX_WRONG_NAMES_PERCENT = 2.0
SPEEDS = tuple(round(0.85 + 0.05 * step, 2) for step in range(24))  # 0.85 to 2.0
NAMES = 500
_PITCH_FRAMES = 12  # voiced, 0.15 s
_VOICED_HZ = 60.0
_STEADY_HZ = 140.0  # without glides into silence
_EDGE_SAMPLES = 480  # 20 ms of fades beside a pause


@dataclass(frozen=True, slots=True)
class Rendering:
    """What the backend rendered. samples: (N,) float32 at 24 kHz, pauses included."""

    lines: tuple[EncodedLine, ...]
    samples: NDArray[np.float32]


def measure() -> BenchReport:
    """Measure all figures, in a few seconds."""
    sentences = tomllib.loads(Path(__file__).with_name("melody.toml").read_text("utf-8"))
    backend = HibariBackend.load()
    try:
        figures = (
            *_joint_figures(backend, sentences["joints"]),
            *_phrase_figures(backend, sentences["phrases"]),
            *_question_figures(backend),
            *_melody_figures(backend, sentences["joints"]),
            *_speed_figures(backend, [joint.replace(" | ", " ") for joint in sentences["joints"][:10]]),
            *_tone_figures(backend, sentences["joints"][:10]),
            *_name_figures(),
        )
    finally:
        backend.close()
    return BenchReport("voice", figures)


def render(backend: HibariBackend, segments: Sequence[Segment], speed: float = 1.0) -> Rendering:
    """Render segments with a pause after each but the last."""
    slot = backend.open_slot(SlotRequest(VOICE.id, speed=speed, seed=1))
    lines: list[EncodedLine] = []
    parts: list[NDArray[np.float32]] = []

    def recorded(slot: Any, rendering: Any, *arguments: Any) -> StepResult:
        result = _render(slot, rendering, *arguments)
        if rendering.pieces == 1:
            lines.append(rendering.utterance)
        return result

    try:
        for index, segment in enumerate(segments):
            pause_s = usual_pause_s(segment.ending, speed) if index < len(segments) - 1 else 0.0
            turn = SlotTurn(slot, segment, pause_s)
            done = False
            while not done:
                with patch.object(hibari_backend, "_render", recorded):
                    (result,) = backend.step(0, [turn])
                assert not isinstance(result, Exception)
                turn, done = SlotTurn(slot, None), result.segment_done
                parts.append(result.samples)
    finally:
        backend.close_slot(slot)
    return Rendering(tuple(lines), np.concatenate(parts))


def segments_of(text: str) -> list[Segment]:
    """The segments of a text, as the engine cuts them."""
    segmenter = Segmenter()
    return segmenter.push(text) + segmenter.flush()


def _joined(segments: Sequence[Segment]) -> Segment:
    words = tuple(word for segment in segments for word in segment.words)
    return Segment(words, 0, segments[-1].stop, BoundaryKind.SENTENCE)


# Pitch


def end_semitones(line: EncodedLine, word: int = -1) -> float:
    """Pitch at the end of a word."""
    return _semitones(line.f0[: line.words[word][1]], slice(-_PITCH_FRAMES, None))


def start_semitones(line: EncodedLine, word: int = 0) -> float:
    """Pitch at the start of a word."""
    return _semitones(line.f0[line.words[word][0] :], slice(_PITCH_FRAMES))


def _semitones(f0: NDArray[np.float32], part: slice) -> float:
    """The median of a part of the voiced frames, above 1 Hz."""
    return float(12 * np.log2(np.median(f0[f0 > _VOICED_HZ][part])))


def _joint_figures(backend: HibariBackend, joints: Sequence[str]) -> Iterator[BenchFigure]:
    ends, starts = [], []
    for joint in joints:
        segments = segments_of(joint.replace(" | ", " "))
        words = len(joint.partition(" | ")[0].split())
        if len(segments[0].words) != words:
            continue  # the sentence is not cut there
        before, after, *_ = render(backend, segments).lines
        (whole,) = render(backend, [_joined(segments)]).lines
        ends.append(end_semitones(before) - end_semitones(whole, words - 1))
        starts.append(start_semitones(after) - start_semitones(whole, words))
    median_end, median_start = statistics.median(ends), statistics.median(starts)
    against = "against the sentence uncut, median"
    yield BenchFigure("clauses cut", len(ends), "")
    yield BenchFigure(f"pitch at a clause's end {against}", abs(median_end), "semitones", MAX_END_SEMITONES)
    yield BenchFigure(
        f"pitch at the next one's start {against}", abs(median_start), "semitones", MAX_START_SEMITONES
    )


def read_phrases() -> list[str]:
    """Sentences without a comma that the voice's rules were not chosen with."""
    sentences = tomllib.loads(Path(__file__).with_name("melody.toml").read_text("utf-8"))
    phrases: list[str] = sentences["other_phrases"]
    return phrases


def pitch_at_cuts(backend: HibariBackend, phrases: Sequence[str]) -> tuple[list[float], list[float]]:
    """Pitch before and after the first cut of each sentence above that of the uncut one, in semitones."""
    ends, starts = [], []
    for phrase in phrases:
        segments = segments_of(phrase)
        before, after, *_ = render(backend, segments).lines
        (whole,) = render(backend, [_joined(segments)]).lines
        words = len(segments[0].words)
        ends.append(end_semitones(before) - end_semitones(whole, words - 1))
        starts.append(start_semitones(after) - start_semitones(whole, words))
    return ends, starts


def _phrase_figures(backend: HibariBackend, phrases: Sequence[str]) -> Iterator[BenchFigure]:
    ends, starts = pitch_at_cuts(backend, phrases)
    others, _ = pitch_at_cuts(backend, read_phrases())
    against = "between phrases against the sentence uncut"
    yield BenchFigure("phrases cut", len(ends), "")
    for place, found, most in (
        ("before", ends, MAX_END_SEMITONES),
        ("after", starts, MAX_START_SEMITONES),
    ):
        median, worst = abs(statistics.median(found)), max(map(abs, found))
        size = statistics.median(map(abs, found))
        yield BenchFigure(
            f"size of the difference {place} a cut, median", size, "semitones", MAX_CUT_SEMITONES
        )
        yield BenchFigure(f"pitch {place} a cut {against}, median", median, "semitones", most)
        yield BenchFigure(f"pitch {place} a cut {against}, worst", worst, "semitones")
    size = statistics.median(map(abs, others))
    yield BenchFigure("the same before a cut of other sentences", size, "semitones", MAX_CUT_SEMITONES)


def read_questions() -> dict[str, dict[str, list[str]]]:
    """The questions by kind, of those that rise at their end and of those that fall."""
    questions: dict[str, dict[str, list[str]]] = tomllib.loads(
        Path(__file__).with_name("questions.toml").read_text("utf-8")
    )
    return questions


def question_end(backend: HibariBackend, question: str) -> float:
    """Pitch at the end of a question above the mean of its last line, in semitones."""
    return end_above_mean(render(backend, segments_of(question)).lines[-1])


def _question_figures(backend: HibariBackend) -> Iterator[BenchFigure]:
    ends = {
        direction: [question_end(backend, text) for texts in kinds.values() for text in texts]
        for direction, kinds in read_questions().items()
    }
    rising, falling = ends["rising"], ends["falling"]
    name = f"end of {len(rising)} rising questions above the line's mean"
    yield BenchFigure(f"{name}, lowest", min(rising), "semitones", None, MIN_QUESTION_SEMITONES)
    yield BenchFigure(f"{name}, median", statistics.median(rising), "semitones")
    name = f"end of {len(falling)} falling ones, highest"
    yield BenchFigure(name, max(falling), "semitones", MAX_FALLING_SEMITONES)


def _melody_figures(backend: HibariBackend, joints: Sequence[str]) -> Iterator[BenchFigure]:
    """How far the pitch moves, by the f0 that the vocoder gets."""
    deviations = []
    for joint in joints:
        lines = render(backend, segments_of(joint.replace(" | ", " "))).lines
        f0 = np.concatenate([line.f0[line.onset : line.frames] for line in lines])
        deviations.append(float(np.std(12 * np.log2(f0[f0 > _STEADY_HZ]))))
    name = f"standard deviation of pitch in {len(deviations)} sentences, mean"
    yield BenchFigure(name, statistics.mean(deviations), "semitones", None, MIN_DEVIATION_SEMITONES)


# Time and sound


def _speed_figures(backend: HibariBackend, texts: Sequence[str]) -> Iterator[BenchFigure]:
    cut = [segments_of(text) for text in texts]
    for how, parts in (("uncut", [[_joined(segments)] for segments in cut]), ("cut", cut)):

        def samples(speed: float, parts: Sequence[Sequence[Segment]] = parts) -> int:
            return sum(len(render(backend, segments, speed).samples) for segments in parts)

        usual = samples(1.0)
        errors = {speed: 100 * abs(usual / samples(speed) / speed - 1) for speed in SPEEDS}
        worst = max(errors, key=lambda speed: errors[speed])
        name = f"speed {SPEEDS[0]} to {SPEEDS[-1]} of sentences {how}, largest error (at {worst})"
        yield BenchFigure(name, errors[worst], "%", MAX_SPEED_ERROR_PERCENT)


def _tone_figures(backend: HibariBackend, joints: Sequence[str]) -> Iterator[BenchFigure]:
    """Level of the pauses between clauses, and of those that the voice makes inside the same sentences."""
    between, inside = [], []
    for joint in joints:
        segments = segments_of(joint.replace(" | ", " "))
        between.append(longest_pause(render(backend, segments).samples))
        inside.append(longest_pause(render(backend, [_joined(segments)]).samples))
    tone_db, own_db = level_db(np.concatenate(between)), level_db(np.concatenate(inside))
    yield BenchFigure("level of pauses between clauses", tone_db, "dBFS", MAX_TONE_DB)
    yield BenchFigure("level of the voice's own pauses in the same sentences uncut", own_db, "dBFS")


def longest_pause(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The longest part below -50 dBFS, without 20 ms at its ends."""
    loud = np.flatnonzero(np.abs(samples) > 10 ** (-50 / 20))
    at = int(np.diff(loud).argmax())
    return samples[loud[at] + _EDGE_SAMPLES : max(loud[at] + _EDGE_SAMPLES, loud[at + 1] - _EDGE_SAMPLES)]


def level_db(samples: NDArray[np.float32]) -> float:
    """Level in dBFS; -inf for digital silence."""
    power = float(np.mean(np.square(samples, dtype=np.float64))) if len(samples) else 0.0
    return 10 * float(np.log10(power)) if power else float("-inf")


# Names


def _name_figures() -> Iterator[BenchFigure]:
    words = read_words()
    names = random.Random(0).sample(sorted(words.keys() - read_names().keys()), NAMES)
    phonemizer = Phonemizer.load()
    wrong = 0
    for name in names:
        (said,) = phonemizer.word_phonemes([SpelledWord(name.capitalize())])
        wrong += differing_sounds(_sounds(said), _sounds(words[name])) >= 2
    yield BenchFigure(
        f"of {NAMES} names of CMUdict, two or more sounds wrong",
        100 * wrong / NAMES,
        "%",
        MAX_WRONG_NAMES_PERCENT,
    )


def _sounds(phonemes: str) -> str:
    """Without marks of stress, and with one of the two signs of a flap."""
    return phonemes.strip().translate(str.maketrans("ɾ", "T", "ˈˌ"))


def differing_sounds(said: str, expected: str) -> int:
    """Sounds to insert, leave out or replace. Source: Levenshtein 1966."""
    row = list(range(len(expected) + 1))
    for count, sound in enumerate(said, 1):
        costs = [count]
        for index, (diagonal, above) in enumerate(pairwise(row)):
            costs.append(min(above + 1, costs[-1] + 1, diagonal + (sound != expected[index])))
        row = costs
    return row[-1]
