"""Counts what steps launch on a card, without one, and prints the counts as JSON.

Depths are those of the releases, widths are reduced: launches do not depend on them. A process of its own,
because Triton reads TRITON_INTERPRET when it is imported:

    TRITON_INTERPRET=1 python counted_launches.py
"""

import json
from typing import Any
from unittest.mock import patch

import torch

from shared.runtimes.drawn_networks import draw_and_prepare
from shared.runtimes.launch_count import counted_launches, launches
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
from vivavoce.models.networks import kernel_support

_ROWS = 2  # streams in a step


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
    draw_and_prepare(lm)
    step = DecodeGraphs(lm, lm.init_state(_ROWS, 40), 5, 17)._steps.get(DecodeGraphKey(_ROWS, 1, 40, 16))
    return launches(step._compute) / 17


def _solver_step(config: FlowConfig) -> float:
    """Of a chunk of one block: a step of the solver, and the encoder divided by the number of these."""
    flow = Flow(config)
    draw_and_prepare(flow)
    graphs = FlowGraphs(flow, rows=_ROWS, slots=_ROWS, pages=16)
    voice = graphs.store_voice(flow.init_state(torch.zeros(1, MEL_BANDS)))
    handles = [graphs.open_sequence(voice) for _ in range(_ROWS)]
    ids = torch.zeros(_ROWS, BLOCK_IDS, dtype=torch.int64)
    chunk = FlowChunk(ids, ids[:, :LOOKAHEAD_IDS], torch.zeros(_ROWS, MEL_BANDS, BLOCK_FRAMES))
    with counted_launches():
        graphs.step(chunk, handles)
    encoder, solver = (graphs._steps.get(key) for key in graphs._steps.keys)
    return launches(encoder._compute) / config.solver_steps + launches(solver._compute)


def _vocoder_chunk(vocoder: HiftV2 | HiftV3) -> float:
    """Of the second chunk of a sentence."""
    draw_and_prepare(vocoder)
    mel = torch.zeros(_ROWS, MEL_BANDS, BLOCK_FRAMES)
    state: Any = vocoder.init_state(_ROWS)
    for _ in range(2):
        noise = torch.zeros(
            _ROWS, vocoder.noise_samples(BLOCK_FRAMES, state, last=False), vocoder.config.sine_count
        )
        with counted_launches() as launched:
            _, state = vocoder.step(mel, noise, state)
    return launched.count


if __name__ == "__main__":
    print(json.dumps(counts()))
