"""A data set of made-up utterances for the reduced networks, and a program that trains on it.

python made_up_dataset.py DATASET RUN lm,flow,vocoder STEPS     as torchrun starts it, too
"""

import sys
from pathlib import Path

import numpy as np
import torch

from shared.audio.harmonic_voice import harmonic_voice
from vivavoce.models.cosyvoice.checkpoint.random_bundle import tiny_config
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import flow_shapes, hift_shapes, llm_shapes
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.training.dataset import (
    DatasetAbout,
    DatasetWriter,
    PreparedUtterance,
    TrainingDataset,
)
from vivavoce.models.cosyvoice.training.dropout import DROPOUT, add_dropout
from vivavoce.models.cosyvoice.training.loop.optimization import TrainingSettings
from vivavoce.models.cosyvoice.training.loop.processes import join_processes, leave_processes
from vivavoce.models.cosyvoice.training.loop.run_folder import TrainingRunFolder
from vivavoce.models.cosyvoice.training.loop.trainer import Trainer, TrainingStep
from vivavoce.models.cosyvoice.training.networks import trainable_flow, trainable_lm, trainable_vocoder
from vivavoce.models.cosyvoice.training.parts import FlowPart, LmPart, TrainedPart
from vivavoce.models.cosyvoice.training.vocoder.discriminators import DiscriminatorWidths
from vivavoce.models.cosyvoice.training.vocoder.part import VocoderPart

ABOUT = DatasetAbout(version=2, digest="made up")
WIDTHS = DiscriminatorWidths((4, 4, 8, 8, 8), 4)


def made_up_utterance(number: int, ids: int = 0) -> PreparedUtterance:
    """An utterance of some ids; equal numbers give equal ones."""
    draws = np.random.default_rng(number)
    count = ids or int(draws.integers(20, 60))
    text = tuple(draws.integers(0, 300, count // 4).tolist())
    mel = np.repeat(draws.standard_normal((count // 5 + 1, 80)), 10, 0)[: 2 * count] - 4
    speech = draws.integers(0, 6561, count).astype(np.int32)
    embedding = draws.standard_normal(192).astype(np.float32)
    samples = (harmonic_voice(count / 25) * 32_767).astype(np.int16)
    return PreparedUtterance(
        f"utterance {number}", "made up", "anna", text, speech, mel.astype(np.float32), embedding, samples
    )


def write_dataset(folder: Path, count: int) -> TrainingDataset:
    """A data set of made-up utterances."""
    writer = DatasetWriter(folder, ABOUT)
    for number in range(count):
        writer.add(made_up_utterance(number))
    writer.flush()
    return TrainingDataset(folder)


def random_part(
    name: str, version: CosyVoiceVersion = CosyVoiceVersion.V2, dropout: float = 0.0
) -> TrainedPart:
    """A reduced network with random weights."""
    config, generator = tiny_config(version), torch.Generator().manual_seed(0)
    shapes = {
        "lm": llm_shapes(config.lm),
        "flow": flow_shapes(config.flow),
        "vocoder": hift_shapes(config.hift, version),
    }[name]
    weights = {
        key: 1 + torch.zeros(shape)
        if len(shape) == 1 and key.endswith("weight")
        else torch.randn(shape, generator=generator) / (shape[-1] ** 0.5 if len(shape) > 1 else 50)
        for key, shape in shapes.items()
    }
    if name == "lm":
        return LmPart(trainable_lm(config.lm, weights))
    if name == "vocoder":
        return VocoderPart(trainable_vocoder(config.hift, version, weights), 0, widths=WIDTHS, crop_frames=12)
    flow = trainable_flow(config.flow, weights)
    if dropout:
        add_dropout(flow, dropout)
    return FlowPart(flow, dropout=dropout)


def run_settings(max_steps: int, max_frames: int = 400) -> TrainingSettings:
    """Settings of the program, with which a test in its own process repeats a run."""
    return TrainingSettings(
        learning_rate=1e-3,
        warmup_steps=5,
        max_frames=max_frames,
        epochs=100,
        max_steps=max_steps,
        checkpoint_steps=4,
        held_out=0.1,
    )


def main(dataset: str, run: str, names: str, steps: str, max_frames: str = "400") -> None:
    """Train each of the parts, which commas separate, and print a line for each step."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    processes = join_processes(torch.device("cpu"))
    settings = run_settings(int(steps), int(max_frames))

    def show(step: TrainingStep) -> None:
        if processes.is_first:
            print(step.step, step.loss.hex(), step.validation_loss, flush=True)

    for name in names.split(","):
        part = random_part(name, dropout=DROPOUT if processes.count == 1 else 0.0)
        folder = TrainingRunFolder(Path(run) / name)
        data = TrainingDataset(Path(dataset))
        Trainer(part, data, settings, folder, processes=processes, on_step=show).train()
    leave_processes(processes)


if __name__ == "__main__":
    main(*sys.argv[1:])
