"""The flow as upstream runs it: a whole prefix at once, from nothing, with or without the block mask.

For comparisons only: a server renders each chunk once.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/flow.py (inference), flow/flow_matching.py (solve_euler).
"""

from dataclasses import replace
from enum import Enum

import torch
from torch import Tensor

from vivavoce.models.cosyvoice.config import BLOCK_FRAMES, FRAMES_PER_SPEECH_ID
from vivavoce.models.cosyvoice.flow.attention_plan import make_plan
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY, CacheForm
from vivavoce.models.cosyvoice.flow.state import FlowChunk, FlowState


class AttentionMask(Enum):
    """The frames that a frame attends to: its block and earlier ones, or all of them."""

    BLOCKS = "blocks"
    NONE = "none"


@torch.inference_mode()
def compute_whole(flow: Flow, chunk: FlowChunk, speaker: Tensor, mask: AttentionMask) -> Tensor:
    """The mel of a prompt and all ids at once: (B, 80, 2 T). speaker: (B, 80)."""
    length, begins = chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID, [0] * len(speaker)
    state = _scratch_state(flow, speaker, length)
    plans = flow.plan(chunk, state, begins, _block(mask, length))
    noise = flow.noise_rows(begins, length)
    return flow.compute(chunk, noise, state, plans, CacheForm.KEYS_VALUES)[0]


@torch.inference_mode()
def solve_whole(flow: Flow, mu: Tensor, prompt_mel: Tensor, speaker: Tensor, mask: AttentionMask) -> Tensor:
    """The mel for a given encoder output at once: mu (B, T, 80) -> (B, 80, T)."""
    length, begins = mu.shape[1], [0] * len(mu)
    state = _scratch_state(flow, speaker, length)
    # Two rows of the solver for each row: the guidance halves.
    plan = make_plan(2 * begins, length, block=_block(mask, length), capacity=length, device=flow.device)
    noise = flow.noise_rows(begins, length)
    return flow.solve(mu, prompt_mel, noise, state, plan, CacheForm.KEYS_VALUES)[0]


def _block(mask: AttentionMask, length: int) -> int:
    return BLOCK_FRAMES if mask is AttentionMask.BLOCKS else length


def _scratch_state(flow: Flow, speaker: Tensor, frames: int) -> FlowState:
    """A state for one step only: a single buffer serves every layer and every solver step."""
    state = flow.state_with_capacity(speaker, frames, EXACT_POLICY)
    first = state.solver[0]
    assert isinstance(first.cache, Tensor)
    shared = replace(first, cache=first.cache[:, :, :1].expand_as(first.cache))
    return replace(state, solver=(shared,) * flow.config.solver_steps)
