"""The layers and the head of XTTS's language model as ONNX graphs, with matrices of 8 bits.

    step    embedded, lengths (B), past keys/values -> hidden (B, T, hidden), present keys/values
    head    latents (rows, hidden)                  -> scores (rows, speech ids)

The graphs are built from the weights when the model is loaded, and executed from memory. ONNX Runtime has one
operator for attention over a buffer in place, and one for a product with its bias. Its operator for a sum and
the norm of the sum takes twice as long as two operators do.

Source: docs/ContribOperators.md of microsoft/onnxruntime v1.24 (GroupQueryAttention, MatMulNBits, FastGelu);
weights as in ``gpt``.
"""

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from torch import Tensor

from ..onnx_graphs.decoder_steps import EMBEDDED, HIDDEN
from ..onnx_graphs.graph_builder import CONTRIB_DOMAIN, OnnxMemoryGraph
from ..onnx_graphs.kv_attention import AttentionSizes, KvAttention
from ..onnx_graphs.matrix_products import MatrixFormat, add_product
from .config import XttsGptConfig

LATENTS, SCORES = "latents", "scores"  # of the head
_NORM_EPSILON = 1e-5


def step_session(
    config: XttsGptConfig, weights: dict[str, Tensor], matrices: MatrixFormat, threads: int
) -> onnxruntime.InferenceSession:
    """The layers and the norm after them; takes the tensors of ``layers`` and ``norm`` out of ``weights``."""
    graph = OnnxMemoryGraph("step")
    attention = KvAttention(
        graph, AttentionSizes(config.layers, config.heads, config.heads, config.head_width)
    )
    layers = _GptLayers(graph, weights, matrices)
    x = EMBEDDED
    normed = layers.norm(x, "layers.0.attention_norm")
    for layer in range(config.layers):
        prefix = f"layers.{layer}"
        attended = attention.attend(layer, layers.multiply(normed, f"{prefix}.qkv"))
        attended = layers.multiply(attended, f"{prefix}.output")
        normed, x = layers.add_and_norm(x, attended, f"{prefix}.mlp_norm")
        up = layers.multiply(normed, f"{prefix}.up")
        activated = graph.add_outputs("FastGelu", [up], [f"{prefix}.activated"], domain=CONTRIB_DOMAIN)[0]
        down = layers.multiply(activated, f"{prefix}.down")
        is_last = layer == config.layers - 1
        following = "norm" if is_last else f"layers.{layer + 1}.attention_norm"
        normed, x = layers.add_and_norm(x, down, following, HIDDEN if is_last else "")
    graph.output(HIDDEN, np.float32, ("batch", "inputs", config.hidden))
    attention.declare_present()
    return graph.open_session(threads)


def head_session(
    config: XttsGptConfig, weights: dict[str, Tensor], matrices: MatrixFormat, threads: int
) -> onnxruntime.InferenceSession:
    """Scores of latents; takes the tensors of ``head`` out of ``weights``."""
    graph = OnnxMemoryGraph("head")
    latents = graph.input(LATENTS, np.float32, ("rows", config.hidden))
    _GptLayers(graph, weights, matrices).multiply(latents, "head", SCORES)
    graph.output(SCORES, np.float32, ("rows", config.speech_vocab_size))
    return graph.open_session(threads)


class _GptLayers:
    """Adds parts of layers with the tensors of a table, which it removes from it."""

    def __init__(self, graph: OnnxMemoryGraph, weights: dict[str, Tensor], matrices: MatrixFormat) -> None:
        self._graph, self._weights, self._matrices = graph, weights, matrices

    def norm(self, x: str, name: str, output: str = "") -> str:
        """A layer norm, named ``output`` if given."""
        weights = [self._graph.weight(self._take(name, kind)) for kind in ("weight", "bias")]
        return self._graph.add("LayerNormalization", [x, *weights], output, epsilon=_NORM_EPSILON)

    def add_and_norm(self, x: str, residual: str, name: str, output: str = "") -> tuple[str, str]:
        """A layer norm of the sum of two values, named ``output`` if given, and the sum."""
        x = self._graph.add("Add", [x, residual])
        return self.norm(x, name, output), x

    def multiply(self, x: str, name: str, output: str = "") -> str:
        """A product with a matrix, and its bias."""
        weight, bias = (self._take(name, kind) for kind in ("weight", "bias"))
        return add_product(self._graph, x, weight, bias, self._matrices, output)

    def _take(self, name: str, kind: str) -> NDArray[np.float32]:
        array: NDArray[np.float32] = self._weights.pop(f"{name}.{kind}").numpy()
        return array
