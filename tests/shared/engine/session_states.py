"""Helpers for tests of states: rows written back into a pool, and the size of a state."""

from collections.abc import Sequence

import torch

from vivavoce.models.networks.state import State, tensors


@torch.inference_mode()
def scatter(pool: State, rows: Sequence[int], state: State) -> None:
    """Write the rows of a state over some rows of the pool, in place; the reverse of ``gather``."""
    for target, source in zip(tensors(pool), tensors(state), strict=True):
        target[torch.tensor(rows)] = source


def size_bytes(state: object) -> int:
    """Memory of all tensors of a state."""
    return sum(tensor.nbytes for tensor in tensors(state))
