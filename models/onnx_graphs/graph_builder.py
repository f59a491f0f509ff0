"""Builds an ONNX graph node by node, with its large weights outside of it: in a file, or in memory.

    OnnxGraphFile       lm_step.onnx          nodes, shapes, metadata: read at once
                        lm_step.onnx.data     weights; each begins at a page, so that a runtime can map them
    OnnxMemoryGraph     a session of ONNX Runtime, which packs the weights in a copy

Weights of a file are written while the graph is built, so that no more than one of them is in memory.

Source: the ONNX specification, docs/ExternalData.md; SessionOptions.AddExternalInitializers in
onnxruntime_c_api.h of microsoft/onnxruntime v1.24.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from ..devices.onnx_sessions import CPU_SESSIONS, session_options

OPSET = 23
CONTRIB_DOMAIN = "com.microsoft"  # operators of ONNX Runtime

_IR_VERSION = 11  # of opset 23
_PAGE_BYTES = 4096
_MIN_EXTERNAL_BYTES = 1024


class OnnxGraphBuilder(ABC):
    """Collects the nodes and weights of one graph."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._names = 0
        self._small_weights: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    @abstractmethod
    def _keep(self, name: str, array: NDArray[Any]) -> Mapping[str, object]:
        """Keep a contiguous large weight outside of the graph; returns its place, as ONNX describes it."""

    def input(self, name: str, dtype: type[np.generic], shape: Sequence[int | str]) -> str:
        """Declare an input; a dimension that is a name is dynamic."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: type[np.generic], shape: Sequence[int | str]) -> None:
        """Declare a value of that name as an output."""
        self._outputs.append(_value_info(name, dtype, shape))

    def weight(self, array: NDArray[Any], name: str = "") -> str:
        """Add a constant; a large one is kept outside of the graph, equal small ones are one."""
        if array.nbytes < _MIN_EXTERNAL_BYTES:
            return self._small_weight(array, name)
        name = name or self._new_name("constant")
        tensor = TensorProto(
            name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype)
        )
        for key, value in self._keep(name, np.ascontiguousarray(array)).items():
            tensor.external_data.add(key=key, value=str(value))
        tensor.data_location = TensorProto.EXTERNAL
        self._weights.append(tensor)
        return name

    def _small_weight(self, array: NDArray[Any], name: str) -> str:
        content = (array.dtype.str, array.shape, array.tobytes())
        if name or content not in self._small_weights:
            self._small_weights[content] = name or self._new_name("constant")
            self._weights.append(numpy_helper.from_array(array, self._small_weights[content]))
        return self._small_weights[content]

    def add(self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node of one output, and return the output's name."""
        return self.add_outputs(operator, inputs, [output or self._new_name(operator)], **attributes)[0]

    def add_outputs(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        domain: str = "",
        **attributes: Any,
    ) -> Sequence[str]:
        """Add a node with the named outputs, and return them. An output named "" is not computed."""
        self._nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
        return outputs

    def _model(self, metadata: Mapping[str, str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, initializer=self._weights
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB_DOMAIN, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        helper.set_model_props(model, dict(metadata))
        return model

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}_{self._names}"


class OnnxGraphFile(OnnxGraphBuilder):
    """A graph that is written to a file, with its weights beside it.

    A context: leaving it closes the file of the weights.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.stem)
        self._path = path
        self._data = path.with_name(path.name + ".data").open("wb")

    def __enter__(self) -> "OnnxGraphFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()

    def save(self, metadata: Mapping[str, str]) -> None:
        """Write the graph, with the metadata as its properties."""
        onnx.save_model(self._model(metadata), self._path)

    def _keep(self, name: str, array: NDArray[Any]) -> Mapping[str, object]:
        self._data.write(bytes(-self._data.tell() % _PAGE_BYTES))
        place = {"location": self._path.name + ".data", "offset": self._data.tell(), "length": array.nbytes}
        self._data.write(array.data)
        return place


class OnnxMemoryGraph(OnnxGraphBuilder):
    """A graph that is executed where it was built, on the CPU, as it is written."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._arrays: dict[str, NDArray[Any]] = {}

    def open_session(self, threads: int) -> onnxruntime.InferenceSession:
        """A session that computes with that many threads; it has its own copy of the weights."""
        options = session_options(threads)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in self._arrays.values()]
        options.add_external_initializers([*self._arrays], values)
        model = self._model({}).SerializeToString()
        return CPU_SESSIONS.open(model, options)

    def _keep(self, name: str, array: NDArray[Any]) -> Mapping[str, object]:
        self._arrays[name] = array
        return {"location": "memory"}


def _value_info(name: str, dtype: type[np.generic], shape: Sequence[int | str]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
