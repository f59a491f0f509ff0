"""Speech encoders with random weights, as ONNX models with a release's inputs and outputs.

The small ones project a mean spectrum. Those of a release's size compute and weigh what a release's do: a
speech tokenizer of its very layers, and a speaker encoder with as many weights, in plain layers.

    feats (1, 128, T) -> two convolutions, each of half the rate -> blocks: attention, and a depthwise
    convolution of its values; two layers -> 8 numbers of three levels -> indices (1, T / 4)

Source: xingchensong/S3Tokenizer@2abe1c5 s3tokenizer/model_v2.py (layers and sizes; rotary positions and
biases are left out); FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:95-119 (inputs and outputs).
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ...bundle_files import BundleSize
from ...checkpoint.random_weights import unit_noise
from ..config import SPEAKER_WIDTH, CosyVoiceConfig, CosyVoiceVersion

_FILTER_BANK_BANDS, _WHISPER_BANDS = 80, 128
_WIDTH, _HEADS, _MEMORY = 1280, 20, 31  # of the tokenizer; _MEMORY: taps of the depthwise convolution
_LAYERS: Final = {CosyVoiceVersion.V2: 6, CosyVoiceVersion.V3: 12}
_LEVELS, _DIGITS = 3, 8
_SPEAKER_CHANNELS, _SPEAKER_LAYERS, _POOLED = 512, 7, 1536


def speaker_encoder(projection: NDArray[np.float32]) -> onnx.ModelProto:
    """A model that projects the mean spectrum, by (80, 192): input (1, T, 80) -> output (1, 192)."""
    graph = _Graph()
    size = graph.add("Abs", "input")
    mean = graph.add("ReduceMean", size, graph.constant([1]), keepdims=0)
    graph.add("MatMul", mean, graph.weight(projection))
    return _as_speaker_encoder(graph)


def random_speaker_encoder(size: BundleSize, seed: int) -> onnx.ModelProto:
    """A speaker encoder: input (1, T, 80) -> output (1, 192)."""
    salt = f"{seed}/speaker"
    if size is BundleSize.TINY:
        return speaker_encoder(unit_noise((_FILTER_BANK_BANDS, SPEAKER_WIDTH), salt))
    graph = _Graph(salt)
    x, channels = graph.add("Transpose", "input", perm=[0, 2, 1]), _FILTER_BANK_BANDS
    for taps in (5, *[3] * _SPEAKER_LAYERS, 1):
        wider = _POOLED if taps == 1 else _SPEAKER_CHANNELS
        kernel = graph.random((wider, channels, taps))
        x, channels = graph.add("Relu", graph.add("Conv", x, kernel, auto_pad="SAME_UPPER")), wider
    time = graph.constant([2])
    mean = graph.add("ReduceMean", x, time, keepdims=0)
    spread = graph.add("ReduceL2", graph.add("Sub", x, graph.add("Unsqueeze", mean, time)), time, keepdims=0)
    pooled = graph.add("Concat", mean, spread, axis=1)
    graph.product(pooled, SPEAKER_WIDTH, 2 * _POOLED)
    return _as_speaker_encoder(graph)


def random_speech_tokenizer(size: BundleSize, config: CosyVoiceConfig, seed: int) -> onnx.ModelProto:
    """A speech tokenizer: feats (1, 128, T), feats_length (1,) -> indices (1, T / 4)."""
    salt = f"{seed}/speech"
    if size is BundleSize.FULL:
        return _released_speech_tokenizer(_LAYERS[config.version], salt)
    graph = _Graph()  # four frames become the id whose random direction fits their mean best
    mean = graph.add("AveragePool", "feats", kernel_shape=[4], strides=[4])
    directions = unit_noise((config.lm.codebook_size, _WHISPER_BANDS, 1), salt)
    scores = graph.add("Conv", mean, graph.weight(directions))
    best = graph.add("ArgMax", scores, axis=1, keepdims=0)
    graph.add("Cast", best, to=TensorProto.INT32)
    return _as_speech_tokenizer(graph)


def encoder_weight_bytes(version: CosyVoiceVersion, size: BundleSize) -> int:
    """Size of both encoders' weights, about; 0 for the small ones."""
    if size is BundleSize.TINY:
        return 0
    block = 12 * _WIDTH**2 + _MEMORY * _WIDTH
    tokenizer = _LAYERS[version] * block + 3 * (_WHISPER_BANDS + _WIDTH) * _WIDTH
    speaker = 3 * _SPEAKER_LAYERS * _SPEAKER_CHANNELS**2 + _SPEAKER_CHANNELS * _POOLED
    return 4 * (tokenizer + speaker)


def _released_speech_tokenizer(layers: int, salt: str) -> onnx.ModelProto:
    graph = _Graph(salt)
    x, channels = "feats", _WHISPER_BANDS
    for _ in range(2):
        kernel = graph.random((_WIDTH, channels, 3))
        x, channels = graph.add("Gelu", graph.add("Conv", x, kernel, strides=[2], pads=[1, 1])), _WIDTH
    x = graph.add("Transpose", x, perm=[0, 2, 1])
    for _ in range(layers):
        x = graph.add("Add", x, _attention(graph, _normalised(graph, x)))
        inner = graph.add("Gelu", graph.product(_normalised(graph, x), 4 * _WIDTH, _WIDTH))
        x = graph.add("Add", x, graph.product(inner, _WIDTH, 4 * _WIDTH))
    numbers = graph.add("Tanh", graph.product(x, _DIGITS, _WIDTH))
    levels = graph.add("Round", graph.add("Mul", numbers, graph.weight(np.float32(0.999))))
    digits = graph.add("Add", levels, graph.weight(np.float32(1)))
    places = np.float32(_LEVELS) ** np.arange(_DIGITS, dtype=np.float32)
    ids = graph.add("MatMul", digits, graph.weight(places))
    graph.add("Cast", ids, to=TensorProto.INT32)
    return _as_speech_tokenizer(graph)


def _as_speaker_encoder(graph: "_Graph") -> onnx.ModelProto:
    describe = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    spectra = describe("input", shape=[1, "T", _FILTER_BANK_BANDS])
    return graph.model([spectra], describe("output", shape=[1, SPEAKER_WIDTH]))


def _as_speech_tokenizer(graph: "_Graph") -> onnx.ModelProto:
    describe = helper.make_tensor_value_info
    spectra = describe("feats", TensorProto.FLOAT, [1, _WHISPER_BANDS, "T"])
    length = describe("feats_length", TensorProto.INT32, [1])
    return graph.model([spectra, length], describe("indices", TensorProto.INT32, [1, "L"]))


def _normalised(graph: "_Graph", x: str) -> str:
    return graph.add("LayerNormalization", x, graph.weight(np.ones(_WIDTH, np.float32)))


def _attention(graph: "_Graph", x: str) -> str:
    """Attention of heads, and the depthwise convolution of the values beside it."""
    split = graph.constant([0, -1, _HEADS, _WIDTH // _HEADS])
    query, key, value = (graph.product(x, _WIDTH, _WIDTH) for _ in range(3))
    queries, keys, values = (
        graph.add("Transpose", graph.add("Reshape", part, split), perm=order)
        for part, order in ((query, [0, 2, 1, 3]), (key, [0, 2, 3, 1]), (value, [0, 2, 1, 3]))
    )
    scale = graph.weight(np.float32((_WIDTH // _HEADS) ** -0.5))
    shares = graph.add("Softmax", graph.add("Mul", graph.add("MatMul", queries, keys), scale), axis=-1)
    seen = graph.add("Transpose", graph.add("MatMul", shares, values), perm=[0, 2, 1, 3])
    joined = graph.add("Reshape", seen, graph.constant([0, -1, _WIDTH]))
    taps = graph.random((_WIDTH, 1, _MEMORY))
    columns = graph.add("Transpose", value, perm=[0, 2, 1])
    near = graph.add("Conv", columns, taps, group=_WIDTH, pads=[_MEMORY // 2, _MEMORY // 2])
    memory = graph.add("Add", value, graph.add("Transpose", near, perm=[0, 2, 1]))
    return graph.add("Add", graph.product(joined, _WIDTH, _WIDTH), memory)


class _Graph:
    """Nodes and weights, named in the order in which they are added."""

    def __init__(self, salt: str = "") -> None:
        self._salt = salt
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def weight(self, array: NDArray[np.float32] | np.float32) -> str:
        """Add a weight."""
        return self._constant(np.asarray(array, np.float32))

    def constant(self, numbers: Sequence[int]) -> str:
        """Add whole numbers, such as a shape."""
        return self._constant(np.array(numbers, np.int64))

    def random(self, shape: tuple[int, ...]) -> str:
        """Add a random kernel, (out, in, taps), or matrix, (in, out); it keeps the size of its inputs."""
        fan_in = shape[0] if len(shape) == 2 else math.prod(shape[1:])
        drawn = unit_noise(shape, f"{self._salt}/{len(self._weights)}")
        drawn *= np.float32(fan_in**-0.5)
        return self.weight(drawn)

    def product(self, x: str, outputs: int, inputs: int) -> str:
        """Add a product with a random matrix."""
        return self.add("MatMul", x, self.random((inputs, outputs)))

    def model(self, inputs: list[onnx.ValueInfoProto], output: onnx.ValueInfoProto) -> onnx.ModelProto:
        """The model, whose output is that of the last node."""
        self._nodes[-1].output[0] = output.name
        graph = helper.make_graph(self._nodes, "random", inputs, [output], self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    def _constant(self, array: NDArray[Any]) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name
