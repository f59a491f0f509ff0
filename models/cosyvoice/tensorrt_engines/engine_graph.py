"""An engine on tensors of its card; a ``RunnableGraph``.

It runs on the current stream of the thread, so that each stage of a renderer has a stream of its own, and
returns before the card has done its work. There is a context for each profile, as a change of profile waits.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..onnx_runtime.graph_runs import Array, State
from .shape_profiles import ShapeProfile

if TYPE_CHECKING:
    import tensorrt

Axes = Mapping[str, Sequence[int | str]]


class EngineGraph:
    """An engine with a context for each profile. axes: sizes and names of the axes of its inputs."""

    def __init__(
        self,
        engine: "tensorrt.ICudaEngine",
        profiles: Sequence[ShapeProfile],
        axes: Axes,
        device: torch.device,
    ) -> None:
        self._engine, self._profiles, self._axes, self._device = engine, profiles, axes, device
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self._outputs = [name for name in names if name not in axes]
        # The host reads these numbers to know the shapes of a step.
        self._on_host = {name for name in axes if engine.is_shape_inference_io(name)}
        self._contexts: dict[int, tensorrt.IExecutionContext] = {}

    def run(self, inputs: Mapping[str, Array | int]) -> dict[str, Array]:
        """The outputs by name. Raises ValueError for sizes that the engine was not built for."""
        fed = {name: self._placed(name, part) for name, part in inputs.items()}
        context = self._context(self._profile_for(inputs))
        for name, part in fed.items():
            if not context.set_input_shape(name, tuple(part.shape)):
                raise ValueError(f"{name} is {tuple(part.shape)}; the engine takes another shape")
            context.set_tensor_address(name, part.data_ptr())
        if missing := context.infer_shapes():
            raise ValueError(f"the engine also needs {', '.join(missing)}")
        outputs = {
            name: torch.empty(tuple(context.get_tensor_shape(name)), device=self._device)
            for name in self._outputs
        }
        for name, output in outputs.items():
            context.set_tensor_address(name, output.data_ptr())
        if not context.execute_async_v3(_stream_handle(self._device)):
            raise RuntimeError("TensorRT did not run the engine")
        return outputs

    def initial_state(self, rows: int) -> State:
        """Zeros for every ``past_`` input."""
        return {
            name: torch.zeros(
                [rows, *(size if isinstance(size, int) else 0 for size in shape[1:])], device=self._device
            )
            for name, shape in self._axes.items()
            if name.startswith("past_")
        }

    def empty_memory(self, name: str, rows: int, slots: int) -> Tensor:
        """Memory for an input."""
        shape = self._axes[name]
        sizes = [rows, *(size for size in shape[1:-2] if isinstance(size, int)), slots, shape[-1]]
        return torch.zeros(sizes, device=self._device)  # type: ignore[arg-type]  # the last size is a number

    def _placed(self, name: str, part: Array | int) -> Tensor:
        """An input where the engine reads it."""
        device = torch.device("cpu") if name in self._on_host else self._device
        if isinstance(part, int):
            return torch.tensor(part, device=device)
        return torch.as_tensor(part).to(device).contiguous()

    def _profile_for(self, inputs: Mapping[str, Array | int]) -> int:
        """The first profile that all sizes are in."""
        sizes = [size for name, part in inputs.items() for size in self._dynamic_sizes(name, part)]
        for index, profile in enumerate(self._profiles):
            if all(size in profile[axis] for axis, size in sizes):
                return index
        named = ", ".join(f"{axis} {size}" for axis, size in dict(sizes).items())
        raise ValueError(f"no engine was built for {named}")

    def _dynamic_sizes(self, name: str, part: Array | int) -> list[tuple[str, int]]:
        if isinstance(part, int):
            return [(name, part)]
        axes = zip(self._axes[name], part.shape, strict=True)
        return [(axis, size) for axis, size in axes if isinstance(axis, str)]

    def _context(self, profile: int) -> "tensorrt.IExecutionContext":
        if profile not in self._contexts:
            context = self._engine.create_execution_context()
            context.set_optimization_profile_async(profile, _stream_handle(self._device))
            self._contexts[profile] = context
        return self._contexts[profile]


def _stream_handle(device: torch.device) -> int:
    """The current stream of the thread; 0 where there is none."""
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0
