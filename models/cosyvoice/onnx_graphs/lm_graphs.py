"""Writes the language model as three ONNX graphs: inputs' embedding, decoder step, and head.

    lm_embed    index (B, T)                            -> embedded (B, T, hidden)
    lm_step     embedded, lengths (B), past keys/values -> hidden (B, T, hidden), present keys/values
    lm_head     hidden (B, T, hidden)                   -> logits (B, T, speech ids)

Each layer has one buffer for keys and one for values, (B, kv_heads, capacity, head_width). A step writes
those of its T inputs at ``lengths[row]`` and attends to all up to there. If past and present are bound to the
same memory, nothing is copied. With T above 1, a step takes one row (a limit of GroupQueryAttention).

The graphs are built from the weights, not traced: ONNX Runtime has one operator for attention with rotary
positions and a buffer in place, one for a residual sum and its norm, one for a product in 4 or 8 bits.

Source: docs/ContribOperators.md of microsoft/onnxruntime v1.24 (GroupQueryAttention, MatMulNBits,
SkipSimplifiedLayerNormalization); weights as in ``lm.speech_lm``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..config import TEXT_EMBEDDING_KEY, CosyVoiceVersion, SpeechLmConfig
from .block_quantization import quantize_in_blocks
from .graph_builder import CONTRIB_DOMAIN, OnnxGraphBuilder
from .graph_files import MAX_POSITIONS, state_names

# Rotary tables in the graph; a row's memory has 6144 ids by default.

TEXT_ROWS_KEY = "text_rows"  # metadata of lm_embed: the index of the first speech id

_INT32 = 6  # TensorProto.INT32
_ACCURACY_LEVEL = 4  # inputs of a quantized product are rounded to 8 bits


@dataclass(frozen=True, slots=True)
class LmMatrixFormat:
    """Number format of the matrices. bits: 32 for float32, else 8 or 4 with a scale for each block."""

    bits: int
    block: int = 0  # inputs that share a scale

    @property
    def of_sensitive_matrices(self) -> "LmMatrixFormat":
        """At least 8 bits: the format of the first layer, the attention projections and the head.

        Their errors pass through all later layers. With 4 bits everywhere, random weights of the released
        size have a KL divergence from float32 of 1.46 nats; with 8 bits in these matrices, of 0.30.
        """
        return replace(self, bits=max(self.bits, 8))


def write_lm_embedding(
    path: Path, config: SpeechLmConfig, weights: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write ``lm_embed``: one table for all indices of ``SpeechLm.input_index``."""
    keys = [TEXT_EMBEDDING_KEY, "speech_embedding.weight"]
    if config.version is CosyVoiceVersion.V2:
        keys.append("llm_embedding.weight")
    with OnnxGraphBuilder(path) as graph:
        index = graph.input("index", np.int64, ("batch", "inputs"))
        table = graph.weight(np.concatenate([_array(weights, key) for key in keys]), "table")
        graph.add("Gather", [table, index], "embedded")
        graph.output("embedded", np.float32, ("batch", "inputs", config.hidden))
        graph.save({**metadata, TEXT_ROWS_KEY: str(config.text_vocab_size)})


def write_lm_head(
    path: Path,
    config: SpeechLmConfig,
    weights: Mapping[str, Tensor],
    matrices: LmMatrixFormat,
    metadata: Mapping[str, str],
) -> None:
    """Write ``lm_head`` from the tensors of llm.pt."""
    with OnnxGraphBuilder(path) as graph:
        hidden = graph.input("hidden", np.float32, ("batch", "inputs", config.hidden))
        bias = _array(weights, "llm_decoder.bias") if config.version is CosyVoiceVersion.V2 else None
        _linear(
            graph,
            hidden,
            _array(weights, "llm_decoder.weight"),
            bias,
            matrices.of_sensitive_matrices,
            "logits",
        )
        graph.output("logits", np.float32, ("batch", "inputs", config.speech_vocab_size))
        graph.save(metadata)


def write_lm_step(
    path: Path,
    config: SpeechLmConfig,
    weights: Mapping[str, Tensor],
    matrices: LmMatrixFormat,
    metadata: Mapping[str, str],
) -> None:
    """Write ``lm_step`` from the tensors of llm.pt."""
    with OnnxGraphBuilder(path) as graph:
        x = graph.input("embedded", np.float32, ("batch", "inputs", config.hidden))
        graph.input("lengths", np.int64, ("batch",))
        network = _LmStepGraph(graph, config, weights, matrices)
        gamma = graph.weight(_array(weights, "llm.model.model.layers.0.input_layernorm.weight"))
        normed = graph.add("RMSNormalization", [x, gamma], axis=-1, epsilon=config.norm_epsilon)
        for layer in range(config.layers):
            is_last = layer == config.layers - 1
            following = "norm" if is_last else f"layers.{layer + 1}.input_layernorm"
            normed, x = network.add_layer(layer, normed, x, following, "hidden" if is_last else "")
        graph.output("hidden", np.float32, ("batch", "inputs", config.hidden))
        for state in network.present:
            graph.output(state, np.float32, _state_shape(config, "present_capacity"))
        graph.save(metadata)


class _LmStepGraph:
    """Adds the layers of ``lm_step``."""

    def __init__(
        self,
        graph: OnnxGraphBuilder,
        config: SpeechLmConfig,
        weights: Mapping[str, Tensor],
        matrices: LmMatrixFormat,
    ) -> None:
        self._graph, self._config, self._weights, self._matrices = graph, config, weights, matrices
        self.present: list[str] = []
        self._past = [
            graph.input(f"past_{name}", np.float32, _state_shape(config, "capacity"))
            for name in state_names(config)
        ]
        self._last_positions, self._total_length = self._add_positions()
        steps = np.arange(0, config.head_width, 2, dtype=np.float32) / config.head_width
        angles = np.arange(MAX_POSITIONS, dtype=np.float32)[:, None] / np.float32(config.rope_base) ** steps
        self._cos, self._sin = graph.weight(np.cos(angles)), graph.weight(np.sin(angles))

    def add_layer(self, layer: int, normed: str, x: str, following_norm: str, output: str) -> tuple[str, str]:
        """Add a layer and the norm after it: the normed sum, named ``output`` if given, and the sum."""
        prefix = f"layers.{layer}"
        qkv = self._multiply(normed, [f"{prefix}.self_attn.{name}_proj" for name in "qkv"], bias=True)
        attended = self._multiply(self._attend(layer, qkv), [f"{prefix}.self_attn.o_proj"])
        normed, x = self._add_and_norm(x, attended, f"{prefix}.post_attention_layernorm", f"mlp_{layer}")
        gate = self._multiply(normed, [f"{prefix}.mlp.gate_proj"])
        up = self._multiply(normed, [f"{prefix}.mlp.up_proj"])
        gated = f"gated_{layer}"
        self._graph.add_outputs("QuickGelu", [gate], [gated], domain=CONTRIB_DOMAIN, alpha=1.0)  # SiLU
        down = self._multiply(self._graph.add("Mul", [gated, up]), [f"{prefix}.mlp.down_proj"])
        return self._add_and_norm(x, down, following_norm, output or f"layer_{layer}")

    def _attend(self, layer: int, qkv: str) -> str:
        config, attended = self._config, f"attended_{layer}"
        past = self._past[2 * layer : 2 * layer + 2]
        present = [name.replace("past", "present") for name in past]
        self.present += present
        inputs = [qkv, "", "", *past, self._last_positions, self._total_length, self._cos, self._sin]
        self._graph.add_outputs(
            "GroupQueryAttention",
            inputs,
            [attended, *present],
            domain=CONTRIB_DOMAIN,
            num_heads=config.heads,
            kv_num_heads=config.kv_heads,
            do_rotary=1,
        )
        return attended

    def _add_and_norm(self, x: str, residual: str, norm: str, output: str) -> tuple[str, str]:
        gamma = self._graph.weight(_array(self._weights, f"llm.model.model.{norm}.weight"))
        outputs = [output, "", "", f"{output}_sum"]
        self._graph.add_outputs(
            "SkipSimplifiedLayerNormalization",
            [x, residual, gamma],
            outputs,
            domain=CONTRIB_DOMAIN,
            epsilon=self._config.norm_epsilon,
        )
        return outputs[0], outputs[3]

    def _multiply(self, x: str, names: list[str], bias: bool = False) -> str:
        """A product with the named matrices, one above the other."""

        def joined(kind: str) -> NDArray[np.float32]:
            return np.concatenate([_array(self._weights, f"llm.model.model.{name}.{kind}") for name in names])

        sensitive = names[0].startswith("layers.0.") or ".self_attn." in names[0]
        matrices = self._matrices.of_sensitive_matrices if sensitive else self._matrices
        return _linear(self._graph, x, joined("weight"), joined("bias") if bias else None, matrices, "")

    def _add_positions(self) -> tuple[str, str]:
        """Position of each row's last input, (B,) int32, and the largest count of positions, () int32."""
        graph = self._graph
        shape = graph.add("Shape", ["embedded"], start=1, end=2)
        stop = graph.add("Add", ["lengths", shape])
        last = graph.add("Sub", [stop, graph.weight(np.array(1))])
        total = graph.add("ReduceMax", [stop], keepdims=0)
        return graph.add("Cast", [last], to=_INT32), graph.add("Cast", [total], to=_INT32)


def _linear(
    graph: OnnxGraphBuilder,
    x: str,
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    matrices: LmMatrixFormat,
    output: str,
) -> str:
    """Add a product with a weight (N, K)."""
    if matrices.bits == 32:
        product = graph.add("MatMul", [x, graph.weight(weight.T)], output if bias is None else "")
        return product if bias is None else graph.add("Add", [product, graph.weight(bias)], output)
    packed = quantize_in_blocks(weight, matrices.bits, matrices.block)
    inputs = [x, graph.weight(packed.values), graph.weight(packed.scales), graph.weight(packed.zero_points)]
    output = output or f"{inputs[1]}_product"
    attributes: dict[str, Any] = {
        "N": weight.shape[0],
        "K": weight.shape[1],
        "bits": packed.bits,
        "block_size": packed.block,
        "accuracy_level": _ACCURACY_LEVEL,
    }
    if bias is not None:
        inputs += ["", graph.weight(bias)]
    graph.add_outputs("MatMulNBits", inputs, [output], domain=CONTRIB_DOMAIN, **attributes)
    return output


def _state_shape(config: SpeechLmConfig, capacity: str) -> tuple[int | str, ...]:
    return ("batch", config.kv_heads, capacity, config.head_width)


def _array(weights: Mapping[str, Tensor], key: str) -> NDArray[np.float32]:
    array: NDArray[np.float32] = weights[key].numpy()
    return array
