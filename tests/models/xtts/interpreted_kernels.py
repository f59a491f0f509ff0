"""Runs decode steps by the kernel in Triton's interpreter, and prints their errors against torch as JSON.

A process of its own, because Triton reads TRITON_INTERPRET when it is imported:

    TRITON_INTERPRET=1 python interpreted_kernels.py
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor, nn

from shared.runtimes.drawn_networks import draw_and_prepare
from shared.runtimes.fast_interpreter import DECODER_TILES, speed_up_interpreter
from vivavoce.models.decoding.kv_memory import SpeechLmState, last_valid_hidden
from vivavoce.models.decoding.uniforms import seeded_uniforms
from vivavoce.models.devices.execution import Precision
from vivavoce.models.kernels import decoder_layers, memory_attention
from vivavoce.models.networks import kernel_support
from vivavoce.models.xtts.config import XttsGptConfig
from vivavoce.models.xtts.decode_graphs import XttsDecodeGraphs
from vivavoce.models.xtts.gpt import TorchXttsGpt, XttsPrompt
from vivavoce.models.xtts.sampling import XttsSamplingInputs, sample_speech_ids

_CAPACITY = 40
# By step, the lengths of the rows, and which of them take part.
_STEPS = (
    ((20,), (1,)),
    ((39, 0), (1, 1)),
    ((7, 20, 11, 33), (1, 1, 0, 1)),
)


@torch.no_grad()
def errors() -> Iterator[tuple[str, float]]:
    """The largest error of each step."""
    torch.manual_seed(0)
    for precision, steps in ((Precision.FP32, _STEPS), (Precision.FP16, _STEPS[-1:])):
        gpt = TorchXttsGpt(XttsGptConfig(layers=2, hidden=96, heads=3, text_vocab_size=50), 1, 2, precision)
        draw_and_prepare(gpt)
        for norm in (module for module in gpt.modules() if isinstance(module, nn.LayerNorm)):
            nn.init.normal_(norm.weight, 1, 0.1)
        for lengths, valid in steps:
            yield from _decode_step(gpt, torch.tensor(lengths), torch.tensor(valid), precision)
        if precision is Precision.FP32:
            yield from _sampled_ids(gpt)
        counters = gpt._fused_weights().counters
        yield "counters", float(counters.phases.abs().max() + counters.parts.abs().max())


def _decode_step(
    gpt: TorchXttsGpt, lengths: Tensor, valid: Tensor, precision: Precision
) -> Iterator[tuple[str, float]]:
    memory = torch.randn(gpt.init_state(len(lengths), _CAPACITY).kv.shape)
    ids, decoded = torch.randint(0, 1024, (len(lengths), 1)), lengths[:, None]
    results = []
    for is_fused in (False, True):
        state = SpeechLmState(memory.clone(), lengths)
        with _kernels(is_fused):
            latents, logits = XttsDecodeGraphs(gpt, state).step(ids, decoded, valid)
        # Of rows that take no part the outputs are undefined, and the scratch position too.
        taking = valid.bool()
        results.append((latents[taking], logits[taking], state.kv[..., :_CAPACITY, :]))
    for name, expected, found in zip(("latents", "scores", "memory"), *results, strict=True):
        yield f"{name} in {precision}", _distance(found, expected)


def _sampled_ids(gpt: TorchXttsGpt) -> Iterator[tuple[str, float]]:
    """How many ids of two sentences differ."""
    prompts = [XttsPrompt(torch.randn(4, gpt.config.hidden), list(range(3, 3 + count))) for count in (5, 9)]
    results = []
    for is_fused in (False, True):
        with _kernels(is_fused):
            results.append(_sample(gpt, prompts))
    yield "ids", float(sum(one != other for one, other in zip(*results, strict=True)))


def _sample(gpt: TorchXttsGpt, prompts: Sequence[XttsPrompt]) -> list[int]:
    """Ids of 3 steps."""
    inputs = [XttsSamplingInputs([1], seeded_uniforms(seed)) for seed in range(len(prompts))]
    x, valid = gpt.embed_prompts(prompts)
    hidden, state = gpt.step(x, gpt.init_state(len(prompts), _CAPACITY), valid)
    logits = gpt.logits(gpt.latents(last_valid_hidden(hidden, valid)))
    graphs, taking = XttsDecodeGraphs(gpt, state), torch.ones_like(valid)
    found = []
    for place in range(3):
        ids = sample_speech_ids(logits.numpy(), inputs)
        found += ids
        _, logits = graphs.step(torch.tensor(ids)[:, None], torch.full((len(ids), 1), place), taking)
        state.lengths.add_(1)
    return found


@contextmanager
def _kernels(is_fused: bool) -> Iterator[None]:
    """Compute by the kernel or without; in tiles of which there are a few."""
    with (
        patch.object(kernel_support, "runs_triton", return_value=is_fused),
        patch.object(memory_attention, "SLOTS", 16),
        patch.multiple(decoder_layers, **DECODER_TILES),
    ):
        yield


def _distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


if __name__ == "__main__":
    speed_up_interpreter()
    print(json.dumps(list(errors())))
