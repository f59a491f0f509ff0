"""The flow with one float16 product instead of one of float32, by torch on a CPU. Needs torch.

The kernels of ``models.kernels`` round both factors to float16 and sum in float32, for the matrices
and the attention of the estimator. Here the same factors are rounded and everything is computed in float32:
only the order of sums is another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.flow import attention, dit, unet
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.networks import load_flow
from vivavoce.models.networks import layers, precision
from vivavoce.models.networks.layers import CausalConv, Linear, QkvProjection

_LOG2_E = 1.4426950408889634


def load_flow_with_float16_products(bundle: CosyVoiceBundle) -> Flow:
    """A flow to be run within ``rounded_attention``."""
    with (
        patch.object(layers, "pack_matrix", Tensor.contiguous),  # as on a card
        patch.object(precision, "has_fused_kernels", return_value=True),  # the layers that are split there
    ):
        flow = load_flow(bundle)
    assert round_factors(flow)
    return flow


def round_factors(network: nn.Module) -> int:
    """Round both factors of the products of layers that were split; returns their number."""
    split = [
        module
        for module in network.modules()
        if isinstance(module, Linear | CausalConv | QkvProjection) and module.halves is not None
    ]
    for module in split:
        assert module.halves is not None
        rounded = module.halves[0].float()
        if isinstance(module, QkvProjection):
            inner = len(rounded) // 3
            module.query_matrix, module.key_value_matrix = rounded[:inner], rounded[inner:]
            for name in ("project_queries", "project_keys_values"):
                setattr(module, name, _of_rounded(getattr(module, name)))
        else:
            module.matrix = rounded
            module.register_forward_pre_hook(lambda _, inputs: tuple(map(_rounded, inputs)))
    return len(split)


@contextmanager
def rounded_attention() -> Iterator[None]:
    """Round the factors of the estimators' attention, but not of the encoder's, which no kernel computes."""

    def attend(*arguments: Any) -> Tensor:
        with patch.object(F, "scaled_dot_product_attention", _attend_rounded):
            return attention.attend(*arguments)

    with patch.object(dit, "attend", attend), patch.object(unet, "attend", attend):
        yield


def _of_rounded(project: Any) -> Any:
    return lambda x: project(_rounded(x))


def _rounded(x: Tensor) -> Tensor:
    return x.half().float()


def _attend_rounded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = _rounded(query * (_LOG2_E * query.shape[-1] ** -0.5)) @ _rounded(key).mT
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + _LOG2_E * mask
    largest = scores.amax(-1, keepdim=True)
    weights = torch.exp2(scores - largest.where(largest.isfinite(), 0.0))
    total = weights.sum(-1, keepdim=True)
    return _rounded(weights) @ _rounded(value) / total.where(total > 0, 1.0)
