"""Steps on fixed tensors: recorded once as a CUDA graph, then replayed. No networks.

A GPU that gets each operation from the host waits for the host most of the time. A recorded step is launched
as a whole, but only with the shapes and the memory it was recorded with. So its inputs are uploaded to a
``StagingBuffer``, and counts that vary are rounded up to buckets; the extra rows write to scratch memory:

    rows in use   1   2   3   4   5 .. 8   9 .. 16   17 .. 32
    recorded for  1   2   4   4     8         16        32

On a device without graphs ``StepGraph`` calls the same function on the same tensors.

Source: nano-vllm@bb823b3e06 engine/model_runner.py (one graph for each batch size, one memory pool for all);
torch.cuda.CUDAGraph, whose warm-up on a side stream this follows.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ..devices.torch_devices import new_pinned
from .state import State, map_state, tensors

Key = TypeVar("Key", bound=Hashable)
Step = TypeVar("Step")

_ALIGNMENT = 16  # bytes, the size of the largest element type
# Beginning a recording synchronizes the whole device, which breaks a recording in another thread.
_RECORDING = threading.Lock()


class StagingBuffer(Generic[State]):
    """Tensors that are filled on the host and uploaded in one copy, always to the same device memory.

    Attributes:
        on_device_tensors: the same tensors on the device, after ``upload``; on a CPU the memory of ``host``.
    """

    def __init__(self, template: State, device: torch.device) -> None:
        sizes = [-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in tensors(template)]
        begins = [0, *accumulate(sizes)]
        self._host_memory = new_pinned((begins[-1],), torch.uint8)
        is_on_host = device.type == "cpu"
        self._device_memory = (
            self._host_memory if is_on_host else torch.empty(begins[-1], dtype=torch.uint8, device=device)
        )
        self._host = _lay_out(self._host_memory, begins, template)
        self._uploaded: torch.cuda.Event | None = None
        self.on_device_tensors = _lay_out(self._device_memory, begins, template)
        for part, first in zip(tensors(self._host), tensors(template), strict=True):
            part.copy_(first)
        self.upload()

    @property
    def host(self) -> State:
        """Tensors to fill, in pinned memory, after waiting until the previous upload has read them."""
        if self._uploaded is not None:
            self._uploaded.synchronize()
        return self._host

    def upload(self) -> None:
        """Copy the host tensors to the device, asynchronously."""
        if self._device_memory is not self._host_memory:
            self._device_memory.copy_(self._host_memory, non_blocking=True)
        if self._device_memory.device.type == "cuda":
            self._uploaded = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._uploaded.record(torch.cuda.current_stream(self._device_memory.device))


def _lay_out(memory: Tensor, begins: Sequence[int], template: State) -> State:
    """Views into ``memory``, at the given bytes, in the types and shapes of the template."""
    places = iter(begins)

    def view(part: Tensor) -> Tensor:
        begin = next(places)
        return memory[begin : begin + part.nbytes].view(part.dtype).view(part.shape)

    return map_state(view, template)


@dataclass(frozen=True, slots=True)
class GraphMemoryPool:
    """Memory shared by graphs that are never replayed at the same time, and the stream that captures them.

    The allocator reuses a block only on the stream of its allocation, and every stream has a workspace of
    cuBLAS. With one stream a pool, the graphs of a pool share both, and graphs of two pools share neither.
    """

    handle: "torch.cuda._POOL_HANDLE"
    stream: torch.cuda.Stream


def new_graph_pool(device: torch.device, priority: int = 0) -> GraphMemoryPool | None:
    """A pool; None on a device without graphs.

    priority: of the kernels of its graphs, as of a CUDA stream. -1 is started before 0 where both wait.
    """
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
    return GraphMemoryPool(torch.cuda.graph_pool_handle(), stream)


class StepGraph(Generic[State]):
    """A function of fixed tensors that can be replayed. It returns a tensor, or a tree of tensors.

    On a device with graphs the function runs at construction, so its inputs must be harmless then. The
    output is valid until another graph of the same pool is replayed.
    """

    def __init__(self, run: Callable[[], State], device: torch.device, pool: GraphMemoryPool | None) -> None:
        self._run = run
        self._graph: torch.cuda.CUDAGraph | None = None
        self._output: State | None = None
        if pool is not None:
            self._record(device, pool)

    def replay(self) -> State:
        """Run the function on the present contents of its tensors."""
        if self._graph is None:
            return self._run()
        self._graph.replay()
        assert self._output is not None
        return self._output

    def _record(self, device: torch.device, pool: GraphMemoryPool) -> None:
        pool.stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(pool.stream):
            self._run()  # libraries choose algorithms and allocate in their first calls
        torch.cuda.current_stream(device).wait_stream(pool.stream)
        self._graph = torch.cuda.CUDAGraph()
        # thread_local: allocations in other threads do not break the recording.
        with (
            _RECORDING,
            torch.cuda.graph(self._graph, pool.handle, pool.stream, capture_error_mode="thread_local"),
        ):
            self._output = self._run()


class CapturedSteps(Generic[Key, Step]):
    """Steps of one network by their sizes, in one memory pool. A step is captured when it is first needed.

    A deferred one runs without a graph until ``capture``; the shapes are the same, and so are its results.
    """

    def __init__(
        self,
        device: torch.device,
        capture: Callable[[Key, GraphMemoryPool | None], Step],
        priority: int = 0,
    ) -> None:
        """priority: as of ``new_graph_pool``."""
        self._pool, self._capture = new_graph_pool(device, priority), capture
        self._steps: dict[Key, Step] = {}
        self._deferred: dict[Key, Step | None] = {}  # without a graph; None before the first use
        self._plan: Callable[[Key], object] | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """Sizes for which steps have been captured."""
        return tuple(self._steps)

    def defer(self, key: Key) -> Callable[[], None]:
        """Run the step for these sizes without a graph until it is captured, as what is returned does."""
        if key not in self._steps:
            self._deferred.setdefault(key, None)
        return partial(self.capture, key)

    def defer_new(self, plan: Callable[[Key], object]) -> None:
        """Defer every step that is needed for the first time from now on. plan: takes its sizes."""
        self._plan = plan

    def get(self, key: Key) -> Step:
        """The step for these sizes; captured if there is none, unless it is deferred."""
        if self._plan is not None and key not in self._steps and key not in self._deferred:
            self.defer(key)
            self._plan(key)
        if key in self._deferred:
            step = self._deferred[key]
            if step is None:
                step = self._deferred[key] = self._capture(key, None)
            return step
        if key not in self._steps:
            self.capture(key)
        return self._steps[key]

    @torch.inference_mode()
    def capture(self, key: Key) -> None:
        """Capture the step for these sizes. After an error nothing has changed."""
        if key not in self._steps:
            self._steps[key] = self._capture(key, self._pool)
            self._deferred.pop(key, None)


def bucket(count: int, max_count: int, min_count: int = 1, growth: int = 2) -> int:
    """``count`` rounded up to a power of ``growth``, within ``min_count`` and ``max_count``."""
    rounded = 1
    while rounded < count:
        rounded *= growth
    return min(max_count, max(min_count, rounded))


def buckets(max_count: int, min_count: int = 1, growth: int = 2) -> list[int]:
    """All values of ``bucket`` for counts up to ``max_count``, in order."""
    found = [bucket(1, max_count, min_count, growth)]
    while found[-1] < max_count:
        found.append(bucket(found[-1] + 1, max_count, min_count, growth))
    return found


def bucket_ranges(max_count: int, growth: int = 2) -> list[tuple[int, int]]:
    """The smallest count of each bucket and the bucket, in order."""
    found = buckets(max_count, growth=growth)
    return list(zip([1, *(each + 1 for each in found[:-1])], found, strict=True))
