"""The metrics of a run: CSV with a line for each step, event files of TensorBoard, and a picture."""

import csv
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from .trainer import TrainingStep

METRICS_FILE, CURVES_FILE = "metrics.csv", "curves.png"
_COLUMNS = [field.name for field in fields(TrainingStep)]


class TrainingMetrics:
    """Writes the metrics of a run. A run that is continued after ``step`` drops the lines behind it."""

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboardX import SummaryWriter

        self._path = folder / METRICS_FILE
        kept = [row for row in read_metrics(folder) if int(row["step"]) <= step]
        self._file = self._path.open("w", encoding="utf-8", newline="")
        self._csv = csv.DictWriter(self._file, _COLUMNS)
        self._csv.writeheader()
        self._csv.writerows(kept)
        self._events = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def add(self, step: TrainingStep) -> None:
        """Add a step."""
        row: Mapping[str, Any] = {name: value for name, value in asdict(step).items() if value is not None}
        self._csv.writerow(row)
        self._file.flush()
        for name in ("loss", "accuracy", "gradient_norm", "learning_rate", "validation_loss"):
            if name in row:
                self._events.add_scalar(name, row[name], step.step)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        self._events.close()


def read_metrics(folder: Path) -> list[dict[str, str]]:
    """The whole lines of a run's metrics; empty without any."""
    path = folder / METRICS_FILE
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["step"].isdigit() and row["loss"]]


def draw_curves(folder: Path) -> Path | None:
    """Draw training and validation loss; returns the picture, or None without matplotlib or steps."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    if not (rows := read_metrics(folder)):
        return None
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [int(row["step"]) for row in rows], [float(row["loss"]) for row in rows], lw=0.8, label="training"
    )
    checked = [row for row in rows if row["validation_loss"]]
    steps = [int(row["step"]) for row in checked]
    axes.plot(
        steps, [float(row["validation_loss"]) for row in checked], "o-", label="validation, fixed draws"
    )
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend()
    axes.grid(alpha=0.3)
    path = folder / CURVES_FILE
    figure.savefig(path, dpi=120)
    return path
