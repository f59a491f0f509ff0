"""A Piper voice of a few kilobytes with random weights, in the layout of exported ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

CHANNELS, FRAMES_PER_ID, COUPLINGS, STRIDES = 8, 6, 2, (16, 4)
ALPHABET = "_^$ abcdefghijklmnopqrstuvwxyz,.?!"


def write_tiny_piper(
    folder: Path,
    *,
    name: str = "xx_XX-tiny-low",
    sample_rate: int = 16_000,
    speakers: int = 1,
    decoder_prefix: str = "dec.",
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write NAME.onnx and NAME.onnx.json and return the model's path.

    It reads the letters of the text. decoder_prefix: of the decoder's weights; another one cannot be cut.
    config: keys that replace those of the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    path.write_bytes(_model(speakers, decoder_prefix).SerializeToString())
    written: dict[str, Any] = {
        "audio": {"sample_rate": sample_rate},
        "phoneme_type": "text",
        "phoneme_id_map": {letter: [index] for index, letter in enumerate(ALPHABET)},
        "language": {"code": "en_US"},
        "speaker_id_map": {f"s{index}": index for index in range(speakers)} if speakers > 1 else {},
    }
    written |= config or {}
    path.with_name(path.name + ".json").write_text(json.dumps(written), "utf-8")
    return path


def _model(speakers: int, decoder_prefix: str) -> onnx.ModelProto:
    random = np.random.default_rng(5)
    weights = {
        "emb": random.normal(size=(len(ALPHABET), CHANNELS)),
        **{
            f"flow.{index}.weight": 0.2 * random.normal(size=(CHANNELS // 2, CHANNELS // 2, 5))
            for index in range(COUPLINGS)
        },
        f"{decoder_prefix}conv_pre.weight": 0.4 * random.normal(size=(CHANNELS, CHANNELS, 7)),
        **{
            f"{decoder_prefix}ups.{index}.weight": 0.4 * random.normal(size=(CHANNELS, CHANNELS, 2 * stride))
            for index, stride in enumerate(STRIDES)
        },
        f"{decoder_prefix}conv_post.weight": 0.4 * random.normal(size=(1, CHANNELS, 7)),
    }
    inputs = [
        helper.make_tensor_value_info("input", TensorProto.INT64, [1, "L"]),
        helper.make_tensor_value_info("input_lengths", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    nodes = _encoder_nodes()
    decoded = "z"
    if speakers > 1:
        inputs.append(helper.make_tensor_value_info("sid", TensorProto.INT64, [1]))
        weights["emb_g"] = random.normal(size=(speakers, CHANNELS))
        weights[f"{decoder_prefix}cond.weight"] = random.normal(size=(CHANNELS, CHANNELS, 1))
    nodes.append(_convolution(decoded, f"{decoder_prefix}conv_pre.weight", "pre", 7))
    if speakers > 1:
        nodes += [
            helper.make_node("Gather", ["emb_g", "sid"], ["g_row"]),
            helper.make_node("Unsqueeze", ["g_row", "last_axis"], ["g"]),
            _convolution("g", f"{decoder_prefix}cond.weight", "cond", 1),
            helper.make_node("Add", ["pre", "cond"], ["conditioned"]),
        ]
    last = "conditioned" if speakers > 1 else "pre"
    for index, stride in enumerate(STRIDES):
        nodes += [
            helper.make_node("LeakyRelu", [last], [f"active_{index}"], alpha=0.1),
            _upsampling(f"active_{index}", f"{decoder_prefix}ups.{index}.weight", f"up_{index}", stride),
        ]
        last = f"up_{index}"
    nodes += [
        _convolution(last, f"{decoder_prefix}conv_post.weight", "post", 7),
        helper.make_node("Tanh", ["post"], ["output"]),
    ]
    tensors = [numpy_helper.from_array(value.astype(np.float32), key) for key, value in weights.items()]
    tensors += [
        numpy_helper.from_array(np.array(value, np.int64), key)
        for key, value in {
            "last_axis": [2],
            "repeat_axis": [3],
            "repeats": [1, 1, 1, FRAMES_PER_ID],
            "frame_shape": [1, CHANNELS, -1],
            "duration_shape": [1, 1, -1],
        }.items()
    ]
    tensors.append(numpy_helper.from_array(np.array(FRAMES_PER_ID - 0.5, np.float32), "frames_per_id"))
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "tiny", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])
    model.ir_version = 8
    return model


def _encoder_nodes() -> list[NodeProto]:
    """Each id is FRAMES_PER_ID frames of its embedding, with noise, and a flow of coupling layers."""
    make_node = helper.make_node
    return [
        make_node("Cast", ["input"], ["ids_float"], to=TensorProto.FLOAT),
        make_node("Mul", ["ids_float", "ids_float"], ["positive"]),
        make_node("Sub", ["positive", "positive"], ["zeros"]),
        make_node("Add", ["zeros", "frames_per_id"], ["wanted"]),
        make_node("Ceil", ["wanted"], ["rounded"]),
        make_node("Reshape", ["rounded", "duration_shape"], ["durations"]),
        make_node("Gather", ["emb", "input"], ["rows"]),
        make_node("Transpose", ["rows"], ["columns"], perm=[0, 2, 1]),
        make_node("Unsqueeze", ["columns", "repeat_axis"], ["cells"]),
        make_node("Tile", ["cells", "repeats"], ["repeated"]),
        make_node("Reshape", ["repeated", "frame_shape"], ["mean"]),
        make_node("RandomNormalLike", ["mean"], ["random"]),
        make_node("Mul", ["random", "frames_per_id"], ["scaled"]),
        make_node("Add", ["mean", "scaled"], ["prior"]),
        *_coupling_nodes(),
    ]


def _coupling_nodes() -> list[NodeProto]:
    """Each layer adds a convolution of one half to the other, and exchanges the halves."""
    nodes = []
    for index in range(COUPLINGS):
        source, target = f"flow_{index}" if index else "prior", f"flow_{index + 1}"
        half, other, shift, moved = (f"{name}_{index}" for name in ("half", "other", "shift", "moved"))
        nodes += [
            helper.make_node("Split", [source], [half, other], axis=1),
            _convolution(half, f"flow.{index}.weight", shift, 5),
            helper.make_node("Add", [other, shift], [moved]),
            helper.make_node("Concat", [moved, half], [target if index < COUPLINGS - 1 else "z"], axis=1),
        ]
    return nodes


def _convolution(source: str, weight: str, target: str, kernel: int) -> NodeProto:
    return helper.make_node(
        "Conv",
        [source, weight],
        [target],
        kernel_shape=[kernel],
        dilations=[1],
        strides=[1],
        pads=[kernel // 2, kernel // 2],
        group=1,
    )


def _upsampling(source: str, weight: str, target: str, stride: int) -> NodeProto:
    return helper.make_node(
        "ConvTranspose",
        [source, weight],
        [target],
        kernel_shape=[2 * stride],
        strides=[stride],
        dilations=[1],
        pads=[stride // 2, stride // 2],
    )
