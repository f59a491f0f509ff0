"""Speech ids to mel by conditional flow matching; each chunk is computed once.

Upstream runs the network over the whole prefix for every chunk. Nothing in it looks past the end of its block
of 25 ids, except at three ids of lookahead, so a chunk of whole blocks can be computed once and for all:

    ids        |<- prompt ->|0 . . . 24|25 . . . 49|50 51 52
    steps      prefill       step 1     step 2      lookahead of step 2
    mel                     |0 . . . 49|50 . . . 99|

``FlowState`` keeps what later chunks need of earlier ones, for each solver step and guidance half. Chunks
begin on whole blocks, counted from the beginning of the prompt; only the last one may have any length, and it
has no lookahead. With an unbounded window the mel equals that of the whole prefix run again.

Memory and cost at the released size, by policy: MB for a second of speech; CPU seconds / 2 of a 30 s
utterance after a prompt of 3 s, in hops of 25, 50, 100, ... ids, on two otherwise busy cores; time of the
last second of speech relative to the first; largest deviation from the whole prefix run again, v2, random
weights:

    v2 memory                      MB/s    CPU s / 2   last/first    deviation
    keys and values, float32       231        67          2.0          2e-6      the default
    keys and values, float16       116    as above                     4e-5
    inputs, float32                 59        88          3.1          2e-6
    inputs, float16                 30        not timed                4e-5
    keys and values, window 10 s   (bounded)  50          1.1      an approximation

v3: 180 MB/s and 90 MB/s of keys and values, 90 MB/s and 45 MB/s of inputs. Convolution contexts add 1.3 MB
(v2) or 4.9 MB (v3) to a session, whatever its length.

The last chunk keeps the block mask. Upstream drops it there and lets every frame attend to every other.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/flow.py (CausalMaskedDiffWithXvec, CausalMaskedDiffWithDiT),
flow/flow_matching.py (CausalConditionalCFM); keys as in flow.pt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...devices.torch_devices import to_device
from ...networks.layers import Linear, PreparedModule, new_embedding
from ...networks.state import map_state
from ..config import (
    BLOCK_FRAMES,
    FRAMES_PER_SPEECH_ID,
    MEL_BANDS,
    DitConfig,
    FlowConfig,
    UnetConfig,
)
from .attention_memory import AttentionMemory, device_of, slot_capacity
from .attention_plan import AttentionPlan, ContiguousAttentionPlan, make_plan
from .dit import DitState, FlowDit
from .encoder import EncoderState, FlowEncoder, LookaheadLayer
from .policy import EXACT_POLICY, CacheForm, FlowPolicy
from .policy import state_bytes_per_s as state_bytes_per_s
from .state import FlowChunk, FlowState, batch_states, check_chunk, state_row
from .streaming_flow import StreamingFlow
from .unet import FlowUnet, UnetState


@dataclass(frozen=True, slots=True)
class FlowPlans:
    """How a chunk runs through each attention memory."""

    solver: AttentionPlan  # of 2 B rows, both guidance halves
    encoder_ids: AttentionPlan | None  # at 25 Hz; v2 only
    encoder_frames: AttentionPlan | None  # at 50 Hz; v2 only


class _Decoder(nn.Module):
    def __init__(self, config: UnetConfig | DitConfig) -> None:
        super().__init__()
        self.estimator = FlowUnet(config) if isinstance(config, UnetConfig) else FlowDit(config)


def dtype_of(policy: FlowPolicy) -> torch.dtype:
    """The number format of the attention memory."""
    return torch.float16 if policy.dtype == "float16" else torch.float32


class Flow(PreparedModule, StreamingFlow):
    """The flow of CosyVoice 2 or 3 in torch."""

    def __init__(self, config: FlowConfig, policy: FlowPolicy | None = None) -> None:
        super().__init__()
        self.config = config
        self.policy = policy or EXACT_POLICY
        width = config.encoder.width if config.encoder else MEL_BANDS
        self.input_embedding = new_embedding(config.codebook_size, width)
        self.spk_embed_affine_layer = Linear(config.speaker_width, MEL_BANDS)
        if config.encoder:
            self.encoder = FlowEncoder(config.encoder)
            self.encoder_proj = Linear(width, MEL_BANDS)
        else:
            self.pre_lookahead_layer = LookaheadLayer(MEL_BANDS, config.lookahead_width)
        self.decoder = _Decoder(config.estimator)
        self.times = solver_times(config.solver_steps)
        self.register_buffer("solver_offsets", None, persistent=False)
        self.solver_offsets: Tensor | None
        self.noise_blocks = {}

    def prepare(self) -> None:
        """Compute the offsets of the solver times, which are the same for every chunk."""
        t = to_device(torch.tensor([time for time, _ in self.times]), self.device)
        self.solver_offsets = self.decoder.estimator.time_offsets(t)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.input_embedding.weight.device

    @property
    def has_fused_kernels(self) -> bool:
        """Whether kernels compute the blocks of the estimator; they read the pages that a row has."""
        return self.decoder.estimator.has_fused_kernels(self.device)

    def project_speaker(self, embedding: Tensor) -> Tensor:
        """(B, 192) speaker embedding -> (B, 80) conditioning."""
        y: Tensor = self.spk_embed_affine_layer(F.normalize(embedding, dim=1))
        return y

    def init_state(self, speaker: Tensor, frames: int | None = None) -> FlowState:
        """The state before the first chunk.

        speaker: (B, 80) from ``project_speaker``. frames: initial capacity, the policy's by default.
        """
        capacity = self.policy.window_frames or frames or self.policy.reserve_frames
        return self.state_with_capacity(speaker, capacity, self.policy)

    def state_with_capacity(self, speaker: Tensor, capacity: int, policy: FlowPolicy) -> FlowState:
        """The state before the first chunk, with slots for ``capacity`` frames in the form of ``policy``."""
        rows = len(speaker)
        halves = [
            self.decoder.estimator.init_state(2 * rows, capacity, policy.cache_form, dtype_of(policy))
            for _ in range(self.config.solver_steps)
        ]
        return FlowState(
            torch.zeros(rows, dtype=torch.int64),
            speaker.clone(),
            self.encoder.init_state(rows, capacity)
            if self.config.encoder
            else self.pre_lookahead_layer.conv2.initial_context(rows),
            tuple(map_state(_unfold_halves, half) for half in halves),
        )

    @torch.inference_mode()
    def step(self, chunk: FlowChunk, state: FlowState) -> tuple[Tensor, FlowState]:
        """The mel of a chunk, (B, 80, 2 T) float32, and the next state.

        The state given must not be used again. Rows may be at any frames of their utterances, but their
        chunks are equally long. Raises ValueError if a chunk other than the last is not whole blocks, or
        follows a last one.
        """
        begins = state.frames.tolist()
        check_chunk(chunk, begins)
        state = self.with_capacity_for(state, max(begins) + chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID)
        return self._plan_and_compute(chunk, state, begins)

    @property
    def can_step_together(self) -> bool:
        """Whether ``step_together`` is possible: memories are float32 keys and values, read in place."""
        return self.policy.cache_form is CacheForm.KEYS_VALUES and self.policy.dtype == "float32"

    @torch.inference_mode()
    def step_together(self, chunk: FlowChunk, states: Sequence[FlowState]) -> tuple[Tensor, list[FlowState]]:
        """``step`` for several states of one row each, a row of the chunk for each, without copying memories.

        Attention runs over the memory of each row, everything else as one batch. Raises as ``step`` does;
        after an error the same states may be stepped again.
        """
        begins = [int(state.frames) for state in states]
        check_chunk(chunk, begins)
        length = chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID
        grown = [
            self.with_capacity_for(state, begin + length) for state, begin in zip(states, begins, strict=True)
        ]
        mel, after = self._plan_and_compute(chunk, batch_states(grown), begins)
        return mel, [state_row(after, row) for row in range(len(states))]

    def _plan_and_compute(
        self, chunk: FlowChunk, state: FlowState, begins: list[int]
    ) -> tuple[Tensor, FlowState]:
        plans = self.plan(chunk, state, begins, self.policy.block_frames)
        noise = self.noise_rows(begins, chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID)
        return self.compute(chunk, noise, state, plans, self.policy.cache_form)

    def plan(
        self, chunk: FlowChunk, state: FlowState, begins: Sequence[int], block: int = BLOCK_FRAMES
    ) -> FlowPlans:
        """Plan a chunk for rows that are at frames ``begins``. block: frames that attend to each other."""
        length, frame_lengths = chunk.ids.shape[1], _frame_lengths(chunk.lengths)
        # Rows of the solver are (conditioned, free) pairs.
        solver_begins = [begin for begin in begins for _ in range(2)]
        solver_lengths = frame_lengths and tuple(count for count in frame_lengths for _ in range(2))
        frames, cache = length * FRAMES_PER_SPEECH_ID, state.solver[0].cache
        solver = _contiguous_plan(solver_begins, frames, block, cache, solver_lengths)
        if not isinstance(state.encoder, EncoderState):
            return FlowPlans(solver, None, None)
        encoder, id_begins = state.encoder, [begin // FRAMES_PER_SPEECH_ID for begin in begins]
        id_block = block // FRAMES_PER_SPEECH_ID
        return FlowPlans(
            solver,
            _contiguous_plan(id_begins, length, id_block, encoder.id_memory, chunk.lengths),
            _contiguous_plan(begins, frames, block, encoder.frame_memory, frame_lengths),
        )

    def compute(
        self, chunk: FlowChunk, noise: Tensor, state: FlowState, plans: FlowPlans, cache_form: CacheForm
    ) -> tuple[Tensor, FlowState]:
        """``step`` for a chunk that is planned. noise: (B, 2 T, 80) of ``noise_rows``."""
        mu, encoder = self.encode(chunk, state.encoder, plans)
        mel, solver = self.solve(mu, chunk.prompt_mel, noise, state, plans.solver, cache_form)
        return mel, FlowState(state.frames + mu.shape[1], state.speaker, encoder, solver)

    def solve(
        self,
        mu: Tensor,
        prompt_mel: Tensor,
        noise: Tensor,
        state: FlowState,
        plan: AttentionPlan,
        cache_form: CacheForm,
    ) -> tuple[Tensor, tuple[UnetState | DitState, ...]]:
        """The mel, (B, 80, T), for encoder output mu, (B, T, 80), and the next states of the solver steps."""
        conditioned = conditioning(mu, state.speaker, prompt_mel)
        mel, solver = self._euler_steps(noise, conditioned, state.solver, plan, cache_form)
        return mel.transpose(1, 2), solver

    def encode(
        self, chunk: FlowChunk, state: EncoderState | Tensor, plans: FlowPlans
    ) -> tuple[Tensor, EncoderState | Tensor]:
        """The conditioning of the chunk, (B, 2 T, 80), and the next state of the encoder."""
        x, future = (self.input_embedding(ids.clamp(min=0)) for ids in (chunk.ids, chunk.future))
        has_future = None if plans.solver.frame_mask is None else (chunk.future >= 0)[..., None]
        if isinstance(state, EncoderState):
            assert plans.encoder_ids is not None and plans.encoder_frames is not None
            h, encoder = self.encoder.step(
                x, future, state, plans.encoder_ids, plans.encoder_frames, has_future
            )
            return self.encoder_proj(h), encoder
        if plans.solver.frame_mask is not None:
            # The plan is of (conditioned, free) rows and of frames: every second of both gives rows and ids.
            x = x * plans.solver.frame_mask[::2, ::FRAMES_PER_SPEECH_ID]
            future = future * has_future
        h, context = self.pre_lookahead_layer(x, future, state)
        return h.repeat_interleave(FRAMES_PER_SPEECH_ID, 1), context

    def _euler_steps(
        self,
        x: Tensor,
        conditioned: Tensor,
        states: tuple[UnetState | DitState, ...],
        plan: AttentionPlan,
        cache_form: CacheForm,
    ) -> tuple[Tensor, tuple[UnetState | DitState, ...]]:
        """All Euler steps. x: (B, T, 80) noise -> mel."""
        offsets, following = self.require_offsets(), []
        for index, (_, dt) in enumerate(self.times):
            x, state = self.euler_step(
                x, conditioned, (offsets[index : index + 1], dt), states[index], plan, cache_form
            )
            following.append(state)
        return x, tuple(following)

    def require_offsets(self) -> Tensor:
        """What each solver time adds in the estimator, (steps, parts, C). Raises RuntimeError without it."""
        if self.solver_offsets is None:
            raise RuntimeError("prepare() has not been called after the weights were loaded")
        return self.solver_offsets

    def euler_step(
        self,
        x: Tensor,
        conditioned: Tensor,
        time: tuple[Tensor, float | Tensor],
        state: UnetState | DitState,
        plan: AttentionPlan,
        cache_form: CacheForm,
    ) -> tuple[Tensor, UnetState | DitState]:
        """An Euler step with classifier-free guidance, both halves in one batch: (B, T, 80), the next state.

        conditioned: of ``conditioning``. time: of ``require_offsets``, (1 or 2 B, parts, C), and the width
        of the step, one or (B, 1, 1).
        """
        # (B, 2, T, 240) -> (2 B, T, 240)
        conditions = torch.stack([conditioned, torch.zeros_like(conditioned)], 1).flatten(0, 1)
        velocity, after = self.decoder.estimator.step(
            x.repeat_interleave(2, 0),
            conditions,
            time[0],
            map_state(_fold_halves, state),  # type: ignore[arg-type]
            plan,
            cache_form,
        )
        guidance, conditioned_velocity, free_velocity = self.config.guidance, velocity[0::2], velocity[1::2]
        x = x + time[1] * ((1 + guidance) * conditioned_velocity - guidance * free_velocity)
        return x, map_state(_unfold_halves, after)


def conditioning(mu: Tensor, speaker: Tensor, prompt_mel: Tensor) -> Tensor:
    """Inputs of the estimator beside the mel: (B, T, 240), of (B, T, 80), (B, 80) and (B, 80, T)."""
    return torch.cat([mu, speaker[:, None].expand_as(mu), prompt_mel.transpose(1, 2)], 2)


def solver_times(steps: int) -> tuple[tuple[float, float], ...]:
    """(time, step width) of each Euler step on a cosine schedule, with upstream's roundings."""
    span = 1 - torch.cos(torch.linspace(0, 1, steps + 1, device="cpu") * 0.5 * torch.pi)
    times, t = [], span[0]
    for following in span[1:]:
        dt = following - t
        times.append((t.item(), dt.item()))
        t = t + dt
    return tuple(times)


def _fold_halves(tensor: Tensor) -> Tensor:
    """(B, 2, ...) -> (2 B, ...), a view."""
    return tensor.flatten(0, 1)


def _unfold_halves(tensor: Tensor) -> Tensor:
    """(2 B, ...) -> (B, 2, ...), a view."""
    return tensor.view(len(tensor) // 2, 2, *tensor.shape[1:])


def _frame_lengths(lengths: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if lengths is None else tuple(length * FRAMES_PER_SPEECH_ID for length in lengths)


def _contiguous_plan(
    begins: Sequence[int], length: int, block: int, cache: AttentionMemory, valid: tuple[int, ...] | None
) -> ContiguousAttentionPlan:
    capacity, device = slot_capacity(cache), device_of(cache)
    return make_plan(begins, length, block=block, capacity=capacity, valid=valid, device=device)
