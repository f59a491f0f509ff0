"""The language model that turns text ids into speech ids: a Qwen2 decoder with a head for speech.

Written for a batch of sessions. Weights live here, memory in ``SpeechLmState``; what to feed and which ids
are allowed is bistream's, choosing among the allowed is sampling's.

    x, valid = embed(lm, [ask.inputs for ask in asks])      what is new in each row, padded at the right
    hidden, state = lm.step(x, state, valid)
    logits = lm.logits(last_valid_hidden(hidden, valid))

A row's memory holds keys and values of every id it has been fed, at their positions; a step writes the new
ones behind them and attends to all of them:

    position    0 .. lengths-1         | lengths .. lengths+valid-1 | .. capacity-1 | capacity
                fed before, untouched  | written by this step       | unused        | what padding writes

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:229-280, 474-549, 664-731 (inputs, heads, ids); the
decoder is Qwen2 (arXiv:2407.10671): RMS norm, rotary positions, grouped queries, gated SiLU.
"""

import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..config import CosyVoiceVersion, SpeechLmConfig
from ..devices import to_device
from ..layers import Linear, load_weights
from ..precision import MatrixRole, Precision, linear_class
from .generation import LmInput, LmInputKind

TEXT_EMBEDDING_KEY = "llm.model.model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class SpeechLmState:
    """What the language model remembers of each row.

    kv: (B, layers, 2, kv_heads, capacity + 1, head_width), key and value; written in place behind
        ``lengths``, so that a state may be stepped from once. The last position is scratch.
    lengths: (B,) int64, ids fed so far; on the host, where it is known without asking the device.
    """

    kv: Tensor
    lengths: Tensor

    @property
    def capacity(self) -> int:
        """Ids that a row can hold."""
        return self.kv.shape[4] - 1


class SpeechLm(nn.Module):
    """The network. Built by ``load``; nothing in it changes afterwards."""

    def __init__(self, config: SpeechLmConfig, precision: Precision = Precision.FP32) -> None:
        super().__init__()
        self.config = config
        self.text_embedding = nn.Embedding(config.text_vocab_size, config.hidden)
        self.speech_embedding = nn.Embedding(config.speech_vocab_size, config.hidden)
        if config.version is CosyVoiceVersion.V2:
            self.control_embedding = nn.Embedding(2, config.hidden)
        self.layers = nn.ModuleList(
            _DecoderLayer(
                config, *(linear_class(precision, place, layer / config.layers) for place in MatrixRole)
            )
            for layer in range(config.layers)
        )
        self.norm = _RmsNorm(config.hidden, config.norm_epsilon)
        head = linear_class(precision, MatrixRole.OTHER, 1)
        self.head = head(config.hidden, config.speech_vocab_size, bias=config.version is CosyVoiceVersion.V2)

    @classmethod
    def load(
        cls, config: SpeechLmConfig, weights: dict[str, Tensor], precision: Precision = Precision.FP32
    ) -> "SpeechLm":
        """Build from the tensors of llm.pt, taking them out of ``weights`` so that none is held twice.

        precision: of its matrices. Raises KeyError for a missing key; what is left in
        ``weights`` afterwards was not wanted.
        """
        with torch.device("meta"):
            network = cls(config, precision)
        # Tied to the text embedding and not used to speak.
        weights.pop("llm.model.lm_head.weight", None)
        load_weights(network, _fuse_weights(config, weights))
        return network

    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """Empty memory. capacity: ids a row can hold; on a CPU what is not written to takes no room."""
        config, weight = self.config, self.speech_embedding.weight
        shape = (rows, config.layers, 2, config.kv_heads, capacity + 1, config.head_width)
        kv = _lazy_zeros(shape, weight)
        return SpeechLmState(kv, torch.zeros(rows, dtype=torch.int64))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.speech_embedding.weight.device

    def embed_speech(self, speech_ids: Tensor) -> Tensor:
        """(...) int64 speech ids, control ids of v3 among them, to (..., hidden)."""
        embedded: Tensor = self.speech_embedding(speech_ids)
        return embedded

    def input_index(self, lm_input: LmInput) -> int:
        """The number of an input among all that there are: text ids, then speech ids, then v2's controls.

        Raises IndexError for an id that the network has not.
        """
        text, speech = self.config.text_vocab_size, self.config.speech_vocab_size
        match lm_input.kind:
            case LmInputKind.TEXT:
                return range(text)[lm_input.id]
            case LmInputKind.SPEECH:
                return text + range(speech)[lm_input.id]
            case LmInputKind.START | LmInputKind.TURN if self.config.version is CosyVoiceVersion.V2:
                return text + speech + (lm_input.kind is LmInputKind.TURN)
            case LmInputKind.START | LmInputKind.TURN:
                # v3 keeps both among the speech ids, with the end of speech between them.
                return text + self.config.codebook_size + 2 * (lm_input.kind is LmInputKind.TURN)
            case _:
                assert_never(lm_input.kind)

    def speech_input_indices(self, ids: Tensor) -> Tensor:
        """``code`` of speech ids (...) int64; those that there are none of become some that there are."""
        return self.config.text_vocab_size + ids.clamp(0, self.config.speech_vocab_size - 1)

    def embed(self, indices: Tensor) -> Tensor:
        """(...) int64 of ``code`` to (..., hidden)."""
        embedded: Tensor = self.text_embedding(indices.clamp(max=self.config.text_vocab_size - 1))
        begin = self.config.text_vocab_size
        for table in self._speech_tables():
            there = table((indices - begin).clamp(0, len(table.weight) - 1))
            embedded = torch.where((indices < begin)[..., None], embedded, there)
            begin += len(table.weight)
        return embedded

    def step(
        self, x: Tensor, state: SpeechLmState, valid: Tensor | None = None
    ) -> tuple[Tensor, SpeechLmState]:
        """Feed each row what is new to it; (B, T, hidden) after the final norm, and the memory after.

        x: (B, T, hidden). valid: (B,) int64 on the host, how many of the T are real (0 leaves a row as it
        is); all by default. Output at padding is meaningless. Raises ValueError where a row would outgrow its
        memory.
        """
        rows, columns, _ = x.shape
        if valid is None:
            valid = state.lengths.new_full((rows,), columns)
        lengths = state.lengths + valid
        max_length = int(lengths.max())
        if max_length > state.capacity:
            raise ValueError(f"a row would hold {max_length} ids; its memory was made for {state.capacity}")
        positions, write_positions = (
            to_device(part, x.device) for part in input_and_write_positions(state, valid, columns)
        )
        plan = make_lm_step_plan(positions, write_positions, max_length, self.config)
        if rows == columns == 1:
            plan = replace(plan, visible=None)  # a row alone is attended to as far as it goes
        return self.run_layers(x, state.kv, plan), SpeechLmState(state.kv, lengths)

    def run_layers(self, x: Tensor, kv: Tensor, plan: "LmStepPlan") -> Tensor:
        """What a step computes once it is planned: (B, T, hidden). x: (B, T, hidden). kv: as in a state."""
        for index, layer in enumerate(self.layers):
            x = layer(x, kv[:, index], plan)
        normed: Tensor = self.norm(x)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) to (..., speech_vocab_size), before any softmax."""
        scores: Tensor = self.head(hidden)
        return scores

    def _speech_tables(self) -> list[nn.Embedding]:
        is_v2 = self.config.version is CosyVoiceVersion.V2
        return [self.speech_embedding, self.control_embedding] if is_v2 else [self.speech_embedding]


def with_row_cleared(state: SpeechLmState, row: int) -> SpeechLmState:
    """The memory with one row empty, for its next session.

    What was in it stays, unseen, until written over.
    """
    lengths = state.lengths.clone()
    lengths[row] = 0
    return SpeechLmState(state.kv, lengths)


def embed_inputs(lm: SpeechLm, rows: Sequence[Sequence[LmInput]]) -> tuple[Tensor, Tensor]:
    """The inputs of several sessions as one step's: (B, T, hidden), padded at the right, and how many are
    real, on the host.

    A row without inputs sits the step out; at least one must have some.
    """
    valid = torch.tensor([len(lm_inputs) for lm_inputs in rows])
    indices = torch.zeros(len(rows), int(valid.max()), dtype=torch.int64)
    for row, lm_inputs in enumerate(rows):
        indices[row, : len(lm_inputs)] = torch.tensor([lm.input_index(lm_input) for lm_input in lm_inputs])
    return lm.embed(to_device(indices, lm.device)), valid


def _lazy_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros, because what is masked is still multiplied by nought and must be a number.

    On a CPU they come from the system page by page as they are written; torch.zeros would write them all, and
    numpy's come in pages of 2 MB, of which every head's keys would take one.
    """
    if like.device.type != "cpu":
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    pages = mmap.mmap(-1, math.prod(shape) * like.element_size())
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)


def last_valid_hidden(hidden: Tensor, valid: Tensor) -> Tensor:
    """(B, hidden): of each row the output at its last real column; meaningless for rows without one."""
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    return hidden[rows, to_device((valid - 1).clamp(min=0), hidden.device)]


@dataclass(frozen=True, slots=True)
class LmStepPlan:
    """Where a step writes and what it may see; the same for every layer.

    rows: (B, 1) int64. places: (B, T) int64, positions to write to. cos, sin: (B, 1, T, head_width).
    longest: positions to attend to. visible: (B, 1, G * T, longest) bool, G queries a key; None = all of
    them.
    """

    rows: Tensor
    write_positions: Tensor
    cos: Tensor
    sin: Tensor
    attended_positions: int
    visible: Tensor | None


def input_and_write_positions(state: SpeechLmState, valid: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Each input's position, and where it is written: padding to the scratch. (B, T) int64, on the host."""
    column = torch.arange(columns)
    positions = state.lengths[:, None] + column
    return positions, torch.where(column < valid[:, None], positions, state.capacity)


def make_lm_step_plan(
    positions: Tensor, write_positions: Tensor, max_length: int, config: SpeechLmConfig
) -> LmStepPlan:
    """The plan for inputs at such positions and places, where the step computes.

    longest: positions to attend to, of which a row sees those that are behind it.
    """
    rows = torch.arange(len(positions), device=positions.device)[:, None]
    cos, sin = _rotation(positions, config)
    seen = torch.arange(max_length, device=positions.device) <= positions[..., None]
    visible = seen[:, None].repeat(1, 1, config.heads // config.kv_heads, 1)
    # (B, 1, G * T, longest)
    return LmStepPlan(rows, write_positions, cos, sin, max_length, visible)


def _rotation(positions: Tensor, config: SpeechLmConfig) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of each position's angles, for ``_rotate``."""
    steps = torch.arange(0, config.head_width, 2, device=positions.device).float() / config.head_width
    angles = positions[:, None, :, None].float() / config.rope_base**steps
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def _rotate(x: Tensor, plan: LmStepPlan) -> None:
    """Turn channel i against channel i + half, in place. x: (B, heads, T, head_width)."""
    other = x.roll(x.shape[-1] // 2, -1)
    x.mul_(plan.cos).addcmul_(other, plan.sin)


class _RmsNorm(nn.Module):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class _DecoderLayer(nn.Module):
    def __init__(self, config: SpeechLmConfig, attention: type[Linear], other: type[Linear]) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = config.heads, config.kv_heads, config.head_width
        self.attention_norm = _RmsNorm(config.hidden, config.norm_epsilon)
        self.qkv = attention(config.hidden, (config.heads + 2 * config.kv_heads) * config.head_width)
        self.output = attention(config.hidden, config.hidden, bias=False)
        self.mlp_norm = _RmsNorm(config.hidden, config.norm_epsilon)
        self.gate_up = other(config.hidden, 2 * config.intermediate, bias=False)
        self.down = other(config.intermediate, config.hidden, bias=False)

    def forward(self, x: Tensor, kv: Tensor, plan: LmStepPlan) -> Tensor:
        x = x + self.output(self._attend(self.qkv(self.attention_norm(x)), kv, plan))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        x = x + self.down(functional.silu(gate).mul_(up))
        return x

    def _attend(self, qkv: Tensor, kv: Tensor, plan: LmStepPlan) -> Tensor:
        rows, columns, _ = qkv.shape
        heads = qkv.view(rows, columns, -1, self.width).transpose(1, 2)
        _rotate(heads[:, : -self.kv_heads], plan)
        # Queries that share a key become more columns of it, so that keys need not be repeated.
        query = heads[:, : self.heads].reshape(rows, self.kv_heads, -1, self.width)
        new = heads[:, self.heads :].view(rows, 2, self.kv_heads, columns, self.width)
        # Indexing puts the indexed dimensions first.
        kv[plan.rows, :, :, plan.write_positions] = new.permute(0, 3, 1, 2, 4)
        keys, values = kv[:, 0, :, : plan.attended_positions], kv[:, 1, :, : plan.attended_positions]
        attended = functional.scaled_dot_product_attention(query, keys, values, attn_mask=plan.visible)
        attended = attended.reshape(rows, self.heads, columns, self.width)
        return attended.transpose(1, 2).reshape(rows, columns, -1)


def _fuse_weights(config: SpeechLmConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The network's own names and fused matrices, taken out of ``weights`` one by one."""
    taken = {
        "text_embedding.weight": weights.pop(TEXT_EMBEDDING_KEY),
        "speech_embedding.weight": weights.pop("speech_embedding.weight"),
        "norm.weight": weights.pop("llm.model.model.norm.weight"),
        "head.weight": weights.pop("llm_decoder.weight"),
    }
    if config.version is CosyVoiceVersion.V2:
        taken["control_embedding.weight"] = weights.pop("llm_embedding.weight")
        taken["head.bias"] = weights.pop("llm_decoder.bias")
    for layer in range(config.layers):
        fused = _fuse_layer_weights(weights, f"llm.model.model.layers.{layer}.")
        taken |= {f"layers.{layer}.{name}": tensor for name, tensor in fused.items()}
    return taken


def _fuse_layer_weights(weights: dict[str, Tensor], prefix: str) -> Mapping[str, Tensor]:
    def joined(part: str, names: Sequence[str], kind: str) -> Tensor:
        return torch.cat([weights.pop(f"{prefix}{part}.{name}_proj.{kind}") for name in names])

    return {
        "attention_norm.weight": weights.pop(f"{prefix}input_layernorm.weight"),
        "qkv.weight": joined("self_attn", "qkv", "weight"),
        "qkv.bias": joined("self_attn", "qkv", "bias"),
        "output.weight": weights.pop(f"{prefix}self_attn.o_proj.weight"),
        "mlp_norm.weight": weights.pop(f"{prefix}post_attention_layernorm.weight"),
        "gate_up.weight": joined("mlp", ("gate", "up"), "weight"),
        "down.weight": weights.pop(f"{prefix}mlp.down_proj.weight"),
    }
