"""The loss of the flow: the squared error of the velocity from noise to mel, at random times.

    noise z, time t in 0..1      y = (1 - (1 - s) t) z + t mel       what the estimator sees, s = 1e-6
                                 u = mel - (1 - s) z                 the velocity that it must state

A step sees its conditioning in full or in blocks of 25 ids (``FlowDraws.streaming``), so that the flow stays
streamable. Some rows have the beginning of their own mel as a prompt, and some lose all conditioning, which
guidance needs. Every random choice is an argument; ``training_draws`` makes them.

Rows are padded at the right. Unlike upstream's version 2, padding is masked before the lookahead of the
encoder, so that a row in a batch has the loss of the row alone.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/flow.py:186-233, 320-367; flow/flow_matching.py:155-193.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ..config import BLOCK_FRAMES, BLOCK_IDS, FRAMES_PER_SPEECH_ID, MEL_BANDS
from ..flow.attention_plan import WholeAttentionPlan, make_whole_plan
from ..flow.flow import Flow
from ..flow.policy import CacheForm

_LEAST_NOISE = 1e-6  # share of the noise that is left at time 1


@dataclass(frozen=True, slots=True)
class TrainingLoss:
    """The loss of a batch of any part; ``total / count`` is the mean that upstream reports.

    It is a sum and a count, so that batches of any split, and of several processes, add up to one mean.
    """

    total: Tensor  # () sum over all targets, differentiable
    count: int  # targets: ids of the language model, frames times bands of the flow
    correct: int = 0  # targets that are the likeliest id

    @property
    def mean(self) -> Tensor:
        """The loss a target."""
        return self.total / self.count

    @property
    def accuracy(self) -> float:
        """Share of the targets that are the likeliest id."""
        return self.correct / self.count


def in_full_precision(x: Tensor) -> Tensor:
    """The tensor in float32 at least: losses are summed in it."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@dataclass(frozen=True, slots=True)
class FlowBatch:
    """Rows of one step, padded at the right."""

    ids: Tensor  # (B, T) int64 speech ids
    lengths: Tensor  # (B,) int64, ids of each row
    mel: Tensor  # (B, 2 T, 80), natural log
    embedding: Tensor  # (B, 192) of the speaker; any length, it is normalised here

    def to(self, device: torch.device) -> "FlowBatch":
        """The batch on a device."""
        return FlowBatch(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class FlowDraws:
    """The random choices of a step."""

    streaming: bool  # attention in blocks, for the whole batch
    prompt_frames: Tensor  # (B,) int64, frames of the own mel that are given; 0 for none
    time: Tensor  # (B,) in 0..1
    noise: Tensor  # (B, 2 T, 80), standard normal
    kept: Tensor  # (B,) bool; False: the row loses mu, speaker and prompt

    def to(self, device: torch.device) -> "FlowDraws":
        """The draws on a device."""
        return FlowDraws(
            self.streaming, *(getattr(self, field.name).to(device) for field in fields(self)[1:])
        )


def flow_loss(flow: Flow, batch: FlowBatch, draws: FlowDraws, dropout: float = 0.0) -> TrainingLoss:
    """The loss of a batch. dropout: of the attention of version 2's encoder."""
    frame_plan = _plan(batch, draws, frames=True)
    velocity, wanted = flow_velocity(flow, batch, draws, dropout)
    errors = ((in_full_precision(velocity) - wanted) * frame_plan.frame_mask).square()
    frames = FRAMES_PER_SPEECH_ID * int(batch.lengths.sum())
    return TrainingLoss(errors.sum(), MEL_BANDS * frames)


def flow_velocity(
    flow: Flow, batch: FlowBatch, draws: FlowDraws, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The velocity that the estimator states and the one wanted, (B, 2 T, 80) each; undefined at padding."""
    t, estimator = draws.time[:, None, None], flow.decoder.estimator
    y = (1 - (1 - _LEAST_NOISE) * t) * draws.noise + t * batch.mel
    conditions = flow_conditions(flow, batch, draws, dropout)
    state = estimator.init_state(len(y), 0, CacheForm.KEYS_VALUES, y.dtype)
    velocity, _ = estimator.step(
        y,
        conditions,
        estimator.time_offsets(draws.time),
        state,  # type: ignore[arg-type]
        _plan(batch, draws, frames=True),
        CacheForm.KEYS_VALUES,
    )
    return velocity, batch.mel - (1 - _LEAST_NOISE) * draws.noise


def flow_conditions(flow: Flow, batch: FlowBatch, draws: FlowDraws, dropout: float = 0.0) -> Tensor:
    """What the estimator is given beside the noise: mu, speaker and prompt mel, (B, 2 T, 240)."""
    mu = _encode(flow, batch, draws, dropout)
    speaker = flow.project_speaker(batch.embedding)[:, None].expand_as(mu)
    frames = torch.arange(mu.shape[1], device=mu.device)
    prompt = batch.mel * (frames < draws.prompt_frames[:, None])[..., None]
    return torch.cat([mu, speaker, prompt], 2) * draws.kept[:, None, None]


def _encode(flow: Flow, batch: FlowBatch, draws: FlowDraws, dropout: float) -> Tensor:
    """The encoder's output for whole utterances, (B, 2 T, 80)."""
    id_plan, rows = _plan(batch, draws, frames=False, dropout=dropout), len(batch.ids)
    x = flow.input_embedding(batch.ids.clamp(min=0)) * id_plan.frame_mask
    no_future = x[:, :0]
    if not flow.config.encoder:
        context = flow.pre_lookahead_layer.conv2.initial_context(rows)
        h, _ = flow.pre_lookahead_layer(x, no_future, context)
        return h.repeat_interleave(FRAMES_PER_SPEECH_ID, 1)  # type: ignore[no-any-return]
    frame_plan = _plan(batch, draws, frames=True, dropout=dropout)
    h, _ = flow.encoder.step(x, no_future, flow.encoder.init_state(rows, 0), id_plan, frame_plan)
    return flow.encoder_proj(h)  # type: ignore[no-any-return]


def _plan(batch: FlowBatch, draws: FlowDraws, *, frames: bool, dropout: float = 0.0) -> WholeAttentionPlan:
    lengths = batch.lengths * FRAMES_PER_SPEECH_ID if frames else batch.lengths
    block = BLOCK_FRAMES if frames else BLOCK_IDS
    return make_whole_plan(lengths, block if draws.streaming else None, batch.mel.dtype, dropout)
