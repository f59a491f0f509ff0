"""The training loop learns; a nightly test, as it computes for a minute."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the [train] extra is not installed")

from shared.training.made_up_dataset import write_dataset
from shared.training.short_run import SETTINGS, train
from vivavoce.models.cosyvoice.training.dataset import TrainingDataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> TrainingDataset:
    return write_dataset(tmp_path_factory.mktemp("dataset"), 22)


def test_the_language_model_learns_20_utterances_by_heart(dataset: TrainingDataset, tmp_path: Path) -> None:
    steps = train("lm", dataset, tmp_path, replace(SETTINGS, learning_rate=5e-3, max_steps=300))
    assert max(step.accuracy for step in steps[-20:]) >= 0.99


def test_the_loss_of_the_flow_falls_below_a_tenth(dataset: TrainingDataset, tmp_path: Path) -> None:
    steps = train("flow", dataset, tmp_path, replace(SETTINGS, max_steps=300))
    last = sum(step.loss for step in steps[-20:]) / 20
    assert last < steps[0].loss / 10
