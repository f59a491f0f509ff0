"""Error of the exported flow in a precision: its mel against that of torch in float32, for the same ids.

Random ids are rendered in chunks behind a recording of 3 s, by both with the same noise. An error is a root
mean square, as a share of the mel's own deviation from its mean.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from vivavoce.gateway.cli.bench.report import BenchFigure
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.config import BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, MEL_BANDS
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY
from vivavoce.models.cosyvoice.flow.state import FlowChunk
from vivavoce.models.cosyvoice.networks import load_flow
from vivavoce.models.cosyvoice.onnx_runtime.flow import ArrayFlow
from vivavoce.models.cosyvoice.onnx_runtime.networks import load_array_flow
from vivavoce.models.devices.execution import Precision

VOICE_IDS = 3 * BLOCK_IDS + LOOKAHEAD_IDS
CHUNKS = (BLOCK_IDS, 2 * BLOCK_IDS)  # behind the voice's blocks
_SEED = 11

Mel = NDArray[np.float32]


def flow_errors(bundle: CosyVoiceBundle, precision: Precision, name: str) -> Iterator[BenchFigure]:
    """Yield the errors of a precision. Raises InvalidBundleError."""
    exact = render_with_torch(load_flow(bundle))
    found = _render_arrays(load_array_flow(bundle, EXACT_POLICY, precision))
    yield BenchFigure(f"{name}, error of the mel", 100 * relative_error(found, exact), "%")


def relative_error(found: Mel, exact: Mel) -> float:
    """Root mean square of the difference, as a share of the exact one's deviation from its mean."""
    return float(np.sqrt(np.square(found - exact).mean()) / exact.std())


def _inputs(config_ids: int) -> tuple[NDArray[np.int64], Mel, Mel]:
    """Ids of voice and chunks with a lookahead; the voice's mel (80, 2 n), and its embedding."""
    drawn = np.random.default_rng(_SEED)
    ids = drawn.integers(0, config_ids, VOICE_IDS + sum(CHUNKS))
    mel = drawn.standard_normal((MEL_BANDS, FRAMES_PER_SPEECH_ID * VOICE_IDS)).astype(np.float32)
    return ids, mel, drawn.standard_normal(192).astype(np.float32)


def _spans() -> Iterator[tuple[int, int]]:
    begin = VOICE_IDS - LOOKAHEAD_IDS
    for count in CHUNKS:
        yield begin, begin + count
        begin += count


def _render_arrays(flow: ArrayFlow) -> Mel:
    ids, mel, embedding = _inputs(flow.config.codebook_size)
    state, mels = flow.prefill(embedding, ids[:VOICE_IDS], mel), []
    for begin, end in _spans():
        silence = np.zeros((MEL_BANDS, FRAMES_PER_SPEECH_ID * (end - begin)), np.float32)
        rendered, state = flow.step(ids[begin:end], ids[end : end + LOOKAHEAD_IDS], silence, state)
        mels.append(rendered)
    return np.concatenate(mels, 1)


@torch.inference_mode()
def render_with_torch(flow: Flow) -> Mel:
    """The mel of the chunks, (80, T)."""
    drawn_ids, drawn_mel, embedding = _inputs(flow.config.codebook_size)
    ids, mel = torch.from_numpy(drawn_ids)[None], torch.from_numpy(drawn_mel)[None]
    speaker = flow.project_speaker(torch.from_numpy(embedding)[None])
    state, _ = flow.prefill(ids[:, :VOICE_IDS], mel, speaker)
    mels = []
    for begin, end in _spans():
        silence = torch.zeros(1, MEL_BANDS, FRAMES_PER_SPEECH_ID * (end - begin))
        chunk = FlowChunk(ids[:, begin:end], ids[:, end : end + LOOKAHEAD_IDS], silence)
        rendered, state = flow.step(chunk, state)
        mels.append(rendered[0])
    whole: Mel = torch.cat(mels, 1).numpy()
    return whole
