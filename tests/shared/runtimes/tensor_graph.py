"""A session of ONNX Runtime on tensors of the CPU, which share their memory with its arrays."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vivavoce.models.cosyvoice.onnx_runtime.graph_runs import Array, OrtGraph, State


class TensorOrtGraph(OrtGraph):
    """As ``OrtGraph``, with tensors in and out."""

    def run(self, inputs: Mapping[str, Array | int]) -> dict[str, Array]:
        """The outputs by name."""
        arrays = {name: part.numpy() if isinstance(part, Tensor) else part for name, part in inputs.items()}
        return _to_tensors(super().run(arrays))

    def initial_state(self, rows: int) -> State:
        """Zeros for every ``past_`` input."""
        return _to_tensors(super().initial_state(rows))

    def empty_memory(self, name: str, rows: int, slots: int) -> Tensor:
        """Memory for an input."""
        return torch.from_numpy(super().empty_memory(name, rows, slots))


def _to_tensors(arrays: State) -> State:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
