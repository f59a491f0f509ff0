"""The metrics of a run: the same numbers in CSV and in TensorBoard's event files, also of a continued run."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the [train] extra is not installed")
pytest.importorskip("tensorboardX", reason="the [train] extra is not installed")

from tensorboardX.proto.event_pb2 import Event

from vivavoce.models.cosyvoice.training.loop.metrics import TrainingMetrics, read_metrics
from vivavoce.models.cosyvoice.training.loop.trainer import TrainingStep

NAMES = ("loss", "accuracy", "gradient_norm", "learning_rate", "validation_loss")


def made_up_step(number: int, validation_loss: float | None = None) -> TrainingStep:
    return TrainingStep(number, 1, 4 / number, 0.25 * number, 1.5, 1e-4, 0.1, 3, validation_loss)


def events(folder: Path) -> Iterator[Event]:
    """The events of all files, oldest first. A record: length, checksum, content, checksum."""
    for path in sorted((folder / "tensorboard").iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            yield Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]


def test_event_files_have_the_numbers_of_the_csv(tmp_path: Path) -> None:
    first = TrainingMetrics(tmp_path, 0)
    for step in (made_up_step(1), made_up_step(2, 3.5), made_up_step(3)):
        first.add(step)
    first.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    file.rename(file.with_name("events.out.tfevents.0"))  # they are named by the second
    continued = TrainingMetrics(tmp_path, 2)  # killed after step 3, with a checkpoint after step 2
    continued.add(made_up_step(3, 3.25))
    continued.close()

    found: dict[tuple[str, int], float] = {}
    purged = []
    for event in events(tmp_path):
        if event.session_log.status == event.session_log.START:
            purged.append(event.step)
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    assert purged[-1] == 3  # TensorBoard drops what came after the checkpoint
    rows = {int(row["step"]): row for row in read_metrics(tmp_path)}
    assert [*rows] == [1, 2, 3]
    wanted = {(name, step): float(row[name]) for step, row in rows.items() for name in NAMES if row[name]}
    assert found == pytest.approx(wanted)
    assert {name for name, _ in found} == set(NAMES)
