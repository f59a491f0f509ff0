"""A loss as a sum and a count, so that batches of any split, and of several processes, add up to one mean."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TrainingLoss:
    """The loss of a batch; ``total / count`` is the mean that upstream reports."""

    total: Tensor  # () sum over all targets, differentiable
    count: int  # targets: ids of the language model, frames times bands of the flow
    correct: int = 0  # targets that are the likeliest id

    @property
    def mean(self) -> Tensor:
        """The loss a target."""
        return self.total / self.count

    @property
    def accuracy(self) -> float:
        """Share of the targets that are the likeliest id."""
        return self.correct / self.count


def in_full_precision(x: Tensor) -> Tensor:
    """The tensor in float32 at least: losses are summed in it."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
