"""Counts what steps launch on a card, without one, and prints the counts as JSON.

Every operation of torch that computes counts as one launch, and so does every kernel in Triton, which is not
executed. Depths are those of the releases, widths are reduced: launches do not depend on them. A process of
its own, because Triton reads TRITON_INTERPRET when it is imported:

    TRITON_INTERPRET=1 python counted_launches.py
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction

from vivavoce.models.cosyvoice.config import (
    BLOCK_FRAMES,
    BLOCK_IDS,
    LOOKAHEAD_IDS,
    MEL_BANDS,
    CosyVoiceVersion,
    DitConfig,
    EncoderConfig,
    FlowConfig,
    HiftConfig,
    SpeechLmConfig,
    UnetConfig,
)
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.flow.flow_graphs import FlowGraphs
from vivavoce.models.cosyvoice.flow.state import FlowChunk
from vivavoce.models.cosyvoice.lm.decode_graphs import DecodeGraphKey, DecodeGraphs
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3
from vivavoce.models.networks import kernel_support, layers

_ROWS = 2  # streams in a step


class LaunchCount(TorchDispatchMode):
    """Counts operations of torch that launch a kernel on a card: not views, nor allocations."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        self.count += not (function.is_view or any(word in name for word in _FREE))
        return function(*args, **(kwargs or {}))


_FREE = ("empty", "detach", "alias", "_unsafe_view", "_local_scalar_dense", "_to_copy")


@contextmanager
def counted_launches() -> Iterator[LaunchCount]:
    """Count the launches of a block; kernels in Triton compute nothing."""

    def launch(kernel: object, *arguments: object, **options: object) -> None:
        launched.count += 1

    with ExitStack() as stack:
        stack.enter_context(patch.object(InterpretedFunction, "run", launch))
        launched = stack.enter_context(LaunchCount())
        yield launched


@torch.inference_mode()
def counts() -> dict[str, float]:
    """Launches by step."""
    with patch.object(kernel_support, "runs_triton", return_value=True):
        found = {}
        for version in CosyVoiceVersion:
            found[f"a token of version {version.value}"] = _token(version)
        encoder = EncoderConfig(width=64, heads=2, inner=128)
        unet = UnetConfig(channels=64, head_width=64, heads=2)
        found["a solver step of version 2"] = _solver_step(FlowConfig(encoder, unet))
        dit = DitConfig(width=128, heads=2)
        found["a solver step of version 3"] = _solver_step(FlowConfig(None, dit))
        config = HiftConfig(base_channels=256, f0_channels=32)
        for vocoder in (HiftV2(config), HiftV3(config)):
            found[f"a chunk in {type(vocoder).__name__}"] = _vocoder_chunk(vocoder)
    return found


def _token(version: CosyVoiceVersion) -> float:
    """Of steps of 17 ids a row, with all that they do before and after."""
    config = SpeechLmConfig(version, hidden=128, heads=2, kv_heads=1, intermediate=128, text_vocab_size=50)
    lm = SpeechLm(config)
    _prepare(lm)
    step = DecodeGraphs(lm, lm.init_state(_ROWS, 40), 5, 17)._steps.get(DecodeGraphKey(_ROWS, 1, 40, 16))
    return _launches(step._compute) / 17


def _solver_step(config: FlowConfig) -> float:
    """Of a chunk of one block: a step of the solver, and the encoder divided by the number of these."""
    flow = Flow(config)
    _prepare(flow)
    graphs = FlowGraphs(flow, rows=_ROWS, slots=_ROWS, pages=16)
    voice = graphs.store_voice(flow.init_state(torch.zeros(1, MEL_BANDS)))
    handles = [graphs.open_sequence(voice) for _ in range(_ROWS)]
    ids = torch.zeros(_ROWS, BLOCK_IDS, dtype=torch.int64)
    chunk = FlowChunk(ids, ids[:, :LOOKAHEAD_IDS], torch.zeros(_ROWS, MEL_BANDS, BLOCK_FRAMES))
    with counted_launches():
        graphs.step(chunk, handles)
    encoder, solver = (graphs._steps.get(key) for key in graphs._steps.keys)
    return _launches(encoder._compute) / config.solver_steps + _launches(solver._compute)


def _vocoder_chunk(vocoder: HiftV2 | HiftV3) -> float:
    """Of the second chunk of a sentence."""
    _prepare(vocoder)
    mel = torch.zeros(_ROWS, MEL_BANDS, BLOCK_FRAMES)
    state: Any = vocoder.init_state(_ROWS)
    for _ in range(2):
        noise = torch.zeros(
            _ROWS, vocoder.noise_samples(BLOCK_FRAMES, state, last=False), vocoder.config.sine_count
        )
        with counted_launches() as launched:
            _, state = vocoder.step(mel, noise, state)
    return launched.count


def _launches(step: Callable[[], object]) -> int:
    for _ in range(2):  # the first one makes what is made once
        with counted_launches() as launched:
            step()
    return launched.count


def _prepare(network: nn.Module) -> None:
    network.requires_grad_(False)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)
    with patch.object(layers, "pack_matrix", Tensor.contiguous):  # as on a card
        layers.prepare_modules(network)


if __name__ == "__main__":
    print(json.dumps(counts()))
