"""Evaluates the checkpoints of a run: chooses one, and compares it with its base."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ....models.cosyvoice.checkpoint.bundle import open_bundle
from ....models.cosyvoice.training.dataset import TrainingDataset, UtteranceEntry, split_held_out
from ...errors import BadRequest
from ..enrolment import load_voice_encoder
from .evaluation import (
    BASE,
    PROMPTED,
    SOURCES,
    STREAMED,
    EvaluatedSentence,
    EvaluationPlan,
    SourceFigures,
    SpeechRecogniser,
    SpokenFolder,
    choose_checkpoint,
    speak_sentences,
    summarize,
)
from .exporting import CHOICE_FILE, TrainedRun, export_runs, open_run

_SPOKEN_FOLDER = "spoken"
_PROMPT_S = (3.0, 15.0)  # length of the recording that the base is prompted with
_CHOSEN_WITH = 8  # sentences


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """What was found."""

    checkpoint: str
    by_checkpoint: dict[str, SourceFigures]  # empty unless one was to be chosen
    figures: list[SourceFigures]
    spoken: list[EvaluatedSentence]


class _InterruptedEvaluation(Exception):
    """The caller asked to stop."""


def evaluate_run(
    folder: Path,
    recogniser: SpeechRecogniser,
    *,
    sentences: int = 20,
    choose: bool = False,
    with_base: bool = True,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunEvaluation | None:
    """Evaluate the chosen checkpoint of a run, or choose one first by what all of them say.

    Writes chosen.json and evaluation.md into the run, and speech into its folder spoken, from which a later
    call takes it. Returns None if it was stopped. Raises BadRequest, InvalidBundleError, DatasetError,
    TrainingRunError and OSError.
    """
    run = open_run(folder)
    bundles = _BundlesOfRun(run, sentences, with_base)
    encoder = load_voice_encoder(open_bundle(bundles.base))
    few = bundles.sentences[:_CHOSEN_WITH]
    checkpoints = sorted(path.name for path in run.checkpoint.parent.glob("step-*")) if choose else []
    total = len(checkpoints) * len(few) + len(bundles.sources) * len(bundles.sentences)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        on_progress(done, total)
        if should_stop():
            raise _InterruptedEvaluation

    def speak(
        one: TrainedRun, entries: Sequence[UtteranceEntry], source: str | None
    ) -> list[EvaluatedSentence]:
        sources = bundles.sources if source is None else (source,)
        with bundles.plan(one, entries) as plan:
            speaking = speak_sentences(
                plan, bundles.dataset, encoder, recogniser, sources=sources, on_progress=advance
            )
            return asyncio.run(speaking)

    try:
        by_checkpoint = {
            name: summarize(speak(open_run(folder, name), few, STREAMED))[0] for name in checkpoints
        }
        if by_checkpoint:
            chosen = choose_checkpoint(by_checkpoint)
            (folder / CHOICE_FILE).write_text(json.dumps({"checkpoint": chosen}), "utf-8")
            run = open_run(folder, chosen)
        spoken = speak(run, bundles.sentences, None)
    except _InterruptedEvaluation:
        return None
    figures = summarize(spoken)
    (folder / "evaluation.md").write_text(_table(figures, len(bundles.sentences)), "utf-8")
    return RunEvaluation(run.checkpoint.name, by_checkpoint, figures, spoken)


class _BundlesOfRun:
    """The bundles of a run, the sentences that they speak, and the recording that prompts them."""

    def __init__(self, run: TrainedRun, sentences: int, with_base: bool) -> None:
        self.base = Path(run.settings["bundle"])
        self.dataset = TrainingDataset(Path(run.settings["dataset"]))
        settings, entries = run.settings["settings"], self.dataset.entries
        trained_on, held_out = split_held_out(entries, settings["held_out"], settings["seed"])
        self.sentences = _one_speaker([entries[number] for number in held_out])[:sentences]
        self._speaker = self.sentences[0].speaker
        prompts = (entries[number] for number in trained_on)
        self._prompt = next((one for one in prompts if _is_prompt(one, self._speaker)), None)
        missing = {PROMPTED, BASE} if self._prompt is None else set() if with_base else {BASE}
        self.sources = tuple(source for source in SOURCES if source not in missing)

    @contextmanager
    def plan(self, run: TrainedRun, entries: Sequence[UtteranceEntry]) -> Iterator[EvaluationPlan]:
        """What is spoken; the bundle of the run's checkpoint is written when it is needed."""
        with tempfile.TemporaryDirectory(prefix="vivavoce-") as parent:

            @cache
            def export() -> Path:
                export_runs([run], Path(parent) / "bundle")
                return Path(parent) / "bundle"

            kept = SpokenFolder(run.folder / _SPOKEN_FOLDER / run.checkpoint.name)
            yield EvaluationPlan(export, self.base, self._speaker, tuple(entries), self._prompt, kept)


def _one_speaker(entries: list[UtteranceEntry]) -> list[UtteranceEntry]:
    """The entries of the speaker who has most of them."""
    if not entries:
        raise BadRequest("no sentence was held out")
    speakers = [entry.speaker for entry in entries]
    most = max(sorted(set(speakers)), key=speakers.count)
    return [entry for entry in entries if entry.speaker == most]


def _is_prompt(entry: UtteranceEntry, speaker: str) -> bool:
    shortest, longest = _PROMPT_S
    return entry.speaker == speaker and shortest <= entry.seconds <= longest


def _table(figures: list[SourceFigures], sentences: int) -> str:
    rows = [f"| {one.source} | {one.wrong_percent:.1f} | {one.similarity:.3f} |" for one in figures]
    head = [
        f"{sentences} held-out sentences:",
        "",
        "| source | words wrong, % | similarity |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""])
