"""Speech ids to mel by conditional flow matching, each chunk computed once. No policy of hops, no vocoder.

Upstream runs the network over the whole prefix for every chunk. Nothing in it looks past the end of its block
of 25 ids, except three ids of lookahead, so a chunk of whole blocks can be computed once and for all:

    ids        |<- prompt ->|0 . . . 24|25 . . . 49|50 51 52
    steps      prefill       step 1     step 2      lookahead of step 2
    mel                     |0 . . . 49|50 . . . 99|

What later chunks need of earlier ones is in ``FlowState``, per solver step and guidance half. Chunks begin on
whole blocks, counted from the beginning of the prompt; only the last may be any length, and has no lookahead.
With an unlimited window the mel equals that of the whole prefix run again.

What is remembered, at the released size, and what it costs: MB a second of speech; CPU seconds / 2 of a 30 s
utterance after a prompt of 3 s, in hops of 25, 50, 100, ... ids, two cores, busy otherwise; the last second
against the first; largest deviation from the whole prefix run again, v2, random weights:

    v2 kept, window unlimited      MB/s    CPU s / 2   last/first    deviation
    keys and values, float32       231        67          2.0          2e-6      the default
    keys and values, float16       116    as above                     4e-5
    inputs, float32                 59        88          3.1          2e-6
    inputs, float16                 30        not timed                4e-5
    keys and values, window 10 s   (bounded)  50          1.1      an approximation

v3: 180 MB/s and 90 MB/s of keys and values, 90 MB/s and 45 MB/s of inputs. Convolution contexts add 1.3 MB
(v2) or 4.9 MB (v3) a session, whatever the length.

The last chunk keeps the block mask. Upstream drops it there and lets everything see everything: that is
``whole`` with ``AttentionMask.NONE`` over all ids, cut to the frames that are new.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/flow.py (CausalMaskedDiffWithXvec, CausalMaskedDiffWithDiT),
flow/flow_matching.py (CausalConditionalCFM); keys as in flow.pt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..devices import to_device
from ..layers import Linear, PreparedModule
from ..state import State, join_states, map_state
from .attention_memory import (
    AttentionMemory,
    AttentionPlan,
    CacheForm,
    ContiguousAttentionPlan,
    SeparateBuffers,
    device_of,
    make_plan,
    release_pages_behind,
    slot_capacity,
)
from .dit import DitConfig, DitState, FlowDit
from .encoder import (
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    EncoderConfig,
    EncoderState,
    FlowEncoder,
    LookaheadLayer,
)
from .unet import FlowUnet, UnetConfig, UnetState

MEL_BANDS = 80
BLOCK_IDS = 25
BLOCK_FRAMES = BLOCK_IDS * FRAMES_PER_SPEECH_ID
FRAMES_PER_S = 50
NOISE_FRAMES = 15_000


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Sizes of the network; v3 has no ``encoder``, its lookahead is all of it."""

    encoder: EncoderConfig | None
    estimator: UnetConfig | DitConfig
    speech_ids: int = 6561
    speaker_width: int = 192
    lookahead_width: int = 1024
    solver_steps: int = 10
    guidance: float = 0.7


V2_CONFIG = FlowConfig(EncoderConfig(), UnetConfig())
V3_CONFIG = FlowConfig(None, DitConfig())


@dataclass(frozen=True, slots=True)
class FlowPolicy:
    """How much is remembered, and in which form.

    ``window_frames``: how far back a frame sees, a multiple of 50; None is everything, which is exact.
    ``keep`` and ``dtype``: the form of the memory. ``reserve_frames``: room made at the beginning; memory
    that is not written to costs nothing on Linux, and growing later costs a copy.
    """

    window_frames: int | None = None
    cache_form: CacheForm = CacheForm.KEYS_VALUES
    dtype: torch.dtype = torch.float32
    reserve_frames: int = 40 * FRAMES_PER_S

    def __post_init__(self) -> None:
        if self.window_frames is not None and (self.window_frames < 1 or self.window_frames % BLOCK_FRAMES):
            raise ValueError(
                f"window_frames is {self.window_frames}; allowed: a multiple of {BLOCK_FRAMES}, or None"
            )


EXACT_POLICY = FlowPolicy()
HALF_PRECISION_POLICY = FlowPolicy(dtype=torch.float16)


class AttentionMask(Enum):
    """What a frame sees: its block and what lies before, or everything."""

    BLOCKS = "blocks"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FlowChunk:
    """The input of one step.

    ``ids``: (B, T) int64 speech ids, negative ones count as 0. ``future``: (B, 3) the ids after them, or (B,
    0) at the end of the utterance. ``prompt_mel``: (B, 80, 2 T) float32, the voice's mel where the chunk is
    prompt, 0 elsewhere. ``lengths``: ids of each row, in a last chunk whose rows end at different places.
    """

    ids: Tensor
    future: Tensor
    prompt_mel: Tensor
    lengths: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class FlowState:
    """What the flow remembers between chunks; used up by the step that it is given to.

    ``frames``: (B,) int64, mel frames behind, on the host, where steps are planned. ``speaker``: (B, 80).
    ``encoder``: the v2 encoder's, or (B, 2, C) context of v3's lookahead. ``solver``: one state a solver
    step, with tensors (B, 2, ...): conditioned half, free half.
    """

    frames: Tensor
    speaker: Tensor
    encoder: EncoderState | Tensor
    solver: tuple[UnetState | DitState, ...]


@dataclass(frozen=True, slots=True)
class FlowPlans:
    """How a chunk runs through each memory. solver: of 2 B rows, both halves. ids, frames: v2's encoder's."""

    solver: AttentionPlan
    ids: AttentionPlan | None
    frames: AttentionPlan | None


class _Decoder(nn.Module):
    def __init__(self, config: UnetConfig | DitConfig) -> None:
        super().__init__()
        self.estimator = FlowUnet(config) if isinstance(config, UnetConfig) else FlowDit(config)


class Flow(PreparedModule):
    """The flow of CosyVoice 2 or 3: ``prefill`` a voice, ``open`` it, ``step`` through an utterance."""

    def __init__(self, config: FlowConfig, policy: FlowPolicy | None = None) -> None:
        super().__init__()
        self.config = config
        self.policy = policy or EXACT_POLICY
        width = config.encoder.width if config.encoder else MEL_BANDS
        self.input_embedding = nn.Embedding(config.speech_ids, width)
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
        self._noise: dict[int, Tensor] = {}

    def prepare(self) -> None:
        """Compute what depends on the solver time only: it is the same for every chunk."""
        t = to_device(torch.tensor([time for time, _ in self.times]), self.device)
        self.solver_offsets = self.decoder.estimator.time_offsets(t)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.input_embedding.weight.device

    def project_speaker(self, embedding: Tensor) -> Tensor:
        """(B, 192) speaker embedding -> (B, 80) conditioning."""
        y: Tensor = self.spk_embed_affine_layer(F.normalize(embedding, dim=1))
        return y

    def init_state(self, speaker: Tensor, frames: int | None = None) -> FlowState:
        """A beginning. speaker: (B, 80) from ``speaker``. frames: room to make, the policy's by default."""
        capacity = self.policy.window_frames or frames or self.policy.reserve_frames
        return self.state_with_capacity(speaker, capacity, self.policy)

    def state_with_capacity(self, speaker: Tensor, capacity: int, policy: FlowPolicy) -> FlowState:
        """A beginning with room for so many frames, whatever they hold."""
        rows = len(speaker)
        halves = [
            self.decoder.estimator.init_state(2 * rows, capacity, policy.cache_form, policy.dtype)
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

    def _scratch_state(self, speaker: Tensor, frames: int) -> FlowState:
        """A beginning that nobody goes on from: one buffer serves every layer and every solver step."""
        state = self.state_with_capacity(speaker, frames, EXACT_POLICY)
        first = state.solver[0]
        assert isinstance(first.cache, Tensor)
        shared = replace(first, cache=first.cache[:, :, :1].expand_as(first.cache))
        return replace(state, solver=(shared,) * self.config.solver_steps)

    @torch.inference_mode()
    def prefill(self, ids: Tensor, prompt_mel: Tensor, speaker: Tensor) -> tuple[FlowState, int]:
        """The state behind a voice's prompt, and how many of its ids it covers; the others are to be stepped.

        ids: (1, P). prompt_mel: (1, 80, 2 P). Covered are the whole blocks whose lookahead lies within the
        prompt, so a prompt of a multiple of 25, plus 3, ids leaves the least to do. Compute once a voice,
        then ``open`` a copy a session.
        """
        covered = max(0, (ids.shape[1] - LOOKAHEAD_IDS) // BLOCK_IDS * BLOCK_IDS)
        state = self.init_state(speaker, frames=max(covered, BLOCK_IDS) * FRAMES_PER_SPEECH_ID)
        if covered:
            future = ids[:, covered : covered + LOOKAHEAD_IDS]
            _, state = self.step(
                FlowChunk(ids[:, :covered], future, prompt_mel[..., : covered * FRAMES_PER_SPEECH_ID]), state
            )
        return state, covered

    def copy_for_utterance(self, voice: FlowState, frames: int | None = None) -> FlowState:
        """The beginning of a session: a copy of a voice's state, with the policy's room or for ``frames``."""
        used = int(voice.frames.max())
        capacity = self.policy.window_frames or max(frames or self.policy.reserve_frames, used)
        return _with_capacity(voice, used, capacity)

    @torch.inference_mode()
    def step(self, chunk: FlowChunk, state: FlowState) -> tuple[Tensor, FlowState]:
        """The mel of a chunk: (B, 80, 2 T) float32, and the next state. The state given is used up.

        Rows may be anywhere in their utterances; their chunks are equally long. Raises ValueError if a chunk
        that is not the last is not whole blocks, or follows a last one.
        """
        begins = state.frames.tolist()
        check_chunk(chunk, begins)
        state = self._with_capacity_for(state, max(begins) + chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID)
        return self._plan_and_compute(chunk, state, begins, BLOCK_FRAMES, self.policy)

    @property
    def can_step_together(self) -> bool:
        """Whether ``step_together`` can be: memories are read as they are."""
        return self.policy.cache_form is CacheForm.KEYS_VALUES and self.policy.dtype == torch.float32

    @torch.inference_mode()
    def step_together(self, chunk: FlowChunk, states: Sequence[FlowState]) -> tuple[Tensor, list[FlowState]]:
        """``step`` on a chunk of as many rows as there are states, of one row each, kept where they are.

        Attention is over each row's own memory, all else is one batch. Raises as ``step``; a step that failed
        may be tried again with the same states.
        """
        begins = [int(state.frames) for state in states]
        check_chunk(chunk, begins)
        length = chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID
        grown = [
            self._with_capacity_for(state, begin + length)
            for state, begin in zip(states, begins, strict=True)
        ]
        mel, after = self._plan_and_compute(chunk, _batch_states(grown), begins, BLOCK_FRAMES, self.policy)
        return mel, [_state_row(after, row) for row in range(len(states))]

    @torch.inference_mode()
    def compute_whole(self, chunk: FlowChunk, speaker: Tensor, mask: AttentionMask) -> Tensor:
        """The mel of a prompt and all ids at once, from nothing: (B, 80, 2 T)."""
        length = chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID
        block = BLOCK_FRAMES if mask is AttentionMask.BLOCKS else length
        state = self._scratch_state(speaker, length)
        return self._plan_and_compute(chunk, state, [0] * len(speaker), block, EXACT_POLICY)[0]

    @torch.inference_mode()
    def solve(self, mu: Tensor, prompt_mel: Tensor, speaker: Tensor, mask: AttentionMask) -> Tensor:
        """The mel for a given conditioning, at once and from nothing. mu: (B, T, 80). Returns (B, 80, T)."""
        length, begins = mu.shape[1], [0] * len(mu)
        state = self._scratch_state(speaker, length)
        plan = self._solver_plan(
            state, begins, length, BLOCK_FRAMES if mask is AttentionMask.BLOCKS else length
        )
        return self._condition_and_solve(
            mu, prompt_mel, self.noise_rows(begins, length), state, plan, EXACT_POLICY.cache_form
        )[0]

    def _plan_and_compute(
        self, chunk: FlowChunk, state: FlowState, begins: list[int], block: int, policy: FlowPolicy
    ) -> tuple[Tensor, FlowState]:
        plans = self._plans(chunk, state, begins, block)
        noise = self.noise_rows(begins, chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID)
        return self.compute(chunk, noise, state, plans, policy.cache_form)

    def compute(
        self, chunk: FlowChunk, noise: Tensor, state: FlowState, plans: "FlowPlans", cache_form: CacheForm
    ) -> tuple[Tensor, FlowState]:
        """A step once it is planned; the plans know which rows end early. noise: of ``noises``."""
        mu, encoder = self._encode(chunk, state, plans)
        mel, solver = self._condition_and_solve(mu, chunk.prompt_mel, noise, state, plans.solver, cache_form)
        return mel, FlowState(state.frames + mu.shape[1], state.speaker, encoder, solver)

    def noise_rows(self, begins: Sequence[int], frames: int) -> Tensor:
        """``noise`` for several rows: (B, frames, 80)."""
        return torch.stack([self.noise(begin, frames) for begin in begins])

    def _condition_and_solve(
        self,
        mu: Tensor,
        prompt_mel: Tensor,
        noise: Tensor,
        state: FlowState,
        plan: AttentionPlan,
        cache_form: CacheForm,
    ) -> tuple[Tensor, tuple[UnetState | DitState, ...]]:
        speaker = state.speaker[:, None].expand_as(mu)
        conditioned = torch.cat([mu, speaker, prompt_mel.transpose(1, 2)], 2)
        mel, solver = self._solve(noise, conditioned, state.solver, plan, cache_form)
        return mel.transpose(1, 2), solver

    def _encode(
        self, chunk: FlowChunk, state: FlowState, plans: "FlowPlans"
    ) -> tuple[Tensor, EncoderState | Tensor]:
        """The conditioning of the chunk, (B, 2 T, 80)."""
        x, future = (self.input_embedding(ids.clamp(min=0)) for ids in (chunk.ids, chunk.future))
        if isinstance(state.encoder, EncoderState):
            assert plans.ids is not None and plans.frames is not None
            h, encoder = self.encoder.step(x, future, state.encoder, plans.ids, plans.frames)
            return self.encoder_proj(h), encoder
        if plans.solver.frame_mask is not None:
            x = x * plans.solver.frame_mask[::2, ::FRAMES_PER_SPEECH_ID]
        h, context = self.pre_lookahead_layer(x, future, state.encoder)
        return h.repeat_interleave(FRAMES_PER_SPEECH_ID, 1), context

    def _plans(self, chunk: FlowChunk, state: FlowState, begins: list[int], block: int) -> "FlowPlans":
        length, doubled = chunk.ids.shape[1], _frame_lengths(chunk.lengths)
        solver = self._solver_plan(state, begins, length * FRAMES_PER_SPEECH_ID, block, doubled)
        if not isinstance(state.encoder, EncoderState):
            return FlowPlans(solver, None, None)
        memory, places = state.encoder, [begin // FRAMES_PER_SPEECH_ID for begin in begins]
        ids = _contiguous_plan(places, length, block // FRAMES_PER_SPEECH_ID, memory.ids, chunk.lengths)
        return FlowPlans(
            solver,
            ids,
            _contiguous_plan(begins, length * FRAMES_PER_SPEECH_ID, block, memory.frames, doubled),
        )

    def _solver_plan(
        self,
        state: FlowState,
        begins: list[int],
        length: int,
        block: int,
        valid: tuple[int, ...] | None = None,
    ) -> ContiguousAttentionPlan:
        twice = [begin for begin in begins for _ in range(2)]
        halves = None if valid is None else tuple(count for count in valid for _ in range(2))
        return _contiguous_plan(twice, length, block, state.solver[0].cache, halves)

    def _solve(
        self,
        x: Tensor,
        conditioned: Tensor,
        states: tuple[UnetState | DitState, ...],
        plan: AttentionPlan,
        cache_form: CacheForm,
    ) -> tuple[Tensor, tuple[UnetState | DitState, ...]]:
        """Euler steps with classifier-free guidance, both halves in one batch. x: (B, T, 80) noise -> mel."""
        if self.solver_offsets is None:
            raise RuntimeError("prepare() has not been called after the weights were loaded")
        conditions = torch.stack([conditioned, torch.zeros_like(conditioned)], 1).flatten(0, 1)
        guidance = self.config.guidance
        following = []
        for index, (_, dt) in enumerate(self.times):
            velocity, state = self.decoder.estimator.step(
                x.repeat_interleave(2, 0),
                conditions,
                self.solver_offsets[index : index + 1],
                map_state(_fold_halves, states[index]),  # type: ignore[arg-type]
                plan,
                cache_form,
            )
            following.append(map_state(_unfold_halves, state))
            conditioned_velocity, free_velocity = velocity[0::2], velocity[1::2]
            x = x + dt * ((1 + guidance) * conditioned_velocity - guidance * free_velocity)
        return x, tuple(following)

    def noise(self, begin: int, frames: int) -> Tensor:
        """(frames, 80): where the solver starts from, the same for every utterance.

        The first 15,000 frames (300 s) are upstream's; the n-th 15,000 after them are drawn the same way with
        seed n.
        """
        first, last = begin // NOISE_FRAMES, (begin + frames - 1) // NOISE_FRAMES
        drawn = torch.cat([self._noise_block(index) for index in range(first, last + 1)])
        return drawn[begin - first * NOISE_FRAMES :][:frames]

    def _noise_block(self, index: int) -> Tensor:
        if index not in self._noise:
            drawn = torch.randn(MEL_BANDS, NOISE_FRAMES, generator=torch.Generator().manual_seed(index))
            self._noise[index] = to_device(drawn.T.contiguous(), self.device)
        return self._noise[index]

    def _with_capacity_for(self, state: FlowState, frames: int) -> FlowState:
        capacity = slot_capacity(state.solver[0].cache)
        if self.policy.window_frames is not None or frames <= capacity:
            return state
        return _with_capacity(state, int(state.frames.max()), max(frames, capacity * 3 // 2))


def solver_times(steps: int) -> tuple[tuple[float, float], ...]:
    """(time, step width) of each Euler step, on a cosine schedule, rounded as upstream rounds them."""
    span = 1 - torch.cos(torch.linspace(0, 1, steps + 1, device="cpu") * 0.5 * torch.pi)
    times, t = [], span[0]
    for following in span[1:]:
        dt = following - t
        times.append((t.item(), dt.item()))
        t = t + dt
    return tuple(times)


def state_bytes_per_s(config: FlowConfig, policy: FlowPolicy) -> int:
    """What an unlimited window adds to a session's state for each second of speech."""
    estimator = config.estimator
    layers = estimator.attention_layers if isinstance(estimator, UnetConfig) else estimator.depth
    width = estimator.channels if isinstance(estimator, UnetConfig) else estimator.width
    depth = 2 * estimator.inner if policy.cache_form is CacheForm.KEYS_VALUES else width
    solver = 2 * config.solver_steps * layers * depth * policy.dtype.itemsize * FRAMES_PER_S
    if config.encoder is None:
        return solver
    encoder = config.encoder
    rates = encoder.layers * FRAMES_PER_S // FRAMES_PER_SPEECH_ID + encoder.up_layers * FRAMES_PER_S
    return solver + 2 * encoder.width * torch.float32.itemsize * rates


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


def check_chunk(chunk: FlowChunk, begins: list[int]) -> None:
    """Raise ValueError for a chunk that rows with so many frames behind them cannot take."""
    length, future = chunk.ids.shape[1], chunk.future.shape[1]
    if future not in (0, LOOKAHEAD_IDS):
        raise ValueError(
            f"future has {future} ids; allowed: {LOOKAHEAD_IDS}, or 0 at the end of the utterance"
        )
    if not length or (future and length % BLOCK_IDS):
        raise ValueError(
            f"a chunk has {length} ids; allowed: a multiple of {BLOCK_IDS}, any number at the end"
        )
    if any(begin % BLOCK_FRAMES for begin in begins):
        raise ValueError(f"a row has {begins} frames behind it: its last chunk has been rendered already")
    if chunk.prompt_mel.shape[2] != length * FRAMES_PER_SPEECH_ID:
        raise ValueError(
            f"prompt_mel has {chunk.prompt_mel.shape[2]} frames; allowed: {length * FRAMES_PER_SPEECH_ID} for {length} ids"
        )


def _batch_states(states: Sequence[FlowState]) -> FlowState:
    """Sessions as rows of one state, their memories where they lie."""
    encoders = [state.encoder for state in states if isinstance(state.encoder, EncoderState)]
    contexts = [state.encoder for state in states if isinstance(state.encoder, Tensor)]
    return FlowState(
        join_states([state.frames for state in states]),
        join_states([state.speaker for state in states]),
        _batch_encoder_states(encoders) if encoders else join_states(contexts),
        tuple(_batch_solver_states(parts) for parts in zip(*(state.solver for state in states), strict=True)),
    )


def _batch_encoder_states(states: Sequence[EncoderState]) -> EncoderState:
    return EncoderState(
        join_states([state.lookahead for state in states]),
        join_states([state.up for state in states]),
        _separate_buffers([state.ids for state in states]),
        _separate_buffers([state.frames for state in states]),
    )


def _batch_solver_states(states: Sequence[UnetState | DitState]) -> UnetState | DitState:
    contexts = join_states([replace(state, cache=torch.empty(1, 0)) for state in states])
    return replace(contexts, cache=_separate_buffers([state.cache for state in states]))


def _separate_buffers(memories: Sequence[AttentionMemory]) -> SeparateBuffers:
    return SeparateBuffers(tuple(memory for memory in memories if isinstance(memory, Tensor)))


def _state_row(state: State, row: int) -> State:
    """A state's row, as a state of one row; a memory that lies apart is that of one row."""
    if isinstance(state, Tensor):
        return cast(State, state[row : row + 1])
    if isinstance(state, SeparateBuffers):
        return cast(State, state.rows[row])
    if isinstance(state, tuple):
        return cast(State, tuple(_state_row(part, row) for part in state))
    names = [field.name for field in fields(state)]  # type: ignore[arg-type]
    return replace(state, **{name: _state_row(getattr(state, name), row) for name in names})  # type: ignore[type-var]


def _with_capacity(state: FlowState, used: int, capacity: int) -> FlowState:
    """A state whose buffers are copies with room for ``room`` frames; steps write to nothing else."""
    encoder = state.encoder
    if isinstance(encoder, EncoderState):
        ids, frames = (
            _resized(encoder.ids, used // FRAMES_PER_SPEECH_ID, capacity // FRAMES_PER_SPEECH_ID),
            _resized(encoder.frames, used, capacity),
        )
        encoder = replace(encoder, ids=ids, frames=frames)
    solver = tuple(replace(part, cache=_resized(part.cache, used, capacity)) for part in state.solver)
    return replace(state, encoder=encoder, solver=solver)


def release_memory_behind(state: FlowState, frames: int) -> None:
    """Give the memory behind so many frames back to the system, as ``release_pages_behind`` does."""
    encoder = state.encoder
    if isinstance(encoder, EncoderState):
        _release(encoder.ids, frames // FRAMES_PER_SPEECH_ID)
        _release(encoder.frames, frames)
    for part in state.solver:
        _release(part.cache, frames)


def _release(cache: AttentionMemory, slots: int) -> None:
    assert isinstance(cache, Tensor)
    release_pages_behind(cache, slots)


def _resized(cache: AttentionMemory, used: int, capacity: int) -> Tensor:
    assert isinstance(cache, Tensor)
    resized = cache.new_empty(*cache.shape[:-2], capacity, cache.shape[-1])
    cache_form = min(used, cache.shape[-2])
    resized[..., :cache_form, :] = cache[..., :cache_form, :]
    return resized
