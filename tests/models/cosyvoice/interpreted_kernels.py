"""Runs the fused kernels in Triton's interpreter, on the CPU, and prints their errors against torch as JSON.

A process of its own, because Triton reads TRITON_INTERPRET when it is imported:

    TRITON_INTERPRET=1 python interpreted_kernels.py
"""

import json
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shared.runtimes.drawn_networks import draw_and_prepare
from shared.runtimes.fast_interpreter import DECODER_TILES, speed_up_interpreter
from shared.runtimes.float16_products import round_factors, rounded_attention
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, DitConfig, SpeechLmConfig, UnetConfig
from vivavoce.models.cosyvoice.flow import dit, unet
from vivavoce.models.cosyvoice.flow.attention_memory import PagedBuffers
from vivavoce.models.cosyvoice.flow.attention_plan import PagePlacement, make_paged_plan
from vivavoce.models.cosyvoice.flow.policy import CacheForm
from vivavoce.models.cosyvoice.kernels import flow_kernels
from vivavoce.models.cosyvoice.lm import device_sampling, speech_lm
from vivavoce.models.cosyvoice.lm.sampling import SamplingContext, SamplingParameters
from vivavoce.models.cosyvoice.vocoder import normal_noise
from vivavoce.models.cosyvoice.vocoder.hift_v3 import _VocoderContexts
from vivavoce.models.cosyvoice.vocoder.layers import ResBlock
from vivavoce.models.decoding.kv_memory import plan_kv_step
from vivavoce.models.decoding.uniforms import seeded_uniforms
from vivavoce.models.devices.execution import Precision
from vivavoce.models.devices.torch_devices import CPU
from vivavoce.models.kernels import decoder_layers, fused_kernels, memory_attention
from vivavoce.models.networks import kernel_support
from vivavoce.models.networks.precision import LARGEST_FACTOR, drop_low_halves, split_matrix
from vivavoce.models.networks.state import map_state, tensors

_HEADS = 2
_NORMS = ("attention_norm", "mlp_norm")


@torch.no_grad()
def errors() -> Iterator[tuple[str, float]]:
    """The largest error of each kernel."""
    torch.manual_seed(0)
    yield from _split_matrix()
    yield from _products()
    yield from _estimator_step(
        unet.FlowUnet(UnetConfig(channels=32, head_width=16, heads=_HEADS, blocks=1, mid_blocks=1)),
        torch.float16,
    )
    yield from _estimator_step(
        dit.FlowDit(DitConfig(width=64, head_width=64, heads=_HEADS, depth=1)), torch.float32
    )
    yield from _estimator_with_one_product()
    yield from _vocoder_block()
    for precision in (Precision.FP32, Precision.FP16):
        yield from _language_model_layers(precision)
    for version in CosyVoiceVersion:
        yield from _embedding(version)
    yield from _sampling()
    yield from _noise()


def _split_matrix() -> Iterator[tuple[str, float]]:
    """What the halves of a matrix leave out, beside its values, from the largest factor to one of 1e-6."""
    exponents = torch.linspace(math.log(1e-6), math.log(LARGEST_FACTOR), 4096)
    matrix = (exponents.exp() * torch.where(torch.rand(4096) < 0.5, -1.0, 1.0)).view(64, 64)
    high, low = split_matrix(matrix).double()
    left_out = (high + low / 2048 - matrix.double()).abs()
    yield "halves", float((left_out - matrix.abs() * 2.0**-22).max() / 2.0**-36)


def _products() -> Iterator[tuple[str, float]]:
    x, norm = torch.randn(3, 20, 64), _drawn_norm(64)
    matrix, bias, residual = torch.randn(64, 64) / 8, torch.randn(64), torch.randn(3, 20, 64)
    added = fused_kernels.product(x, split_matrix(matrix), bias, residual=residual)
    yield "product and residual", _distance(added, residual + F.linear(x, matrix, bias))
    matrix = torch.randn(64, 3 * 64) / 8
    context = torch.randn(3, 400)[:, 7 : 7 + 2 * 64].unflatten(1, (2, 64))  # rows that are apart
    with_context = torch.cat([context, x], 1)
    columns = torch.cat([with_context[:, lag : lag + 20] for lag in range(3)], 2)
    convolved = fused_kernels.product(x, split_matrix(matrix), bias, context=context)
    yield "causal convolution", _distance(convolved, F.linear(columns, matrix, bias))
    with patch.object(fused_kernels, "BUSY_PROGRAMS", 1):
        fused_kernels.product_tile.cache_clear()
        large = fused_kernels.product(x, split_matrix(matrix), bias, context=context)
    fused_kernels.product_tile.cache_clear()
    yield "product in large tiles", _distance(large, convolved)
    yield "norm and Mish", _distance(fused_kernels.norm_mish(9 * x, norm), F.mish(norm(9 * x)))


def _estimator_step(
    network: unet.FlowUnet | dit.FlowDit, dtype: torch.dtype, *, has_one_product: bool = False
) -> Iterator[tuple[str, float]]:
    """A whole step on pages: chunks of which one ends early; slots in several parts, some empty.

    One row has unused pages, and both have pages of the same voice.
    """
    draw_and_prepare(network)
    with patch.object(kernel_support, "runs_triton", return_value=True):
        network.prepare()
    reference = network
    rounding: AbstractContextManager[None] = nullcontext()
    if has_one_product:
        reference, rounding = deepcopy(network), rounded_attention()
        round_factors(reference)
        drop_low_halves(network)
    places = PagePlacement(
        torch.tensor([100, 50]),
        torch.tensor([143, 100]),
        torch.tensor([[1, 2, 3, 4], [1, 6, 7, 0]]),
        torch.tensor([[3], [6]]),
        torch.tensor([0, 0]),
    )
    plan = make_paged_plan(places, 50, None, is_last=True, heads=_HEADS)
    drawn = map_state(torch.randn_like, network.init_state(2, 50, CacheForm.KEYS_VALUES, torch.float32))
    empty = network.init_state(9, 50, CacheForm.KEYS_VALUES, dtype)
    assert isinstance(empty.cache, Tensor)
    pool = torch.randn(empty.cache.shape).to(dtype)
    x, conditions = torch.randn(2, 50, 80), torch.randn(2, 50, 240)
    offsets = network.time_offsets(torch.tensor([0.3, 0.9]))  # rows at different solver steps
    results = []
    for is_fused, stepped in ((False, reference), (True, network)):
        state = replace(drawn, cache=PagedBuffers(pool.clone()))
        with (
            nullcontext() if is_fused else rounding,
            patch.object(kernel_support, "runs_triton", return_value=is_fused),
            patch.object(flow_kernels, "_SLOTS", 32),
            patch.object(flow_kernels, "BUSY_PROGRAMS", 8),  # 32 queries a program
            patch.object(fused_kernels, "_MAX_PARTS", 4),
        ):
            results.append(stepped.step(x, conditions, offsets, state, plan, CacheForm.KEYS_VALUES))
    (expected, expected_state), (velocity, state) = results
    yield "velocity", _distance(velocity, expected)
    assert isinstance(state.cache, PagedBuffers) and isinstance(expected_state.cache, PagedBuffers)
    # The scratch page is left out: padding of several rows is written there in any order.
    pages, expected_pages = (each.cache.pool[1:].float() for each in (state, expected_state))
    yield f"pages in {dtype}", _distance(pages, expected_pages)
    contexts, expected_contexts = (
        tensors(replace(each, cache=torch.zeros(0))) for each in (state, expected_state)
    )
    pairs = zip(contexts, expected_contexts, strict=True)
    yield "contexts", max(_distance(found, wanted) for found, wanted in pairs if wanted.numel())
    own = [getattr(module, "_counters", None) for module in network.modules()]
    counters = [plan.part_counters, *(each for each in own if each is not None)]
    assert len(counters) > 1
    yield "counters", float(max(each.abs().max() for each in counters))


def _estimator_with_one_product() -> Iterator[tuple[str, float]]:
    """The steps with one product of float16, against torch with factors that are rounded alike."""
    for network, dtype in (
        (
            unet.FlowUnet(UnetConfig(channels=32, head_width=16, heads=_HEADS, blocks=1, mid_blocks=1)),
            torch.float16,
        ),
        (dit.FlowDit(DitConfig(width=64, head_width=64, heads=_HEADS, depth=1)), torch.float32),
    ):
        for name, error in _estimator_step(network, dtype, has_one_product=True):
            yield f"{name}, one product", error


def _vocoder_block() -> Iterator[tuple[str, float]]:
    """With zeros on both sides; and with contexts, of chunks that are longer and shorter than those."""
    block = ResBlock(32, 5, (1, 3))
    draw_and_prepare(block)
    with patch.object(kernel_support, "runs_triton", return_value=True):
        block.prepare()
    fused, block.fused_convs = block.fused_convs, []
    contexts = tuple(torch.randn(2, 32, reach) for reach in (4, 4, 12, 4))
    for length in (21, 7):
        x, total = torch.randn(2, length, 32).mT, torch.randn(2, 32, length)
        runs = []
        for block.fused_convs in ([], fused):
            carried = _VocoderContexts(contexts)
            with patch.object(kernel_support, "runs_triton", return_value=True):
                runs.append(
                    (block(x, total, 0.3), carried.run_block(block, x, total, 0.3), *carried.following)
                )
        names = ("vocoder block", "vocoder block with contexts", *(4 * ["vocoder contexts"]))
        for name, expected, found in zip(names, *runs, strict=True):
            yield name, _distance(found, expected)


def _language_model_layers(precision: Precision) -> Iterator[tuple[str, float]]:
    """One row a session and several, a row of padding among them, in two layers of a memory."""
    config = SpeechLmConfig(
        version=CosyVoiceVersion.V2, hidden=192, heads=6, kv_heads=2, layers=2, intermediate=96,
        text_vocab_size=50,
    )  # fmt: skip
    lm = speech_lm.SpeechLm(config, precision)
    draw_and_prepare(lm)
    for norm in (lm.norm, *(layer.get_submodule(name) for layer in lm.layers for name in _NORMS)):
        nn.init.normal_(norm.get_parameter("weight"), 1, 0.1)
    for columns in (1, 5):
        positions = torch.tensor([7, 20, 11])[:, None] + torch.arange(columns)
        write_positions = positions.clone()
        write_positions[0, -1] = 40
        attention = plan_kv_step(positions, write_positions, 40, config.queries_per_key)
        plan = speech_lm.make_lm_step_plan(attention, positions, config)
        x, memory = torch.randn(3, columns, 192), torch.randn(3, 2, 2, 2, 41, config.head_width)
        results = []
        for is_fused in (False, True):
            kv = memory.clone()
            with (
                patch.object(kernel_support, "runs_triton", return_value=is_fused),
                patch.object(memory_attention, "SLOTS", 16),
                patch.multiple(decoder_layers, **DECODER_TILES),
            ):
                results.append((lm.run_layers(x.clone(), kv, plan), kv))
        expected, expected_kv = results[0]
        for found, kv in results[1:]:
            yield f"layers in {precision}", _distance(found, expected)
            yield f"memory in {precision}", _distance(kv, expected_kv)
        counters = lm._fused_weights().counters
        left = (counters.phases, counters.parts, plan.part_counters)
        yield "counters", float(max(each.abs().max() for each in left))


def _embedding(version: CosyVoiceVersion) -> Iterator[tuple[str, float]]:
    """Text, speech and in version 2 control inputs, at the first and at late positions."""
    config = SpeechLmConfig(
        version=version, hidden=96, heads=6, kv_heads=2, layers=1, intermediate=192, text_vocab_size=50
    )
    lm = speech_lm.SpeechLm(config)
    draw_and_prepare(lm)
    last = sum(len(table.weight) for table in (lm.text_embedding, *lm._speech_tables())) - 1
    indices, positions = (
        torch.tensor([[0, 49, 50], [7000, last, 6000]]),
        torch.tensor([[0, 1, 2], [6143, 9, 77]]),
    )
    indices = indices.clamp(max=last)
    attention = plan_kv_step(positions, positions, 27, config.queries_per_key)
    expected, expected_plan = lm.embed_and_plan(indices, positions, attention)
    with patch.object(speech_lm.SpeechLm, "has_fused_kernels", True):
        found, plan = lm.embed_and_plan(indices, positions, attention)
    yield "embedding", _distance(found, expected)
    yield "rotation", max(_distance(plan.cos, expected_plan.cos), _distance(plan.sin, expected_plan.sin))


def _sampling() -> Iterator[tuple[str, float]]:
    """Several ids of rows with drawn parameters: repetitions, forbidden ids, a row without an allowed one."""
    generator, rows, ids = np.random.default_rng(5), 24, 70
    inputs = device_sampling.default_sampling_inputs(rows, 3, 16, ids)
    for row in range(rows):
        parameters = SamplingParameters(
            temperature=float(generator.uniform(0.3, 1.5)),
            top_p=float(generator.uniform(0.1, 1.0)),
            top_k=int(generator.integers(1, 2 * ids)),
            repetition_window=int(generator.integers(0, 12)),
            repetition_threshold=float(generator.uniform(0.05, 0.3)),
        )
        decoded = generator.integers(0, ids, 12).tolist()
        forbidden = generator.choice(ids, int(generator.integers(0, 40)), replace=False).tolist()
        context = SamplingContext(
            decoded, seeded_uniforms(row), range(ids) if row == 3 else forbidden, parameters
        )
        device_sampling.write_sampling_inputs(inputs, row, context, generator.random(6).tolist())
    is_active = torch.rand(rows) < 0.7
    expected_inputs, places = inputs, device_sampling.InputPlaces(torch.arange(rows), is_active, 20, 50)
    redrawn, logits = 0.0, torch.randn(rows, ids).round(decimals=1)  # the same in every step, some equal
    for _ in range(3):
        expected = device_sampling.choose_and_place(logits, expected_inputs, places)
        with patch.object(kernel_support, "runs_triton", return_value=True):
            found = device_sampling.choose_and_place(logits, inputs, places)
        pairs = zip(tensors(found), tensors(expected), strict=True)
        yield "sampling", max(_distance(one.double(), other.double()) for one, other in pairs)
        inputs, expected_inputs = found.sampling, expected.sampling
        places = replace(places, positions=found.positions[:, 0])
        redrawn += float(found.answers[:, 1].sum())
    yield "rows without a second draw in sampling", float(redrawn < 5)


def _noise() -> Iterator[tuple[str, float]]:
    """Draws one behind the other, of whole counts and of others."""
    on_host, on_device = normal_noise.noise_generator(7), normal_noise.noise_generator(7)
    for shape in ((1, 480, 9), (1, 5, 9), (2, 48, 9)):
        expected = torch.from_numpy(normal_noise.draw_normal(on_host, shape))
        with patch.object(kernel_support, "runs_triton", return_value=True):
            yield "noise", _distance(normal_noise.draw_normal_on(CPU, on_device, shape), expected)


def _drawn_norm(width: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(width).requires_grad_(False)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def _distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


if __name__ == "__main__":
    speed_up_interpreter()
    print(json.dumps(list(errors())))
