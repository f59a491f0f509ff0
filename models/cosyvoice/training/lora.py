"""Low-rank adapters of the language model: a few numbers are trained beside each frozen matrix.

    y = W x + alpha / rank B A x        A (rank, inputs): small noise; B (outputs, rank): zeros at the start

The product of A and B is added to W at export, so that a trained model is as fast as its base.

Source: E. Hu et al., LoRA (arXiv:2106.09685); A as in its reference implementation (Kaiming, uniform).
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...networks.layers import Linear
from ..lm.speech_lm import SpeechLm

ADAPTED = ("qkv", "output", "gate_up", "down")  # matrices of a decoder layer
_DOWN, _UP = "adapter_down", "adapter_up"


class AdaptedLinear(Linear):
    """A frozen product with a trained product of low rank beside it."""

    def __init__(self, base: Linear, rank: int, alpha: float, generator: torch.Generator) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias = base.weight, base.bias
        self.register_buffer("matrix", None, persistent=False)
        self.halves = None
        weight = base.get_parameter("weight")
        outputs, inputs = weight.shape
        bound = 1 / math.sqrt(inputs)
        drawn = torch.empty(rank, inputs).uniform_(-bound, bound, generator=generator)
        self.adapter_down = nn.Parameter(drawn.to(weight.device))
        self.adapter_up = nn.Parameter(weight.new_zeros(outputs, rank))
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., inputs) -> (..., outputs)."""
        return super().forward(x) + F.linear(F.linear(x, self.adapter_down), self.adapter_up) * self.scale


def add_adapters(lm: SpeechLm, rank: int, alpha: float, seed: int) -> None:
    """Freeze the language model and give the matrices of its layers adapters."""
    lm.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for layer in lm.layers:
        for name in ADAPTED:
            setattr(layer, name, AdaptedLinear(layer.get_submodule(name), rank, alpha, generator))  # type: ignore[arg-type]


def merge_adapters(state: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The parameters of the network without adapters: their products are added to the matrices."""
    merged = {}
    for name, tensor in state.items():
        place, _, kind = name.rpartition(".")
        if kind in (_DOWN, _UP):
            continue
        up = state.get(f"{place}.{_UP}")
        if kind == "weight" and up is not None:
            tensor = tensor + scale * (up @ state[f"{place}.{_DOWN}"])
        merged[name] = tensor
    return merged
