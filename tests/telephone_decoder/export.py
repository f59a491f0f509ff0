"""Writes a student's weights as the product reads them: float16, with its norm of the input folded in."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from telephone_decoder.student import Student, StudentBlock


@torch.no_grad()
def weights_of(student: Student) -> dict[str, NDArray[np.float16]]:
    """The weights as ``models.hibari.telephone_graph.read_weights`` gives them."""
    taps = sum(student.size.input_reach) + 1
    scale, mean = (student.get_buffer(name).repeat(taps) for name in ("scale", "mean"))
    first = student.first.weight * scale
    found: dict[str, Tensor] = {"first_weight": first.T, "first_bias": student.first.bias - first @ mean}
    for index, block in enumerate(student.blocks):
        assert isinstance(block, StudentBlock)
        found |= {
            f"taps_{index}": block.taps,
            f"taps_bias_{index}": block.bias,
            f"widen_{index}_weight": block.widen.weight.T,
            f"widen_{index}_bias": block.widen.bias,
            f"narrow_{index}_weight": block.narrow.weight.T,
            f"narrow_{index}_bias": block.narrow.bias,
        }
    found |= {"head_weight": student.head.weight.T, "head_bias": student.head.bias}
    return {name: np.ascontiguousarray(weight.numpy(), np.float16) for name, weight in found.items()}


def write(student: Student, path: Path) -> str:
    """Write the weights; returns the file's SHA-256."""
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **weights_of(student))
    return hashlib.sha256(path.read_bytes()).hexdigest()
