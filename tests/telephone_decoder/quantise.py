"""Quantizes a student to 8-bit integers, as the product computes it.

An activation has one range for all its channels, but hidden frames one for each channel. Weights are at most
64 in size: two products with an activation of 8 bits then fit into 16 bits, as which processors without VNNI
add them. The rows of a weight are rounded one after another, and those that are left correct the error that
the rounding has made so far in the products of these inputs (GPTQ).

Source: Frantar et al. 2022, GPTQ: Accurate Post-Training Quantization, arXiv:2210.17323.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from telephone_decoder.student import PAIR, Student, StudentBlock

FRAMES = 24_000  # of hidden frames that ranges and weights are fitted to, 5 minutes
_LEVELS = 255  # between the least and the greatest integer of an activation
_GREATEST_WEIGHT = 64
_DAMPING = 0.01  # of the mean of the inputs' power

Arrays = dict[str, NDArray[Any]]
Float = NDArray[np.float32]


@torch.no_grad()
def quantised(student: Student, hidden: Float) -> Arrays:
    """The weights as ``models.hibari.telephone_graph.read_weights`` gives them.

    hidden: (N, 130), frames of speech.
    """
    products = _products(student)
    inputs = _inputs(student, products, hidden[: FRAMES - FRAMES % PAIR])
    found: Arrays = {}
    for name, layer in products.items():
        weight, bias, x = layer.weight.T.numpy(), layer.bias.numpy(), inputs[name]
        if name == "first":
            weight, bias, x = _quantised_input(found, student, weight, bias, x)
        else:
            found |= _range_of(name, x)
        found[f"{name}_weight"], found[f"{name}_scale"] = _rounded(weight, x)
        found[f"{name}_bias"] = bias
    for index, block in enumerate(student.blocks):
        assert isinstance(block, StudentBlock)
        found |= {f"taps_{index}": block.taps.numpy(), f"taps_bias_{index}": block.bias.numpy()}
    return found


def _products(student: Student) -> dict[str, nn.Linear]:
    """The products by name, in their order."""
    blocks = [block for block in student.blocks if isinstance(block, StudentBlock)]
    of_blocks = {
        f"{name}_{index}": layer
        for index, block in enumerate(blocks)
        for name, layer in (("widen", block.widen), ("narrow", block.narrow))
    }
    return {"first": student.first, **of_blocks, "head": student.head}


def _inputs(student: Student, products: Mapping[str, nn.Linear], hidden: Float) -> dict[str, Float]:
    """The inputs (rows, K) of the products for hidden frames between silence."""
    found: dict[str, Float] = {}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found[name] = inputs[0].flatten(0, -2).numpy()

        return hook

    hooks = [layer.register_forward_pre_hook(keep(name)) for name, layer in products.items()]
    before, after = (PAIR * rows for rows in student.size.reach)
    student(torch.from_numpy(np.pad(hidden, ((before, after), (0, 0))))[None])
    for hook in hooks:
        hook.remove()
    return found


def _quantised_input(
    found: Arrays, student: Student, weight: Float, bias: Float, standard: Float
) -> tuple[Float, Float, Float]:
    """Weight and bias for hidden frames as integers, and these less their zero: (rows, K).

    standard: the inputs as the student has them, standardized.
    """
    taps = sum(student.size.input_reach) + 1
    scale, mean = (student.get_buffer(name).numpy() for name in ("scale", "mean"))
    pairs = standard.reshape(-1, len(mean)) / scale + mean
    low, high = (np.minimum(pairs.min(0), 0), np.maximum(pairs.max(0), 0))  # zeros surround a line
    step, center = (high - low) / _LEVELS, (high + low) / 2
    zero = np.full(len(step), (_LEVELS + 1) // 2, np.uint8)
    found |= {"input_center": center, "input_step": step, "input_zero": zero}
    found |= {"first_step": np.array(1, np.float32), "first_zero": zero[0]}
    of_raw = weight * np.tile(scale, taps)[:, None]
    integers = (pairs - center) / step
    bias = bias + np.tile(center - mean, taps) @ of_raw
    return of_raw * np.tile(step, taps)[:, None], bias, integers.reshape(standard.shape)


def _range_of(name: str, x: Float) -> Arrays:
    """How a product's inputs become integers."""
    low, high = x.min(), x.max()
    step = (high - low) / _LEVELS
    zero = np.rint(-low / step).astype(np.uint8)
    return {f"{name}_step": np.array(step, np.float32), f"{name}_zero": zero}


def _rounded(weight: Float, inputs: Float) -> tuple[NDArray[np.int8], Float]:
    """A weight (K, N) as int8 and the scale of each column. inputs: (rows, K), that it is multiplied with."""
    left = weight.astype(np.float64)
    scale = np.abs(left).max(0) / _GREATEST_WEIGHT
    power = inputs.T.astype(np.float64) @ inputs
    power[np.diag_indices(len(power))] += _DAMPING * np.trace(power) / len(power)
    factor = np.linalg.cholesky(np.linalg.inv(power)).T
    rounded = np.zeros(weight.shape, np.int8)
    for row in range(len(left)):
        rounded[row] = np.clip(np.rint(left[row] / scale), -_GREATEST_WEIGHT, _GREATEST_WEIGHT)
        error = (left[row] - rounded[row] * scale) / factor[row, row]
        left[row + 1 :] -= np.outer(factor[row, row + 1 :], error)
    return rounded, scale.astype(np.float32)
