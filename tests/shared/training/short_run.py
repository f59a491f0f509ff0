"""A short training of a random part of a bundle."""

from pathlib import Path
from typing import Any

from vivavoce.models.cosyvoice.training.dataset import TrainingDataset
from vivavoce.models.cosyvoice.training.loop.optimization import TrainingSettings
from vivavoce.models.cosyvoice.training.loop.run_folder import TrainingRunFolder
from vivavoce.models.cosyvoice.training.loop.trainer import Trainer, TrainingStep

from .made_up_dataset import random_part

SETTINGS = TrainingSettings(
    learning_rate=2e-3,
    warmup_steps=10,
    max_frames=500,
    accumulate=1,
    epochs=1000,
    averaging=0.9,
    held_out=0.1,
)


def train(
    name: str, dataset: TrainingDataset, folder: Path, settings: TrainingSettings, **options: Any
) -> list[TrainingStep]:
    steps: list[TrainingStep] = []
    part = options.pop("part", None) or random_part(name)
    Trainer(part, dataset, settings, TrainingRunFolder(folder), on_step=steps.append, **options).train()
    return steps
