"""Writes a bundle with trained weights and the voices of the data set as named ones."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....models.cosyvoice.checkpoint.bundle import open_bundle
from ....models.cosyvoice.checkpoint.speakers import SPEAKERS_FILE
from ...errors import BadRequest
from .recordings import DEFAULT_SPEAKER

if TYPE_CHECKING:
    from ....models.cosyvoice.training.bundle_parts import PartOptions

CHOICE_FILE = "chosen.json"
_CARD = "README.md"
_NOT_COPIED = ("onnx", _CARD, ".git", ".cache")


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run and the checkpoint of it that is used."""

    folder: Path
    settings: dict[str, Any]
    checkpoint: Path

    @property
    def options(self) -> "PartOptions":
        """What the run trained."""
        from ....models.cosyvoice.training.bundle_parts import PartOptions

        return PartOptions(**{field.name: self.settings[field.name] for field in fields(PartOptions)})


def open_run(folder: Path, checkpoint: str | None = None) -> TrainedRun:
    """A run with the checkpoint named, the chosen one, or the latest.

    Raises TrainingRunError and BadRequest.
    """
    from ....models.cosyvoice.training.loop.run_folder import TrainingRunFolder

    run = TrainingRunFolder(folder)
    settings, found = run.settings(), {one.name: one for one in run.checkpoints()}
    if not found:
        raise BadRequest(f"{folder}: no checkpoint yet; run vivavoce finetune train first")
    choice = folder / CHOICE_FILE
    if checkpoint is None and choice.exists():
        checkpoint = json.loads(choice.read_text("utf-8"))["checkpoint"]
    name = checkpoint or max(found)
    if name not in found:
        raise BadRequest(f"{folder}: no checkpoint {name}; there are {', '.join(found)}")
    return TrainedRun(folder, settings, found[name])


def export_runs(runs: Sequence[TrainedRun], out: Path, voice: str | None = None) -> tuple[str, ...]:
    """Write the bundle of one run, or of several runs that trained different parts of one bundle.

    voice: name of the voice, if the data set has a single speaker. Returns the names of the voices. Raises
    BadRequest, also for a folder that is not empty, InvalidBundleError, TrainingRunError, DatasetError and
    OSError.
    """
    from ....models.cosyvoice.training import bundle_parts
    from ....models.cosyvoice.training.dataset import TrainingDataset

    base = _common_base(runs)
    if out.exists() and any(out.iterdir()):
        raise BadRequest(f"{out}: is not empty; give a new folder")
    bundle = open_bundle(base)
    dataset = TrainingDataset(Path(runs[0].settings["dataset"]))
    replaced = {bundle_parts.WEIGHT_FILES[run.options.part] for run in runs}
    with _new_folder(out) as partial:
        _copy_bundle(base, partial, replaced)
        for run in runs:
            bundle_parts.write_weights(bundle, run.options, run.checkpoint, partial)
        names = _add_speakers(base, partial, dataset, voice)
        (partial / _CARD).write_text(_model_card(runs, dataset, names, partial, out.name), "utf-8")
        open_bundle(partial)
    return names


@contextlib.contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that becomes it after the block; what a killed process left there goes."""
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            out.rmdir()
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _common_base(runs: Sequence[TrainedRun]) -> Path:
    bases = {run.settings["bundle"] for run in runs}
    parts = [run.options.part for run in runs]
    if len(bases) > 1:
        raise BadRequest(f"the runs are of {len(bases)} bundles: {', '.join(sorted(bases))}")
    if len(set(parts)) < len(parts):
        raise BadRequest(f"two runs trained the same part: {', '.join(parts)}")
    return Path(bases.pop())


def _copy_bundle(base: Path, out: Path, replaced: set[str]) -> None:
    names = {name for file in replaced for name in (file, str(Path(file).with_suffix(".safetensors")))}
    for path in base.iterdir():
        if path.name in names or path.name in _NOT_COPIED or path.name == SPEAKERS_FILE:
            continue
        target = out / path.name
        shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)
    if (base / _CARD).exists():
        shutil.copy2(base / _CARD, out / f"BASE_{_CARD}")


def _add_speakers(base: Path, out: Path, dataset: Any, voice: str | None) -> tuple[str, ...]:
    from ....models.cosyvoice.checkpoint.speakers import write_speakers

    speakers = sorted({entry.speaker for entry in dataset.entries})
    if voice and len(speakers) > 1:
        raise BadRequest(f"the data set has {len(speakers)} speakers, who keep their names; omit --voice")
    single = voice or (DEFAULT_SPEAKER if speakers == [DEFAULT_SPEAKER] else None)
    names = [single or speaker for speaker in speakers] if len(speakers) == 1 else speakers
    embeddings = {
        name: dataset.speaker_embedding(speaker) for name, speaker in zip(names, speakers, strict=True)
    }
    write_speakers(base / SPEAKERS_FILE, out / SPEAKERS_FILE, embeddings)
    return tuple(names)


def _model_card(runs: Sequence[TrainedRun], dataset: Any, names: Sequence[str], out: Path, title: str) -> str:
    base = Path(runs[0].settings["bundle"]).name
    minutes = sum(entry.seconds for entry in dataset.entries) / 60
    licences = sorted(
        path.name for path in out.iterdir() if path.name.upper().startswith(("LICENSE", "NOTICE"))
    )
    licence = ", ".join(licences) or "no licence file was in its folder"
    if (out / f"BASE_{_CARD}").exists():
        licence += f"; BASE_{_CARD} is its own card"
    lines = [
        f"# {title}",
        "",
        f"CosyVoice {dataset.about.version}, trained further from {base} on {minutes:.1f} minutes of "
        f"{len(dataset.entries)} recordings. Voices: {', '.join(names)}.",
        "",
        f"Licence: that of {base} ({licence}). A voice may need the consent of its speaker, too.",
        "",
        "| part | checkpoint | learning rate | parameters trained |",
        "|---|---|---|---|",
    ]
    for run in runs:
        rank = run.options.adapter_rank
        trained = f"adapters of rank {rank}" if rank else "all"
        rate = run.settings["settings"]["learning_rate"]
        lines.append(f"| {run.options.part} | {run.checkpoint.name} | {rate:g} | {trained} |")
    figures = [run.folder / "evaluation.md" for run in runs if (run.folder / "evaluation.md").exists()]
    for path in figures:
        lines += ["", path.read_text("utf-8").strip()]
    speak = f'vivavoce say --bundle {title} --voice {names[0]} "Good morning."'
    return "\n".join([*lines, "", "```sh", speak, "```", ""])
