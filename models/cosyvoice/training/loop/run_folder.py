"""The folder of a training run: its settings, its metrics and its checkpoints.

    RUN/run.json                              what is trained, and how
    RUN/metrics.csv                           a line for each step
    RUN/checkpoints/step-00000200/weights.safetensors     trained parameters, averaged
                                 /state.safetensors       parameters, moments of the optimizer
                                 /state.json              place in the data, validation loss

A checkpoint appears whole or not at all. Old ones keep only their weights, the oldest of those go. Nothing is
unpickled.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_STATES_KEPT, _WEIGHTS_KEPT = 2, 12


class TrainingRunError(ValueError):
    """A run cannot be started or continued; the message says why."""


@dataclass(frozen=True, slots=True)
class TrainingPlace:
    """Where a run stands, after ``step`` steps."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # of the epoch, the next one
    halvings: int = 0  # of the batches, for want of memory
    validation_loss: float | None = None
    best_validation_loss: float | None = None


class TrainingRunFolder:
    """Reads and writes the files of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checkpoints = folder / "checkpoints"

    def open(self, settings: Mapping[str, Any]) -> None:
        """Create the folder, or check that it holds a run with these settings. Raises TrainingRunError."""
        path = self.folder / "run.json"
        wanted = json.loads(json.dumps(dict(settings)))
        if path.exists():
            found = self.settings()
            changed = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
            if changed:
                key = changed[0]
                raise TrainingRunError(
                    f"{self.folder}: begun with {key} {found.get(key)!r}, not {wanted.get(key)!r}; "
                    "give the same settings to continue it, or another folder"
                )
            return
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        _write_text(path, json.dumps(wanted, indent=1))

    def settings(self) -> dict[str, Any]:
        """The settings of the run. Raises TrainingRunError if there is none."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "run.json").read_text("utf-8"))
            return found
        except (OSError, ValueError) as error:
            raise TrainingRunError(f"{self.folder}: no training run ({error})") from error

    def checkpoints(self) -> list[Path]:
        """Folders of the checkpoints, oldest first."""
        return sorted(self._checkpoints.glob("step-" + "[0-9]" * 8))

    def save(self, place: TrainingPlace, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Path:
        """Write a checkpoint and forget old ones. Raises OSError; the checkpoints before it are kept."""
        target = self._checkpoints / f"step-{place.step:08}"
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            _save_tensors(partial / "weights.safetensors", weights)
            _save_tensors(partial / "state.safetensors", state)
            _write_text(partial / "state.json", json.dumps(asdict(place)))
            shutil.rmtree(target, ignore_errors=True)
            partial.replace(target)
        except SafetensorError as error:
            raise OSError(f"{target}: {error}; is there room on the disk?") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        self._forget_old()
        return target

    def _forget_old(self) -> None:
        found = self.checkpoints()
        for checkpoint in found[:-_STATES_KEPT]:
            (checkpoint / "state.safetensors").unlink(missing_ok=True)
        for checkpoint in found[:-_WEIGHTS_KEPT]:
            shutil.rmtree(checkpoint)

    def latest(self) -> tuple[TrainingPlace, dict[str, Tensor]] | None:
        """The newest checkpoint that a run can go on from; None without one. Raises TrainingRunError."""
        whole = [one for one in self.checkpoints() if (one / "state.safetensors").exists()]
        if not whole:
            return None
        return read_place(whole[-1]), read_tensors(whole[-1] / "state.safetensors")


def read_place(checkpoint: Path) -> TrainingPlace:
    """Where a run stood at a checkpoint. Raises TrainingRunError."""
    try:
        return TrainingPlace(**json.loads((checkpoint / "state.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise TrainingRunError(f"{checkpoint}: damaged ({error}); delete it to use the one before") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint's file. Raises TrainingRunError."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise TrainingRunError(f"{path}: damaged ({error}); delete its folder") from error


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _write_text(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under longer names."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, under the rest of their names."""
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


def free_cached_memory(device: torch.device) -> None:
    """Return cached memory of a card to it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
