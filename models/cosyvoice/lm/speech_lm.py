"""The language model that turns text ids into speech ids: a Qwen2 decoder with a speech head.

A step runs a batch of sessions. The module holds the weights, ``SpeechLmState`` the memory of the sessions;
``generation`` decides the inputs and ``sampling`` the ids.

    x, valid = embed_inputs(lm, [request.inputs for request in requests])      padded at the right
    hidden, state = lm.step(x, state, valid)
    logits = lm.logits(last_valid_hidden(hidden, valid))

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:229-280, 474-549, 664-731 (inputs, heads, ids); the
decoder is Qwen2 (arXiv:2407.10671): RMS norm, rotary positions, grouped queries, gated SiLU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...decoding.kv_memory import KvStepPlan, SpeechLmState, empty_state, place_columns
from ...devices.execution import Precision
from ...devices.torch_devices import to_device
from ...networks.kernel_support import MAX_FUSED_ROWS, has_fused_kernels
from ...networks.layers import Linear, join_matrices, load_weights, new_embedding
from ...networks.precision import MatrixRole, linear_class
from ..config import TEXT_EMBEDDING_KEY, TIED_HEAD_KEY, CosyVoiceVersion, SpeechLmConfig
from .generation import LmInput, lm_input_index

if TYPE_CHECKING:
    from ...kernels.decoder_layers import DecoderWeights


class LmNetwork(Protocol):
    """The language model as its callers see it, executed by torch or by ONNX Runtime; as in ``SpeechLm``."""

    config: SpeechLmConfig

    @property
    def device(self) -> torch.device: ...

    def init_state(self, rows: int, capacity: int) -> SpeechLmState: ...

    def input_index(self, lm_input: LmInput) -> int: ...

    def embed(self, indices: Tensor) -> Tensor: ...

    def embed_speech(self, speech_ids: Tensor) -> Tensor: ...

    def step(
        self, x: Tensor, state: SpeechLmState, valid: Tensor | None = None
    ) -> tuple[Tensor, SpeechLmState]: ...

    def logits(self, hidden: Tensor) -> Tensor: ...


class SpeechLm(nn.Module):
    """The network. Built by ``load`` and constant afterwards."""

    def __init__(self, config: SpeechLmConfig, precision: Precision = Precision.FP32) -> None:
        super().__init__()
        self.config = config
        self.text_embedding = new_embedding(config.text_vocab_size, config.hidden)
        self.speech_embedding = new_embedding(config.speech_vocab_size, config.hidden)
        if config.version is CosyVoiceVersion.V2:
            self.control_embedding = new_embedding(2, config.hidden)
        self.layers = nn.ModuleList(
            _DecoderLayer(
                config, *(linear_class(precision, place, layer / config.layers) for place in MatrixRole)
            )
            for layer in range(config.layers)
        )
        self._rotary_periods: Tensor | None = None
        self._decoder_weights: DecoderWeights | None = None
        self.norm = _RmsNorm(config.hidden, config.norm_epsilon)
        head = linear_class(precision, MatrixRole.OTHER, 1)
        self.head = head(config.hidden, config.speech_vocab_size, bias=config.version is CosyVoiceVersion.V2)

    @classmethod
    def load(
        cls, config: SpeechLmConfig, weights: dict[str, Tensor], precision: Precision = Precision.FP32
    ) -> "SpeechLm":
        """Build from the tensors of llm.pt, with matrices in the given precision.

        Used tensors are removed from ``weights``, so that none is held twice; unknown ones stay in it. Raises
        KeyError for a missing key.
        """
        with torch.device("meta"):
            network = cls(config, precision)
        weights.pop(TIED_HEAD_KEY, None)
        load_weights(network, fuse_weights(config, weights))
        return network

    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """Empty memory for ``capacity`` ids a row. On a CPU, pages that are not written take no memory."""
        config = self.config
        heads_shape = (config.layers, config.kv_heads, config.head_width)
        return empty_state(rows, capacity, heads_shape, self.speech_embedding.weight)

    def state_bytes(self, rows: int, capacity: int) -> int:
        """Size of the memory that ``init_state`` makes."""
        config, itemsize = self.config, self.speech_embedding.weight.itemsize
        return 2 * rows * config.layers * config.kv_heads * (capacity + 1) * config.head_width * itemsize

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.speech_embedding.weight.device

    @property
    def has_fused_kernels(self) -> bool:
        """Whether kernels compute the layers; they need no mask, and read what a row has in its memory."""
        return all(cast(_DecoderLayer, layer).has_fused_kernels(self.device) for layer in self.layers)

    def embed_speech(self, speech_ids: Tensor) -> Tensor:
        """Embed speech ids, in v3 control ids too: (...) int64 to (..., hidden)."""
        embedded: Tensor = self.speech_embedding(speech_ids)
        return embedded

    def input_index(self, lm_input: LmInput) -> int:
        """Index of an input among all: text ids, then speech ids, then the controls of v2.

        Raises IndexError for an id outside the vocabulary.
        """
        return lm_input_index(self.config, lm_input)

    def embed(self, indices: Tensor) -> Tensor:
        """Embed indices of ``input_index``: (...) int64 to (..., hidden)."""
        embedded: Tensor = self.text_embedding(indices.clamp(max=self.config.text_vocab_size - 1))
        begin = self.config.text_vocab_size
        for table in self._speech_tables():
            rows = table((indices - begin).clamp(0, len(table.weight) - 1))
            embedded = torch.where((indices < begin)[..., None], embedded, rows)
            begin += len(table.weight)
        return embedded

    def embed_and_plan(
        self, indices: Tensor, positions: Tensor, attention: KvStepPlan
    ) -> tuple[Tensor, "LmStepPlan"]:
        """``embed`` and ``make_lm_step_plan`` of columns (B, T), in one kernel where kernels compute."""
        if not self.has_fused_kernels:
            return self.embed(indices), make_lm_step_plan(attention, positions, self.config)
        from ..kernels.lm_kernels import embed_and_rotate

        tables = [table.weight for table in (self.text_embedding, *self._speech_tables())]
        embedded, cos, sin = embed_and_rotate(
            indices.contiguous(), positions.contiguous(), tables, self._periods()
        )
        return embedded, LmStepPlan(attention, cos, sin, positions, self._counters(positions))

    def _counters(self, positions: Tensor) -> Tensor:
        """As of ``_part_counters``; those of a few rows are made once, because kernels leave them 0."""
        if positions.numel() > MAX_FUSED_ROWS:
            return _part_counters(positions, self.config)
        return self._fused_weights().counters.parts

    def _periods(self) -> Tensor:
        """As of ``rotary_periods``; made once, before a step is captured."""
        if self._rotary_periods is None:
            self._rotary_periods = rotary_periods(self.config, self.device)
        return self._rotary_periods

    def step(
        self, x: Tensor, state: SpeechLmState, valid: Tensor | None = None
    ) -> tuple[Tensor, SpeechLmState]:
        """Feed embedded inputs (B, T, hidden); returns the hidden states, normed, and the new state.

        ``valid`` (B,) int64 on the host is the number of real columns in each row, by default all; 0 leaves
        a row unchanged. The output at padding is undefined. Raises ValueError if a row would outgrow its
        memory.
        """
        placed = place_columns(state, x, valid)
        plan = make_lm_step_plan(placed.plan(self.config.queries_per_key), placed.positions, self.config)
        return self.run_layers(x, state.kv, plan), SpeechLmState(state.kv, placed.lengths)

    def run_layers(self, x: Tensor, kv: Tensor, plan: "LmStepPlan") -> Tensor:
        """Run the layers and the final norm on (B, T, hidden), with the ``kv`` of a state."""
        if self.has_fused_kernels and x.shape[0] * x.shape[1] <= MAX_FUSED_ROWS:
            return self._run_fused_layers(x, kv, plan)
        for index, layer in enumerate(self.layers):
            x = layer(x, kv[:, index], plan)
        normed: Tensor = self.norm(x)
        return normed

    def _run_fused_layers(self, x: Tensor, kv: Tensor, plan: "LmStepPlan") -> Tensor:
        from ...kernels.decoder_layers import run_decoder
        from ..kernels.lm_kernels import add_and_norm

        x = run_decoder(
            x,
            self._fused_weights(),
            (plan.cos, plan.sin),
            kv,
            plan.positions,
            plan.attention.write_positions,
            plan.attention.attended_positions,
        )
        return add_and_norm(x, None, self.norm.weight, self.norm.epsilon, torch.float32)[1]

    def _fused_weights(self) -> "DecoderWeights":
        """Weights of all layers, one behind the other; made once, before a step is captured."""
        if self._decoder_weights is None:
            self._decoder_weights = _join_layers(cast(list[_DecoderLayer], list(self.layers)))
        return self._decoder_weights

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores before softmax: (..., hidden) to (..., speech_vocab_size)."""
        scores: Tensor = self.head(hidden)
        return scores

    def _speech_tables(self) -> list[nn.Embedding]:
        is_v2 = self.config.version is CosyVoiceVersion.V2
        return [self.speech_embedding, self.control_embedding] if is_v2 else [self.speech_embedding]


def embed_inputs(lm: LmNetwork, rows: Sequence[Sequence[LmInput]]) -> tuple[Tensor, Tensor]:
    """Embed the inputs of several rows as one step's.

    Returns (B, T, hidden), padded at the right, and (B,) the number of real columns, on the host. Rows may
    be empty, but not all of them.
    """
    valid = torch.tensor([len(lm_inputs) for lm_inputs in rows])
    indices = torch.zeros(len(rows), int(valid.max()), dtype=torch.int64)
    for row, lm_inputs in enumerate(rows):
        indices[row, : len(lm_inputs)] = torch.tensor([lm.input_index(lm_input) for lm_input in lm_inputs])
    return lm.embed(to_device(indices, lm.device)), valid


@dataclass(frozen=True, slots=True)
class LmStepPlan:
    """Places, mask and rotations of a step, shared by all layers."""

    attention: KvStepPlan
    cos: Tensor  # (B, 1, T, head_width)
    sin: Tensor  # (B, 1, T, head_width), signed for ``_rotate``
    positions: Tensor  # (B, T) int64, of the columns
    part_counters: Tensor  # (B * T * heads,) int32, all 0, for kernels that attend in parts


def make_lm_step_plan(attention: KvStepPlan, positions: Tensor, config: SpeechLmConfig) -> LmStepPlan:
    """Add the rotations of columns at ``positions`` (B, T), on their device."""
    counters = _part_counters(positions, config)
    return LmStepPlan(attention, *_rotation(positions, config), positions, counters)


def _part_counters(positions: Tensor, config: SpeechLmConfig) -> Tensor:
    return torch.zeros(positions.numel() * config.heads, dtype=torch.int32, device=positions.device)


def rotary_periods(config: SpeechLmConfig, device: torch.device) -> Tensor:
    """Positions of a turn over 2 pi, of each pair of channels: (head_width / 2,) float32."""
    steps = torch.arange(0, config.head_width, 2, device=device).float() / config.head_width
    periods: Tensor = config.rope_base**steps
    return periods


def _rotation(positions: Tensor, config: SpeechLmConfig) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of the rotary angles: (B, 1, T, head_width) each."""
    angles = positions[:, None, :, None].float() / rotary_periods(config, positions.device)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def _rotate(x: Tensor, plan: LmStepPlan) -> None:
    """Rotate channel i with channel i + half, in place; x is (B, heads, T, head_width)."""
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
        if self.has_fused_kernels(x.device):
            return self._multiply_apart(x, kv, plan)
        x = x + self.output(self._attend(self.qkv(self.attention_norm(x)), kv, plan))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        x = x + self.down(functional.silu(gate).mul_(up))
        return x

    def has_fused_kernels(self, device: torch.device) -> bool:
        """Whether kernels compute the layer there."""
        matrix = self.down.matrix
        if matrix is None or not matrix.is_floating_point() or matrix.dtype == torch.float64:
            return False
        return has_fused_kernels(device, powers=[self.width // 2], multiples=matrix.shape)

    def _multiply_apart(self, x: Tensor, kv: Tensor, plan: LmStepPlan) -> Tensor:
        """A layer of many rows in kernels, with the products between them."""
        from ...kernels.memory_attention import attend_memory, rotate_to_memory
        from ..kernels.lm_kernels import add_and_norm, gate

        assert self.down.matrix is not None
        dtype, norm = self.down.matrix.dtype, self.attention_norm
        _, normed = add_and_norm(x, None, norm.weight, norm.epsilon, dtype)
        query = rotate_to_memory(self.qkv(normed), (plan.cos, plan.sin), kv, plan.attention.write_positions)
        attended = attend_memory(
            query, kv, plan.positions, plan.attention.attended_positions, plan.part_counters
        )
        attended = self.output(attended.to(dtype))
        norm = self.mlp_norm
        x, normed = add_and_norm(x, attended, norm.weight, norm.epsilon, dtype)
        return x + self.down(gate(self.gate_up(normed)))  # type: ignore[no-any-return]

    def _attend(self, qkv: Tensor, kv: Tensor, plan: LmStepPlan) -> Tensor:
        rows, columns, _ = qkv.shape
        heads = qkv.view(rows, columns, -1, self.width).transpose(1, 2)
        _rotate(heads[:, : -self.kv_heads], plan)
        # Queries that share a key become columns of it, so that keys need not be repeated:
        # (B, kv_heads, G * T, head_width).
        query = heads[:, : self.heads].reshape(rows, self.kv_heads, -1, self.width)
        new = heads[:, self.heads :].view(rows, 2, self.kv_heads, columns, self.width)
        keys, values = plan.attention.update(kv, new.permute(0, 3, 1, 2, 4))
        attended = functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=plan.attention.visible
        )
        attended = attended.reshape(rows, self.heads, columns, self.width)
        return attended.transpose(1, 2).reshape(rows, columns, -1)


def _join_layers(layers: Sequence[_DecoderLayer]) -> "DecoderWeights":
    """Weights for ``run_decoder``."""
    from ...kernels.decoder_layers import DecoderWeights, new_decoder_counters

    first = layers[0]
    return DecoderWeights(
        torch.stack([layer.attention_norm.weight for layer in layers]),
        join_matrices([layer.qkv for layer in layers]),
        torch.stack([cast(Tensor, layer.qkv.bias) for layer in layers]),
        join_matrices([layer.output for layer in layers]),
        torch.stack([layer.mlp_norm.weight for layer in layers]),
        join_matrices([layer.gate_up for layer in layers]),
        join_matrices([layer.down for layer in layers]),
        None,
        first.attention_norm.epsilon,
        new_decoder_counters(len(layers), first.heads, first.mlp_norm.weight.device),
    )


def fuse_weights(config: SpeechLmConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors out of ``weights`` one by one, under the network's names, with fused matrices."""
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
