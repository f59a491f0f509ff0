"""The training loop: it goes on after a kill as if nothing had been, and adds up over processes."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the [train] extra is not installed")

from shared.training import made_up_dataset  # noqa: E402
from shared.training.made_up_dataset import random_part, run_settings, write_dataset  # noqa: E402
from shared.training.short_run import SETTINGS, train  # noqa: E402
from vivavoce.models.cosyvoice.training.dataset import DatasetError, TrainingDataset  # noqa: E402
from vivavoce.models.cosyvoice.training.draws import DrawSeed  # noqa: E402
from vivavoce.models.cosyvoice.training.dropout import DROPOUT  # noqa: E402
from vivavoce.models.cosyvoice.training.flow_loss import TrainingLoss  # noqa: E402
from vivavoce.models.cosyvoice.training.loop import run_folder  # noqa: E402
from vivavoce.models.cosyvoice.training.loop.run_folder import (  # noqa: E402
    TrainingRunError,
    TrainingRunFolder,
)
from vivavoce.models.cosyvoice.training.loop.trainer import Trainer, TrainingStep  # noqa: E402

PARTS = ("lm", "flow")
SMALLER_PIECES = ["out of memory: batches are computed in smaller pieces from now on"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> TrainingDataset:
    return write_dataset(tmp_path_factory.mktemp("dataset"), 22)


def program(*arguments: object, launcher: Sequence[str] = ()) -> "subprocess.Popen[str]":
    command = [sys.executable, *launcher, made_up_dataset.__file__, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("name", PARTS)
def test_a_killed_run_goes_on_with_the_same_losses_to_the_last_bit(
    name: str, dataset: TrainingDataset, tmp_path: Path
) -> None:
    killed = program(dataset.folder, tmp_path, name, 14)
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.startswith("6 "):
            killed.kill()
            break
    killed.communicate()
    settings = run_settings(max_steps=9)
    whole, resumed = (
        train(name, dataset, folder, settings, part=random_part(name, dropout=DROPOUT))
        for folder in (tmp_path / "whole", tmp_path / name)
    )
    assert [step.step for step in whole] == [*range(1, 10)]
    assert 2 <= len(resumed) <= 5  # from the checkpoint after step 4, or a later one
    found, wanted = (
        [(step.step, step.loss, step.validation_loss) for step in steps]
        for steps in (resumed, whole[-len(resumed) :])
    )
    assert found == wanted


def test_two_processes_have_the_loss_of_one_with_the_same_rows(
    dataset: TrainingDataset, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rendezvous = f"--rdzv-endpoint=127.0.0.1:{port}"
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", rendezvous)
    run = tmp_path / "two"
    two, _ = program(dataset.folder, run, ",".join(PARTS), 6, 200, launcher=launcher).communicate()
    settings = run_settings(max_steps=6)
    one = [step.loss for name in PARTS for step in train(name, dataset, tmp_path / name, settings)]
    found = [float.fromhex(line.split()[1]) for line in two.splitlines()]
    assert len(found) == 12
    assert found == pytest.approx(one, rel=1e-5)


def test_accumulated_batches_and_halved_ones_have_the_loss_of_the_whole(
    dataset: TrainingDataset, tmp_path: Path
) -> None:
    class SmallMemory(type(random_part("lm"))):  # type: ignore[misc]
        def loss(self, dataset: TrainingDataset, numbers: Sequence[int], *draws: Any) -> TrainingLoss:
            if len(numbers) > 2:
                raise torch.OutOfMemoryError
            return super().loss(dataset, numbers, *draws)  # type: ignore[no-any-return]

    settings, notices = replace(SETTINGS, max_steps=3, max_frames=800), list[str]()
    wanted = train("lm", dataset, tmp_path / "whole", settings)
    small = SmallMemory(random_part("lm").network)
    halved = train("lm", dataset, tmp_path / "halved", settings, part=small, on_notice=notices.append)
    assert [step.loss for step in halved] == pytest.approx([step.loss for step in wanted], rel=1e-5)
    assert notices == SMALLER_PIECES


def test_validation_that_does_not_fit_the_memory_has_the_loss_of_the_whole(
    dataset: TrainingDataset, tmp_path: Path
) -> None:
    class SmallMemory(type(random_part("flow"))):  # type: ignore[misc]
        def loss(self, dataset: TrainingDataset, numbers: Sequence[int], *draws: Any) -> TrainingLoss:
            if not self.network.training and len(numbers) > 1:
                raise torch.OutOfMemoryError
            return super().loss(dataset, numbers, *draws)  # type: ignore[no-any-return]

    settings, notices = replace(SETTINGS, held_out=0.5), list[str]()
    wanted = Trainer(random_part("flow"), dataset, settings, TrainingRunFolder(tmp_path)).validation()
    small = SmallMemory(random_part("flow").network)
    run = TrainingRunFolder(tmp_path)
    found = Trainer(small, dataset, settings, run, on_notice=notices.append).validation()
    assert found == pytest.approx(wanted, rel=1e-5)
    assert notices == SMALLER_PIECES


def test_an_optimizer_that_does_not_fit_the_memory_ends_the_run_with_a_sentence(
    dataset: TrainingDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(adamw: torch.optim.AdamW) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.optim.AdamW, "step", fail)
    with pytest.raises(
        TrainingRunError, match=r"optimizer's step: it keeps two moments of each of \d[\d,]+ "
    ):
        train("lm", dataset, tmp_path, replace(SETTINGS, max_steps=1))


def test_a_loss_that_is_no_number_stops_the_run_with_the_name_of_the_utterance(
    dataset: TrainingDataset, tmp_path: Path
) -> None:
    class Poisoned(type(random_part("flow"))):  # type: ignore[misc]
        def loss(self, dataset: TrainingDataset, numbers: Sequence[int], seed: DrawSeed, step: int) -> Any:
            found = super().loss(dataset, numbers, seed, step)
            if any(dataset.entries[number].name == "utterance 7" for number in numbers) and step >= 6:
                return replace(found, total=found.total * float("nan"))
            return found

    poisoned = Poisoned(random_part("flow").network)
    settings = replace(SETTINGS, checkpoint_steps=2, max_steps=40, held_out=0.01)
    with pytest.raises(TrainingRunError, match=r"of: utterance 7\."):
        train("flow", dataset, tmp_path, settings, part=poisoned)
    found = TrainingRunFolder(tmp_path).latest()
    assert found is not None and all(bool(tensor.isfinite().all()) for tensor in found[1].values())


def test_a_run_that_is_stopped_has_a_checkpoint_of_its_last_step(
    dataset: TrainingDataset, tmp_path: Path
) -> None:
    steps: list[TrainingStep] = []
    trainer = Trainer(random_part("lm"), dataset, SETTINGS, TrainingRunFolder(tmp_path), on_step=steps.append)
    trainer.train(should_stop=lambda: len(steps) == 3)
    found = TrainingRunFolder(tmp_path).latest()
    assert found is not None and found[0].step == 3


def test_a_disk_that_fills_keeps_the_checkpoint_before(
    dataset: TrainingDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, checkpoint_steps=2, max_steps=2)
    train("lm", dataset, tmp_path, settings)

    def fill(tensors: Any, path: Path) -> None:
        path.write_bytes(b"half a file")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(run_folder, "save_file", fill)
        with pytest.raises(OSError, match="No space"):
            train("lm", dataset, tmp_path, replace(settings, max_steps=4))
    assert [path.name for path in TrainingRunFolder(tmp_path).checkpoints()] == ["step-00000002"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    assert [step.step for step in train("lm", dataset, tmp_path, replace(settings, max_steps=4))] == [3, 4]


def test_a_pickle_in_the_place_of_a_checkpoint_or_a_shard_is_refused_and_not_executed(
    tmp_path: Path,
) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, tuple[Path]]:
            return Path.touch, (tmp_path / "executed",)

    data = write_dataset(tmp_path / "data", 2)
    steps = train("lm", data, tmp_path / "run", replace(SETTINGS, max_steps=1))
    assert len(steps) == 1
    for path in [*tmp_path.glob("run/checkpoints/*/state.safetensors"), *tmp_path.glob("data/*.safetensors")]:
        torch.save(Harmful(), path)
    with pytest.raises(TrainingRunError, match="damaged"):
        train("lm", data, tmp_path / "run", replace(SETTINGS, max_steps=2))
    with pytest.raises(DatasetError):
        TrainingDataset(tmp_path / "data")
    assert not (tmp_path / "executed").exists()


def test_validation_draws_the_same_each_time(dataset: TrainingDataset, tmp_path: Path) -> None:
    trainer = Trainer(random_part("flow"), dataset, SETTINGS, TrainingRunFolder(tmp_path))
    assert trainer.validation() == trainer.validation()


def test_a_run_is_not_continued_with_other_settings(tmp_path: Path) -> None:
    TrainingRunFolder(tmp_path).open({"part": "lm", "learning_rate": 1e-5})
    TrainingRunFolder(tmp_path).open({"part": "lm", "learning_rate": 1e-5})
    with pytest.raises(TrainingRunError, match="begun with learning_rate"):
        TrainingRunFolder(tmp_path).open({"part": "lm", "learning_rate": 1e-4})
