"""The loss of the language model: cross entropy of the speech ids, the fill ids and the end.

Rows are padded at the right, where nothing before sees them. The decoder's own layers run without a memory:
``_WholeRows`` takes the place of the plan that writes to one.

Source: FunAudioLLM/CosyVoice@ace7c47 llm/llm.py:351-405, transformer/label_smoothing_loss.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ...decoding.kv_memory import KvStepPlan
from ..config import SpeechLmConfig
from ..lm.generation import lm_input_index
from ..lm.speech_lm import SpeechLm, make_lm_step_plan
from .flow_loss import TrainingLoss
from .lm_rows import NO_TARGET, LmRow


@dataclass(frozen=True, slots=True)
class LmBatch:
    """Rows of one step, padded at the right."""

    indices: Tensor  # (B, T) int64 of ``lm_input_index``; 0 at padding
    targets: Tensor  # (B, T) int64, ``NO_TARGET`` where nothing is predicted

    def to(self, device: torch.device) -> "LmBatch":
        """The batch on a device."""
        return LmBatch(self.indices.to(device), self.targets.to(device))


def join_lm_rows(config: SpeechLmConfig, rows: Sequence[LmRow]) -> LmBatch:
    """Pad rows to one batch, on the host. Raises IndexError for a text or speech id out of range."""
    shape = len(rows), max(len(row.inputs) for row in rows)
    indices, targets = torch.zeros(shape, dtype=torch.int64), torch.full(shape, NO_TARGET)
    for place, row in enumerate(rows):
        indices[place, : len(row.inputs)] = torch.tensor([lm_input_index(config, one) for one in row.inputs])
        targets[place, : len(row.targets)] = torch.tensor(row.targets)
    return LmBatch(indices, targets)


def lm_loss(lm: SpeechLm, batch: LmBatch, smoothing: float = 0.0) -> TrainingLoss:
    """The loss of a batch. smoothing: share of the probability that is given to all other ids."""
    hidden = run_whole_rows(lm, batch.indices)
    is_target = batch.targets != NO_TARGET
    targets = batch.targets[is_target]
    scores = (
        lm.logits(hidden[is_target]).float() if hidden.dtype.itemsize < 4 else lm.logits(hidden[is_target])
    )
    correct = int((scores.argmax(-1) == targets).sum())
    return TrainingLoss(_smoothed_cross_entropy(scores, targets, smoothing), len(targets), correct)


def run_whole_rows(lm: SpeechLm, indices: Tensor) -> Tensor:
    """Hidden states of whole rows, normed and differentiable: (B, T) int64 -> (B, T, hidden)."""
    columns, config = indices.shape[1], lm.config
    positions = torch.arange(columns, device=indices.device)[None]
    seen = (positions <= positions[0][:, None]).repeat(config.queries_per_key, 1)  # (G * T, T)
    attention = _WholeRows(positions, positions, columns, seen[None, None])
    no_memory = indices.new_empty(0, config.layers)
    return lm.run_layers(lm.embed(indices), no_memory, make_lm_step_plan(attention, positions, config))


class _WholeRows(KvStepPlan):
    """A step that is all there is: it attends to its own keys and values."""

    __slots__ = ()

    def update(self, kv: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = new.transpose(1, 3).unbind(2)  # (B, kv_heads, T, head_width)
        return keys, values


def _smoothed_cross_entropy(scores: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum of the divergences from one-hot targets, smoothed over the other ids."""
    if not smoothing:
        return functional.cross_entropy(scores, targets, reduction="sum")
    others = scores.shape[-1] - 1
    share = smoothing / others
    log_shares = scores.log_softmax(-1)
    of_target = log_shares.gather(-1, targets[:, None])[:, 0]
    cross = (1 - smoothing - share) * of_target + share * log_shares.sum(-1)
    entropy = (1 - smoothing) * math.log(1 - smoothing) + smoothing * math.log(share)
    return entropy * len(targets) - cross.sum()
