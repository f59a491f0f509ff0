"""Random choices of training, each a function of a seed and of what it is for.

Upstream draws from global generators, whose state differs by the batches that came before, and all its
processes draw the same numbers. Here an utterance draws the same in any batch, on any number of processes and
after a resumption. Validation uses one seed and one epoch throughout, so that its losses can be compared.

Source: the distributions of FunAudioLLM/CosyVoice@ace7c47 llm/llm.py:318, flow/flow.py:195-214,
flow/flow_matching.py:173-187.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..config import MEL_BANDS
from .flow_loss import FlowDraws

INTERLEAVED_SHARE = 0.5  # of the rows of the language model
STREAMING_SHARE = 0.5  # of the batches of the flow
PROMPT_SHARE = 0.5  # of the rows of the flow
MAX_PROMPT = 0.3  # of a row's frames
UNCONDITIONED_SHARE = 0.2  # of the rows of the flow


@dataclass(frozen=True, slots=True)
class DrawSeed:
    """What all draws of one pass over the data depend on."""

    seed: int
    epoch: int = 0

    def generator(self, *purpose: int) -> np.random.Generator:
        """The generator for a purpose, such as the number of an utterance."""
        return np.random.default_rng([self.seed, self.epoch, *purpose])


def draw_interleaved(seed: DrawSeed, utterance: int) -> bool:
    """Whether the language model's row of an utterance is to be interleaved."""
    return bool(seed.generator(0, utterance).random() < INTERLEAVED_SHARE)


def draw_flow(seed: DrawSeed, step: int, utterances: Sequence[int], frames: Sequence[int]) -> FlowDraws:
    """The draws of a batch of the flow: utterances of ``frames`` mel frames each, in step ``step``."""
    rows = [
        _FlowRow(seed.generator(1, utterance), count)
        for utterance, count in zip(utterances, frames, strict=True)
    ]
    noise = torch.zeros(len(rows), max(frames), MEL_BANDS)
    for place, row in enumerate(rows):
        noise[place, : len(row.noise)] = torch.from_numpy(row.noise)
    return FlowDraws(
        bool(seed.generator(2, step).random() < STREAMING_SHARE),
        torch.tensor([row.prompt_frames for row in rows]),
        torch.tensor([row.time for row in rows], dtype=torch.float32),
        noise,
        torch.tensor([row.kept for row in rows]),
    )


class _FlowRow:
    def __init__(self, generator: np.random.Generator, frames: int) -> None:
        has_prompt = generator.random() < PROMPT_SHARE
        longest = int(MAX_PROMPT * frames)
        self.prompt_frames = int(generator.integers(longest, endpoint=True)) if has_prompt else 0
        self.time = float(generator.random())
        self.kept = bool(generator.random() > UNCONDITIONED_SHARE)
        self.noise = generator.standard_normal((frames, MEL_BANDS), dtype=np.float32)
