"""Writes the language model as three ONNX graphs: inputs' embedding, decoder step, and head.

    lm_embed    index (B, T)                            -> embedded (B, T, hidden)
    lm_step     embedded, lengths (B), past keys/values -> hidden (B, T, hidden), present keys/values
    lm_head     hidden (B, T, hidden)                   -> logits (B, T, speech ids)

``models.onnx_graphs.kv_attention`` describes the buffers of past and present.

The graphs are built from the weights, not traced: ONNX Runtime has one operator for attention with rotary
positions and a buffer in place, one for a residual sum and its norm, one for a product in 4 or 8 bits.

Source: docs/ContribOperators.md of microsoft/onnxruntime v1.24 (GroupQueryAttention, MatMulNBits,
SkipSimplifiedLayerNormalization); weights as in ``lm.speech_lm``.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...onnx_graphs.decoder_steps import EMBEDDED
from ...onnx_graphs.graph_builder import CONTRIB_DOMAIN, OnnxGraphBuilder, OnnxGraphFile
from ...onnx_graphs.kv_attention import AttentionSizes, KvAttention
from ...onnx_graphs.matrix_products import MatrixFormat, add_product
from ..config import TEXT_EMBEDDING_KEY, CosyVoiceVersion, SpeechLmConfig
from .graph_files import MAX_POSITIONS

TEXT_ROWS_KEY = "text_rows"  # metadata of lm_embed: the index of the first speech id


def write_lm_embedding(
    path: Path, config: SpeechLmConfig, weights: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write ``lm_embed``: one table for all indices of ``SpeechLm.input_index``."""
    keys = [TEXT_EMBEDDING_KEY, "speech_embedding.weight"]
    if config.version is CosyVoiceVersion.V2:
        keys.append("llm_embedding.weight")
    with OnnxGraphFile(path) as graph:
        index = graph.input("index", np.int64, ("batch", "inputs"))
        table = graph.weight(np.concatenate([_array(weights, key) for key in keys]), "table")
        graph.add("Gather", [table, index], "embedded")
        graph.output("embedded", np.float32, ("batch", "inputs", config.hidden))
        graph.save({**metadata, TEXT_ROWS_KEY: str(config.text_vocab_size)})


def write_lm_head(
    path: Path,
    config: SpeechLmConfig,
    weights: Mapping[str, Tensor],
    matrices: MatrixFormat,
    metadata: Mapping[str, str],
) -> None:
    """Write ``lm_head`` from the tensors of llm.pt."""
    with OnnxGraphFile(path) as graph:
        hidden = graph.input("hidden", np.float32, ("batch", "inputs", config.hidden))
        bias = _array(weights, "llm_decoder.bias") if config.version is CosyVoiceVersion.V2 else None
        weight = _array(weights, "llm_decoder.weight")
        add_product(graph, hidden, weight, bias, _of_sensitive_matrices(matrices), "logits")
        graph.output("logits", np.float32, ("batch", "inputs", config.speech_vocab_size))
        graph.save(metadata)


def write_lm_step(
    path: Path,
    config: SpeechLmConfig,
    weights: Mapping[str, Tensor],
    matrices: MatrixFormat,
    metadata: Mapping[str, str],
) -> None:
    """Write ``lm_step`` from the tensors of llm.pt."""
    with OnnxGraphFile(path) as graph:
        network, x = _LmStepGraph(graph, config, weights, matrices), EMBEDDED
        gamma = graph.weight(_array(weights, "llm.model.model.layers.0.input_layernorm.weight"))
        normed = graph.add("RMSNormalization", [x, gamma], axis=-1, epsilon=config.norm_epsilon)
        for layer in range(config.layers):
            is_last = layer == config.layers - 1
            following = "norm" if is_last else f"layers.{layer + 1}.input_layernorm"
            normed, x = network.add_layer(layer, normed, x, following, "hidden" if is_last else "")
        graph.output("hidden", np.float32, ("batch", "inputs", config.hidden))
        network.attention.declare_present()
        graph.save(metadata)


class _LmStepGraph:
    """Adds the layers of ``lm_step``."""

    def __init__(
        self,
        graph: OnnxGraphBuilder,
        config: SpeechLmConfig,
        weights: Mapping[str, Tensor],
        matrices: MatrixFormat,
    ) -> None:
        self._graph, self._config, self._weights, self._matrices = graph, config, weights, matrices
        self.attention = KvAttention(
            graph, AttentionSizes(config.layers, config.heads, config.kv_heads, config.head_width)
        )
        steps = np.arange(0, config.head_width, 2, dtype=np.float32) / config.head_width
        angles = np.arange(MAX_POSITIONS, dtype=np.float32)[:, None] / np.float32(config.rope_base) ** steps
        self._rotary = graph.weight(np.cos(angles)), graph.weight(np.sin(angles))

    def add_layer(self, layer: int, normed: str, x: str, following_norm: str, output: str) -> tuple[str, str]:
        """Add a layer and the norm after it: the normed sum, named ``output`` if given, and the sum."""
        prefix = f"layers.{layer}"
        qkv = self._multiply(normed, [f"{prefix}.self_attn.{name}_proj" for name in "qkv"], bias=True)
        attended = self.attention.attend(layer, qkv, self._rotary)
        attended = self._multiply(attended, [f"{prefix}.self_attn.o_proj"])
        normed, x = self._add_and_norm(x, attended, f"{prefix}.post_attention_layernorm", f"mlp_{layer}")
        gate = self._multiply(normed, [f"{prefix}.mlp.gate_proj"])
        up = self._multiply(normed, [f"{prefix}.mlp.up_proj"])
        gated = f"gated_{layer}"
        self._graph.add_outputs("QuickGelu", [gate], [gated], domain=CONTRIB_DOMAIN, alpha=1.0)  # SiLU
        down = self._multiply(self._graph.add("Mul", [gated, up]), [f"{prefix}.mlp.down_proj"])
        return self._add_and_norm(x, down, following_norm, output or f"layer_{layer}")

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
        matrices = _of_sensitive_matrices(self._matrices) if sensitive else self._matrices
        return add_product(self._graph, x, joined("weight"), joined("bias") if bias else None, matrices)


def _of_sensitive_matrices(matrices: MatrixFormat) -> MatrixFormat:
    """At least 8 bits: the format of the first layer, the attention projections and the head.

    Their errors pass through all later layers. With 4 bits everywhere, random weights of the released size
    have a KL divergence from float32 of 1.46 nats; with 8 bits in these matrices, of 0.30.
    """
    return replace(matrices, bits=max(matrices.bits, 8))


def _array(weights: Mapping[str, Tensor], key: str) -> NDArray[np.float32]:
    array: NDArray[np.float32] = weights[key].numpy()
    return array
