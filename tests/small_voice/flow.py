"""Trains the flow: speech ids to mel, by the product's own loss and a second one of the encoder.

The second loss asks the encoder for the mel itself. The estimator then starts from a blurred mel instead of
from ids, which saves most of its training; upstream leaves the encoder to the estimator's gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from small_voice.optimise import Losses
from small_voice.sizes import FLOW
from vivavoce.models.cosyvoice.config import FRAMES_PER_SPEECH_ID, MEL_BANDS
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.training.draws import DrawSeed, draw_flow
from vivavoce.models.cosyvoice.training.flow_loss import FlowBatch, flow_loss

_CROP, _ROWS = 75, 12  # ids, crops of a batch; three blocks of attention
_STREAMED_SHARE = 0.75  # of the batches; the others attend to all frames, as a sentence at once does


def new_network(seed: int, mels: Sequence[NDArray[np.float16]]) -> Flow:
    """A flow with first weights, to be trained on mels, (80, T) each."""
    torch.manual_seed(seed)
    network = Flow(FLOW)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1 and "pos_bias" not in name:
            nn.init.normal_(parameter, std=1 / math.sqrt(parameter[0].numel()))
        else:
            is_scale = name.endswith("weight") and parameter.ndim == 1
            nn.init.constant_(parameter, 1.0 if is_scale else 0.0)
    nn.init.normal_(network.input_embedding.weight)
    # Both outputs begin at the mean mel, which lies far from 0.
    mean = torch.from_numpy(np.mean([mel.mean(1, np.float32) for mel in mels], 0))
    for layer in ("encoder_proj", "decoder.estimator.final_proj"):
        network.get_parameter(f"{layer}.bias").data.copy_(mean)
    return network


class FlowTask:
    """The losses of the flow on crops. ids: (L,) each; mels: (80, 2 L); embedding: (192,) of the voice."""

    def __init__(
        self,
        network: Flow,
        ids: Sequence[NDArray[np.int64]],
        mels: Sequence[NDArray[np.float16]],
        embedding: NDArray[np.float32],
    ) -> None:
        self.network, self._ids, self._mels = network, ids, mels
        self._embedding = torch.from_numpy(embedding)
        self._encoded: Tensor | None = None
        network.encoder_proj.register_forward_hook(self._keep_encoded)

    def losses(self, draw: np.random.Generator, progress: float) -> Losses:
        """Of a batch: ``velocity``, and ``encoder``, the mean distance of its output from the mel."""
        batch = self._batch(draw)
        frames = (FRAMES_PER_SPEECH_ID * batch.lengths).tolist()
        draws = draw_flow(DrawSeed(int(draw.integers(2**31))), 0, range(_ROWS), frames)
        # As the bundle is rendered: mostly in blocks, and without a recording as a prompt.
        draws = replace(
            draws,
            streaming=bool(draw.random() < _STREAMED_SHARE),
            prompt_frames=torch.zeros_like(draws.prompt_frames),
        )
        velocity = flow_loss(self.network, batch, draws).mean
        assert self._encoded is not None
        is_real = torch.arange(batch.mel.shape[1]) < FRAMES_PER_SPEECH_ID * batch.lengths[:, None]
        distance = (self._encoded - batch.mel)[is_real].abs().mean()
        return {"velocity": velocity, "encoder": 0.5 * distance}

    def _keep_encoded(self, _module: nn.Module, _inputs: object, output: Tensor) -> None:
        self._encoded = output

    def _batch(self, draw: np.random.Generator) -> FlowBatch:
        ids = torch.zeros(_ROWS, _CROP, dtype=torch.int64)
        mel = torch.zeros(_ROWS, FRAMES_PER_SPEECH_ID * _CROP, MEL_BANDS)
        lengths = torch.zeros(_ROWS, dtype=torch.int64)
        for row, at in enumerate(draw.integers(len(self._ids), size=_ROWS)):
            # Mostly from the beginning, as in speech; else from anywhere.
            room = max(0, len(self._ids[at]) - _CROP)
            first = int(draw.integers(room + 1)) if draw.random() < 0.5 else 0
            part = torch.from_numpy(self._ids[at][first : first + _CROP])
            span = slice(FRAMES_PER_SPEECH_ID * first, FRAMES_PER_SPEECH_ID * (first + len(part)))
            ids[row, : len(part)], lengths[row] = part, len(part)
            mel[row, : FRAMES_PER_SPEECH_ID * len(part)] = torch.from_numpy(self._mels[at][:, span]).float().T
        longest = int(lengths.max())
        return FlowBatch(
            ids[:, :longest],
            lengths,
            mel[:, : FRAMES_PER_SPEECH_ID * longest],
            self._embedding.expand(_ROWS, -1),
        )
