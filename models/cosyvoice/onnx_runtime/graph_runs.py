"""A graph that runs on arrays, the threads that it may use, and memory for its states."""

import math
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnxruntime
from numpy.typing import DTypeLike, NDArray

Float = NDArray[np.float32]
Integers = NDArray[np.int64]
# An array of numpy, or a tensor where the graph runs on a card.
Array: TypeAlias = Any
State: TypeAlias = dict[str, Array]

_DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


class RunnableGraph(Protocol):
    """A graph on arrays of one library."""

    def run(self, inputs: Mapping[str, Array | int]) -> dict[str, Array]:
        """The outputs by name. A number is an input without axes."""

    def initial_state(self, rows: int) -> State:
        """Zeros for every ``past_`` input: 0 long on dynamic axes other than the rows."""

    def empty_memory(self, name: str, rows: int, slots: int) -> Array:
        """Memory for an input (B, ..., slots, width), float32; pages that are not written take none."""


class OrtGraph:
    """A session of ONNX Runtime on arrays of numpy. Inputs that are contiguous are not copied."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._inputs = {part.name: (part.shape, part.type) for part in session.get_inputs()}
        self._outputs = [part.name for part in session.get_outputs()]

    def run(self, inputs: Mapping[str, Array | int]) -> dict[str, Array]:
        """The outputs by name."""
        return dict(zip(self._outputs, self._session.run(self._outputs, _as_arrays(inputs)), strict=True))

    def run_into(
        self, inputs: Mapping[str, Array | int], buffers: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, Array]:
        """The outputs by name, less those that are written into the buffers of their names."""
        binding = self._session.io_binding()
        for name, part in _as_arrays(inputs).items():
            binding.bind_cpu_input(name, part)
        for name, buffer in buffers.items():
            binding.bind_output(name, "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)
        others = [name for name in self._outputs if name not in buffers]
        for name in others:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        found = binding.get_outputs()[len(buffers) :]
        return {name: value.numpy() for name, value in zip(others, found, strict=True)}

    def initial_state(self, rows: int) -> State:
        """Zeros for every ``past_`` input."""
        return {
            name: np.zeros(
                [rows, *(size if isinstance(size, int) else 0 for size in shape[1:])],
                _DTYPES[kind],
            )
            for name, (shape, kind) in self._inputs.items()
            if name.startswith("past_")
        }

    def empty_memory(self, name: str, rows: int, slots: int) -> Array:
        """Memory for an input."""
        shape, _ = self._inputs[name]
        return paged_zeros((rows, *shape[1:-2], slots, shape[-1]))


def host_array(array: Array) -> Float:
    """An output on the host, where the graph may have run on a card."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu())


def thread_count() -> int:
    """Threads of a graph: as many as torch uses, or the processors of this process if torch is not loaded."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch else len(os.sched_getaffinity(0))


def _as_arrays(inputs: Mapping[str, Array | int]) -> dict[str, Array]:
    return {name: np.array(part) if isinstance(part, int) else part for name, part in inputs.items()}


def paged_zeros(shape: Sequence[int], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Zeros in pages of 4 kB, which take no memory until they are written.

    numpy asks for pages of 2 MB, of which the unused part of every head's or layer's buffer would fill some.
    """
    # Private: pages of a shared mapping that are given back stay in use.
    size = max(1, np.dtype(dtype).itemsize * math.prod(shape))
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)
