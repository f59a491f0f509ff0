"""Evaluates the checkpoints of a run: chooses one, and compares it with its base."""

import asyncio
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ....models.cosyvoice.checkpoint.bundle import open_bundle
from ....models.cosyvoice.training.dataset import TrainingDataset, UtteranceEntry, split_held_out
from ...errors import BadRequest
from ..enrolment import load_voice_encoder
from .evaluation import (
    AT_ONCE,
    SOURCES,
    EvaluatedSentence,
    EvaluationPlan,
    SourceFigures,
    SpeechRecogniser,
    choose_checkpoint,
    speak_sentences,
    summarize,
)
from .exporting import CHOICE_FILE, TrainedRun, export_runs, open_run

_VOICE = "trained"
_PROMPT_S = (3.0, 15.0)  # length of the recording that the base is prompted with
_CHOSEN_WITH = 8  # sentences


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """What was found."""

    checkpoint: str
    by_checkpoint: dict[str, SourceFigures]  # empty unless one was to be chosen
    figures: list[SourceFigures]
    spoken: list[EvaluatedSentence]


def evaluate_run(
    folder: Path,
    recogniser: SpeechRecogniser,
    *,
    sentences: int = 20,
    choose: bool = False,
    with_base: bool = True,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> RunEvaluation:
    """Evaluate the chosen checkpoint of a run, or choose one first by what all of them say.

    Writes chosen.json and evaluation.md into the run. Raises BadRequest, InvalidBundleError, DatasetError,
    TrainingRunError and OSError.
    """
    run = open_run(folder)
    dataset = TrainingDataset(Path(run.settings["dataset"]))
    settings = run.settings["settings"]
    trained_on, held_out = split_held_out(dataset.entries, settings["held_out"], settings["seed"])
    spoken_entries = _one_speaker([dataset.entries[number] for number in held_out])[:sentences]
    prompts = [dataset.entries[number] for number in trained_on]
    encoder = load_voice_encoder(open_bundle(Path(run.settings["bundle"])))
    checkpoints = [path.name for path in run.checkpoint.parent.glob("step-*")] if choose else []
    few = spoken_entries[:_CHOSEN_WITH]
    total = len(checkpoints) * len(few) + (4 if with_base else 3) * len(spoken_entries)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        on_progress(done, total)

    def speak(
        one: TrainedRun, entries: list[UtteranceEntry], sources: tuple[str, ...]
    ) -> list[EvaluatedSentence]:
        speaker = entries[0].speaker
        prompt = next((each for each in prompts if _is_prompt(each, speaker)), None)
        base = Path(run.settings["bundle"]) if with_base else None
        with tempfile.TemporaryDirectory(prefix="vivavoce-") as parent:
            bundle = Path(parent) / "bundle"
            names = export_runs([one], bundle)
            voice = speaker if speaker in names else names[0]
            plan = EvaluationPlan(bundle, base, voice, tuple(entries), prompt)
            speaking = speak_sentences(
                plan, dataset, encoder, recogniser, sources=sources, on_progress=advance
            )
            return asyncio.run(speaking)

    by_checkpoint = {
        name: summarize(speak(open_run(folder, name), few, (AT_ONCE,)))[0] for name in sorted(checkpoints)
    }
    if by_checkpoint:
        chosen = choose_checkpoint(by_checkpoint)
        (folder / CHOICE_FILE).write_text(json.dumps({"checkpoint": chosen}), "utf-8")
        run = open_run(folder, chosen)
    spoken = speak(run, spoken_entries, SOURCES)
    figures = summarize(spoken)
    (folder / "evaluation.md").write_text(_table(figures, len(spoken_entries)), "utf-8")
    return RunEvaluation(run.checkpoint.name, by_checkpoint, figures, spoken)


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
