"""Values of an ONNX graph with arithmetic: a network is written down as it is in torch.

    y = (x * scale + 1).slice(1, context, y_length)        adds Mul, Add and Slice to the graph

Sizes and positions are int64 values of shape (1,), which shapes and slices take as they are. A number in an
expression becomes a constant of the value's type.

Source: the operators of the ONNX specification, opset 23.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from onnx import helper

from ...onnx_graphs.graph_builder import OnnxGraphBuilder

_END = np.iinfo(np.int64).max  # of a slice to the end


class GraphValue:
    """A value of a graph: its name, and its type."""

    def __init__(self, graph: OnnxGraphBuilder, name: str, dtype: DTypeLike) -> None:
        self.graph, self.name, self.dtype = graph, name, np.dtype(dtype)

    def apply(
        self, operator: str, *others: "GraphValue", dtype: DTypeLike | None = None, **attributes: Any
    ) -> "GraphValue":
        """Add a node whose first input is this value. dtype: of the output, this value's by default."""
        name = self.graph.add(operator, [self.name, *(other.name for other in others)], **attributes)
        return GraphValue(self.graph, name, dtype or self.dtype)

    def constant(self, array: NDArray[Any] | Sequence[float] | float) -> "GraphValue":
        """A constant of this value's type; a number has the shape (1,)."""
        return constant(self.graph, np.atleast_1d(np.asarray(array, self.dtype)))

    def _operate(
        self, operator: str, other: "GraphValue | float", dtype: DTypeLike | None = None
    ) -> "GraphValue":
        value = other if isinstance(other, GraphValue) else self.constant(other)
        return self.apply(operator, value, dtype=dtype)

    def __add__(self, other: "GraphValue | float") -> "GraphValue":
        return self._operate("Add", other)

    def __sub__(self, other: "GraphValue | float") -> "GraphValue":
        return self._operate("Sub", other)

    def __rsub__(self, other: float) -> "GraphValue":
        return self.constant(other) - self

    def __mul__(self, other: "GraphValue | float") -> "GraphValue":
        return self._operate("Mul", other)

    def __truediv__(self, other: "GraphValue | float") -> "GraphValue":
        """The quotient; of whole numbers, rounded towards 0."""
        return self._operate("Div", other)

    def __matmul__(self, other: "GraphValue") -> "GraphValue":
        return self._operate("MatMul", other)

    def __gt__(self, other: "GraphValue | float") -> "GraphValue":
        return self._operate("Greater", other, np.bool_)

    def __lt__(self, other: "GraphValue | float") -> "GraphValue":
        return self._operate("Less", other, np.bool_)

    def minimum(self, other: "GraphValue | float") -> "GraphValue":
        """The smaller of both, number by number."""
        return self._operate("Min", other)

    def fraction(self) -> "GraphValue":
        """What is left of the largest whole number below: 0..1."""
        return self - self.apply("Floor")

    def where(self, yes: "GraphValue", no: "GraphValue") -> "GraphValue":
        """``yes`` where this bool is true, ``no`` elsewhere."""
        return self.apply("Where", yes, no, dtype=yes.dtype)

    def cast(self, dtype: DTypeLike) -> "GraphValue":
        """The value in another type."""
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.apply("Cast", dtype=dtype, to=element)

    def size(self, axis: int) -> "GraphValue":
        """Length of an axis, (1,) int64."""
        return self.apply("Shape", dtype=np.int64, start=axis, end=axis + 1)

    def slice(
        self, axis: int, start: "GraphValue | int", stop: "GraphValue | int" = _END, step: int = 1
    ) -> "GraphValue":
        """From ``start`` to ``stop`` on an axis; negative positions count from the end."""
        return slice_axes(self, [axis], [start], [stop], step)

    def reshape(self, *sizes: "GraphValue | int") -> "GraphValue":
        """The value in another shape; -1 for one size is inferred."""
        return self.apply("Reshape", _sizes(self.graph, sizes), allowzero=1)

    def expand(self, *sizes: "GraphValue | int") -> "GraphValue":
        """The value repeated along axes of size 1."""
        return self.apply("Expand", _sizes(self.graph, sizes))

    def transpose(self, *axes: int) -> "GraphValue":
        """The value with its axes in another order."""
        return self.apply("Transpose", perm=axes)

    def unsqueeze(self, *axes: int) -> "GraphValue":
        """The value with new axes of size 1 at these places."""
        return self.apply("Unsqueeze", constant(self.graph, np.array(axes)))

    def gather(self, index: "GraphValue", axis: int) -> "GraphValue":
        """Entries of an axis by index."""
        return self.apply("Gather", index, axis=axis)

    def repeat_frames(self, times: int) -> "GraphValue":
        """(B, T, C) -> (B, times T, C), each frame that often."""
        by_frame = self.unsqueeze(2).expand(1, 1, times, 1)
        return by_frame.reshape(self.size(0), self.size(1) * times, self.size(2))

    def named(self, name: str) -> "GraphValue":
        """The value under a name of its own, e.g. of an output."""
        self.graph.add("Identity", [self.name], name)
        return GraphValue(self.graph, name, self.dtype)

    def mish(self) -> "GraphValue":
        """x tanh(log(1 + exp(x))), without the operator Softplus, which is slow in ONNX Runtime.

        With e = exp(x), the hyperbolic tangent is n / (n + 2) for n = e (e + 2), and 1 from x = 20 on.
        """
        e = self.minimum(20.0).apply("Exp")
        n = e * (e + 2.0)
        return self * (n / (n + 2.0))

    def silu(self) -> "GraphValue":
        """x / (1 + exp(-x))."""
        return self * self.apply("Sigmoid")


def constant(graph: OnnxGraphBuilder, array: NDArray[Any]) -> GraphValue:
    """A constant of a graph."""
    return GraphValue(graph, graph.weight(array), array.dtype)


def concat(values: Sequence[GraphValue], axis: int) -> GraphValue:
    """Values one after the other on an axis."""
    first, *others = values
    return first.apply("Concat", *others, axis=axis)


def arange(count: GraphValue) -> GraphValue:
    """0, 1, ... up to a count given as (1,) int64: (count,) int64."""
    scalars = (np.array(0), np.array(1))
    begin, step = (constant(count.graph, scalar) for scalar in scalars)
    stop = count.apply("Squeeze")
    return begin.apply("Range", stop, step)


def slice_axes(
    value: GraphValue,
    axes: Sequence[int],
    starts: Sequence[GraphValue | int],
    stops: Sequence[GraphValue | int],
    step: int = 1,
) -> GraphValue:
    """``GraphValue.slice`` on several axes at once."""
    graph = value.graph
    steps = constant(graph, np.full(len(axes), step))
    return value.apply(
        "Slice", _sizes(graph, starts), _sizes(graph, stops), constant(graph, np.array(axes)), steps
    )


def _sizes(graph: OnnxGraphBuilder, sizes: Sequence[GraphValue | int]) -> GraphValue:
    """Sizes as one vector; neighbours that are numbers become one constant."""
    if all(isinstance(size, int) for size in sizes):
        return constant(graph, np.array(sizes, np.int64))
    parts = [size if isinstance(size, GraphValue) else constant(graph, np.array([size])) for size in sizes]
    return concat(parts, 0) if len(parts) > 1 else parts[0]
