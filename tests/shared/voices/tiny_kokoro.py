"""A Kokoro model of a few kilobytes with random weights, in the layout of exported ones."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SAMPLES_PER_ID = 1200  # two units of 25 ms
_SYMBOLS = 200


def write_tiny_kokoro(folder: Path, names: Sequence[str] = ("af_one", "am_two", "jm_three")) -> Path:
    """Write kokoro-v1.0.onnx and voices-v1.0.bin; a voice is louder the later it is in the names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kokoro-v1.0.onnx").write_bytes(_model().SerializeToString())
    styles = {name: np.full((510, 1, 256), index + 1, np.float32) for index, name in enumerate(names)}
    with (folder / "voices-v1.0.bin").open("wb") as file:
        np.savez(file, allow_pickle=False, **styles)
    return folder


def _model() -> onnx.ModelProto:
    random = np.random.default_rng(6)
    make_node = helper.make_node
    nodes = [
        make_node("Gather", ["table", "tokens"], ["rows"]),
        make_node("Reshape", ["rows", "flat"], ["sound"]),
        make_node("ReduceMean", ["style"], ["loudness"], keepdims=0),
        make_node("Mul", ["sound", "loudness"], ["loud"]),
        make_node("Cast", ["tokens"], ["ids"], to=TensorProto.FLOAT),
        make_node("Sub", ["ids", "ids"], ["zeros"]),
        make_node("Add", ["zeros", "units"], ["wanted"]),
        make_node("Mul", ["wanted", "speed"], ["paced"]),
        make_node("Div", ["paced", "speed"], ["unpaced"]),
        make_node("Round", ["unpaced"], ["durations"]),
        make_node("ReduceMean", ["durations"], ["mean"], keepdims=0),
        make_node("Div", ["durations", "durations"], ["ones"]),
        make_node("ReduceMean", ["ones"], ["one"], keepdims=0),
        make_node("Mul", ["loud", "one"], ["audio"]),
    ]
    tensors = [
        numpy_helper.from_array(
            (0.02 * random.normal(size=(_SYMBOLS, SAMPLES_PER_ID))).astype(np.float32), "table"
        ),
        numpy_helper.from_array(np.array([-1], np.int64), "flat"),
        numpy_helper.from_array(np.array(2.1, np.float32), "units"),
    ]
    inputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "L"]),
        helper.make_tensor_value_info("style", TensorProto.FLOAT, [1, 256]),
        helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]),
    ]
    outputs = [helper.make_tensor_value_info("audio", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])
    model.ir_version = 8
    return model
