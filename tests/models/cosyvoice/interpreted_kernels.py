"""Runs the fused kernels in Triton's interpreter, on the CPU, and prints their errors against torch as JSON.

A process of its own, because Triton reads TRITON_INTERPRET when it is imported:

    TRITON_INTERPRET=1 python interpreted_kernels.py
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vivavoce.models.cosyvoice.config import CosyVoiceVersion, DitConfig, SpeechLmConfig, UnetConfig
from vivavoce.models.cosyvoice.flow import dit, unet
from vivavoce.models.cosyvoice.flow.attention_memory import PagedBuffers
from vivavoce.models.cosyvoice.flow.attention_plan import PagedAttentionPlan, PagePlacement, make_paged_plan
from vivavoce.models.cosyvoice.flow.policy import CacheForm
from vivavoce.models.cosyvoice.kernels import flow_kernels, fused_kernels, lm_kernels
from vivavoce.models.cosyvoice.lm import speech_lm
from vivavoce.models.decoding.kv_memory import plan_kv_step
from vivavoce.models.devices.execution import Precision
from vivavoce.models.networks import layers
from vivavoce.models.networks.precision import LARGEST_FACTOR, MatrixRole, linear_class, split_matrix
from vivavoce.models.networks.state import map_state, tensors

_HEADS, _BLOCK = 2, 10


@torch.no_grad()
def errors() -> Iterator[tuple[str, float]]:
    """The largest error of each kernel."""
    torch.manual_seed(0)
    yield from _split_matrix()
    yield from _transformer_block()
    yield from _convolutions()
    yield from _estimator_step(
        unet.FlowUnet(UnetConfig(channels=32, head_width=16, heads=_HEADS, blocks=1, mid_blocks=1))
    )
    yield from _estimator_step(dit.FlowDit(DitConfig(width=64, head_width=64, heads=_HEADS, depth=2)))
    for precision in (Precision.FP32, Precision.FP16):
        yield from _language_model_layer(precision)
    for version in CosyVoiceVersion:
        yield from _embedding(version)


def _split_matrix() -> Iterator[tuple[str, float]]:
    """What the halves of a matrix leave out, beside its values, from the largest factor to one of 1e-6."""
    exponents = torch.linspace(math.log(1e-6), math.log(LARGEST_FACTOR), 4096)
    matrix = (exponents.exp() * torch.where(torch.rand(4096) < 0.5, -1.0, 1.0)).view(64, 64)
    high, low = split_matrix(matrix).double()
    left_out = (high + low / 2048 - matrix.double()).abs()
    yield "halves", float((left_out - matrix.abs() * 2.0**-22).max() / 2.0**-36)


def _transformer_block() -> Iterator[tuple[str, float]]:
    """Rows at different frames, some with unused pages, one with pages of another; some slots unseen.

    Programs that attend to 16 slots at once have the slots of a row in four parts, of which some are empty.
    """
    x, norm = torch.randn(4, 20, 64), _drawn_norm(64)
    matrix = torch.randn(3 * 128, 64) / 8
    table = torch.tensor([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0], [7, 8, 9, 0, 0], [1, 2, 10, 11, 0]])
    written = torch.tensor([[3, 4, 9], [5, 6, 9], [8, 9, 9], [10, 11, 9]])[:, :2]
    slots_in_use = torch.tensor([40, 17, 30, 33])
    visible = torch.arange(50) < slots_in_use[:, None, None, None]
    visible = visible & (torch.rand(4, 1, 20, 50) > 0.3)
    visible[2, :, 3] = False
    counters = torch.zeros(4 * _HEADS * 2, dtype=torch.int32)  # of 16 and of 4 frames
    unused = torch.zeros(0)
    plan = PagedAttentionPlan(table, written, unused, unused, visible, slots_in_use, None, (0, 0), counters)
    normed = fused_kernels.layer_norm(x, norm)
    yield "norm", _distance(normed, norm(x))
    projected = F.linear(norm(x), matrix)
    for dtype in (torch.float16, torch.float32):
        pools = torch.randn(16, 3, 2, _BLOCK, 128).to(dtype)
        pool, expected_pool = pools.clone()[:, 1], pools.clone()[:, 1]
        query = flow_kernels.project_to_pages(normed, split_matrix(matrix), None, pool, written)
        keys_values = projected[..., 128:].reshape(4, 20, 2, 128).transpose(1, 2)
        expected_pool[written] = keys_values.reshape(4, 2, 2, _BLOCK, 128).transpose(1, 2).to(dtype)
        yield "queries", _distance(query, projected[..., :128])
        yield f"pages in {dtype}", _distance(pool.float(), expected_pool.float())
        read = pool[table].transpose(1, 2).flatten(2, 3).float()
        parts = (part.unflatten(2, (_HEADS, -1)).transpose(1, 2) for part in (query, read[:, 0], read[:, 1]))
        expected = F.scaled_dot_product_attention(*parts, visible).transpose(1, 2).flatten(2).nan_to_num()
        yield (
            "attention over pages",
            _distance(flow_kernels.attend_pages(query, pool, plan, _HEADS), expected),
        )
        with patch.object(flow_kernels, "_SLOTS", 16):
            attended = flow_kernels.attend_pages(query, pool, plan, _HEADS)
        yield "attention in parts", _distance(attended, expected)
        yield "counters", float(counters.abs().max())
    attended, bias = torch.randn(4, 20, 128), torch.randn(64)
    matrix = torch.randn(64, 128) / 8
    added = fused_kernels.product(attended, split_matrix(matrix), bias, residual=x)
    yield "product and residual", _distance(added, x + F.linear(attended, matrix, bias))
    matrix, bias = torch.randn(128, 64) / 8, torch.randn(128)
    projected = fused_kernels.product(normed, split_matrix(matrix), bias, activation="gelu")
    yield "product, GELU", _distance(projected, F.gelu(F.linear(norm(x), matrix, bias)))
    with patch.object(fused_kernels, "BUSY_PROGRAMS", 1):
        large = fused_kernels.product(normed, split_matrix(matrix), bias, activation="gelu")
    yield "product in large tiles", _distance(large, projected)


def _convolutions() -> Iterator[tuple[str, float]]:
    x, norm = torch.randn(3, 20, 64), _drawn_norm(64)
    matrix, bias = torch.randn(32, 3 * 64) / 8, torch.randn(32)
    context = torch.randn(3, 400)[:, 7 : 7 + 2 * 64].unflatten(1, (2, 64))  # rows that are apart
    with_context = torch.cat([context, x], 1)
    columns = torch.cat([with_context[:, lag : lag + 20] for lag in range(3)], 2)
    convolved = fused_kernels.product(with_context, split_matrix(matrix), bias)
    yield "causal convolution", _distance(convolved, F.linear(columns, matrix, bias))
    for offset in (None, torch.randn(1, 1, 64), torch.randn(3, 1, 64)):
        expected = F.mish(norm(9 * x)) if offset is None else F.mish(norm(9 * x)) + offset
        yield "norm and Mish", _distance(fused_kernels.norm_mish(9 * x, norm, offset), expected)


def _estimator_step(network: unet.FlowUnet | dit.FlowDit) -> Iterator[tuple[str, float]]:
    """A whole step on pages, of chunks of which one ends early."""
    _draw_and_prepare(network)
    with patch("vivavoce.models.networks.precision.has_fused_kernels", return_value=True):
        network.prepare()
    places = PagePlacement(
        torch.tensor([100, 50]),
        torch.tensor([143, 100]),
        torch.tensor([[1, 2, 3, 4], [5, 6, 7, 0]]),
        torch.tensor([[3], [6]]),
        torch.tensor([0, 0]),
    )
    plan = make_paged_plan(places, 50, None, is_last=True, heads=_HEADS)
    drawn = map_state(torch.randn_like, network.init_state(2, 50, CacheForm.KEYS_VALUES, torch.float32))
    empty = network.init_state(9, 50, CacheForm.KEYS_VALUES, torch.float16)
    assert isinstance(empty.cache, Tensor)
    pool = torch.randn(empty.cache.shape).half()
    x, conditions = torch.randn(2, 50, 80), torch.randn(2, 50, 240)
    offsets = network.time_offsets(torch.tensor([0.3]))
    results = []
    for is_fused in (False, True):
        state = replace(drawn, cache=PagedBuffers(pool.clone()))
        with (
            patch.object(unet, "has_fused_kernels", return_value=is_fused),
            patch.object(dit, "has_fused_kernels", return_value=is_fused),
            patch.object(flow_kernels, "_SLOTS", 16),
        ):
            results.append(network.step(x, conditions, offsets, state, plan, CacheForm.KEYS_VALUES))
    (expected, expected_state), (velocity, state) = results
    yield "velocity", _distance(velocity, expected)
    assert isinstance(state.cache, PagedBuffers) and isinstance(expected_state.cache, PagedBuffers)
    # The scratch page is left out: padding of several rows is written there in any order.
    yield "pages", _distance(state.cache.pool[1:].float(), expected_state.cache.pool[1:].float())
    contexts, expected_contexts = (
        tensors(replace(each, cache=torch.zeros(0))) for each in (state, expected_state)
    )
    pairs = zip(contexts, expected_contexts, strict=True)
    yield "contexts", max(_distance(found, wanted) for found, wanted in pairs if wanted.numel())


def _language_model_layer(precision: Precision) -> Iterator[tuple[str, float]]:
    """One row a session and several, a row of padding among them, in one layer of a larger memory."""
    config = SpeechLmConfig(
        version=CosyVoiceVersion.V2, hidden=96, heads=6, kv_heads=2, layers=1, intermediate=192
    )
    layer = speech_lm._DecoderLayer(config, *(linear_class(precision, role, 0) for role in MatrixRole))
    _draw_and_prepare(layer)
    few = lm_kernels.MAX_VECTORS
    for columns, max_vectors in ((1, few), (5, few), (1, 1)):
        positions = torch.tensor([7, 20, 11])[:, None] + torch.arange(columns)
        write_positions = positions.clone()
        write_positions[0, -1] = 40
        attention = plan_kv_step(positions, write_positions, 40, config.queries_per_key)
        plan = speech_lm.make_lm_step_plan(attention, positions, config)
        x, memory = torch.randn(3, columns, 96), torch.randn(3, 4, 2, 2, 41, config.head_width)
        results = []
        for is_fused in (False, True):
            kv = memory.clone()
            with (
                patch.object(speech_lm._DecoderLayer, "has_fused_kernels", return_value=is_fused),
                patch.multiple(lm_kernels, MAX_VECTORS=max_vectors, _SLOTS=16, _DEPTH=64),
            ):
                results.append((layer(x, kv[:, 1], plan), kv))
        (expected, expected_kv), (found, kv) = results
        yield f"layer in {precision}", _distance(found, expected)
        yield f"memory in {precision}", _distance(kv, expected_kv)


def _embedding(version: CosyVoiceVersion) -> Iterator[tuple[str, float]]:
    """Text, speech and in version 2 control inputs, at the first and at late positions."""
    config = SpeechLmConfig(
        version=version, hidden=96, heads=6, kv_heads=2, layers=1, intermediate=192, text_vocab_size=50
    )
    lm = speech_lm.SpeechLm(config)
    _draw_and_prepare(lm)
    last = sum(len(table.weight) for table in (lm.text_embedding, *lm._speech_tables())) - 1
    indices, positions = (
        torch.tensor([[0, 49, 50], [7000, last, 6000]]),
        torch.tensor([[0, 1, 2], [6143, 9, 77]]),
    )
    indices = indices.clamp(max=last)
    attention = plan_kv_step(positions, positions, 27, config.queries_per_key)
    expected, expected_plan = lm.embed_and_plan(indices, positions, attention)
    lm._periods()  # made once
    with (
        patch.object(speech_lm.SpeechLm, "has_fused_kernels", True),
        patch.object(lm_kernels, "_embed_and_rotate_kernel", CountedKernel()) as kernel,
        LaunchCount() as launched,
    ):
        lm.embed_and_plan(indices, positions, attention)
    yield "launches beyond one kernel and the counters", float(kernel.calls - 1 + launched.count - 1)
    with patch.object(speech_lm.SpeechLm, "has_fused_kernels", True):
        found, plan = lm.embed_and_plan(indices, positions, attention)
    yield "embedding", _distance(found, expected)
    yield "rotation", max(_distance(plan.cos, expected_plan.cos), _distance(plan.sin, expected_plan.sin))


class CountedKernel:
    """Takes the place of a kernel and counts its launches."""

    calls = 0

    def __getitem__(self, grid: object) -> "CountedKernel":
        return self

    def __call__(self, *arguments: object, **options: object) -> None:
        self.calls += 1


class LaunchCount(TorchDispatchMode):
    """Counts operations of torch that launch a kernel on a card: not views, nor allocations."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        self.count += not (function.is_view or "empty" in name or "detach" in name or "alias" in name)
        return function(*args, **(kwargs or {}))


def _drawn_norm(width: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(width).requires_grad_(False)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def _draw_and_prepare(network: nn.Module) -> None:
    network.requires_grad_(False)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)
    with patch.object(layers, "pack_matrix", Tensor.contiguous):  # as on a GPU
        layers.prepare_modules(network)


def _distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


if __name__ == "__main__":
    print(json.dumps(list(errors())))
