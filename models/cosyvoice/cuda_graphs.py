"""A step whose tensors stay where they are: recorded once, replayed as often as it is wanted. No networks.

A graphics card that is told of each product by itself waits for the host most of the time. A recorded step is
told of in one word, and so takes no other shapes and no other memory than those it was recorded with: its
inputs are carried into a ``StagingBuffer``, and what there may be more or fewer of is rounded up to a bucket:

    rows in use   1   2   3   4   5 .. 8   9 .. 16   17 .. 32
    recorded for  1   2   4   4     8         16        32        the rows beside are told to change nothing

On a device without graphs the same function is called on the same tensors, so that all else is as there.

Source: nano-vllm@bb823b3e06 engine/model_runner.py (a graph a batch size, one pool for all);
torch.cuda.CUDAGraph, whose warm-up on a stream of its own this follows.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic, TypeAlias

import torch
from torch import Tensor

from .devices import new_pinned
from .state import State, map_state, tensors

_ALIGNMENT = 16  # bytes; no element is larger
_WARM_UPS = 2  # libraries choose and allocate in their first calls
_RECORDING = threading.Lock()  # torch waits for the whole device first, which spoils a recording under way


class StagingBuffer(Generic[State]):
    """Tensors filled on the host and carried to the device in one go, always to the same place.

    Attributes:
        host: to be written to, once what was made of the last ones has been waited for.
        there: the same on the device, after ``carry``.
    """

    def __init__(self, template: State, device: torch.device) -> None:
        sizes = [-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in tensors(template)]
        begins = [0, *accumulate(sizes)]
        self._host_memory = new_pinned((begins[-1],), torch.uint8)
        is_on_host = device.type == "cpu"
        self._device_memory = (
            self._host_memory if is_on_host else torch.empty(begins[-1], dtype=torch.uint8, device=device)
        )
        self.host = _lay_out(self._host_memory, begins, template)
        self.on_device_tensors = _lay_out(self._device_memory, begins, template)
        for part, first in zip(tensors(self.host), tensors(template), strict=True):
            part.copy_(first)
        self.upload()

    def upload(self) -> None:
        """Take what is on the host to the device; not waited for."""
        if self._device_memory is not self._host_memory:
            self._device_memory.copy_(self._host_memory, non_blocking=True)


def _lay_out(memory: Tensor, begins: Sequence[int], template: State) -> State:
    places = iter(begins)

    def view(part: Tensor) -> Tensor:
        begin = next(places)
        return memory[begin : begin + part.nbytes].view(part.dtype).view(part.shape)

    return map_state(view, template)


GraphMemoryPool: TypeAlias = "torch.cuda._POOL_HANDLE | None"


def new_graph_pool(device: torch.device) -> GraphMemoryPool:
    """Memory that graphs share which are never replayed at the same time; None where there are no graphs."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


class StepGraph:
    """A function of tensors in place, to be replayed.

    Where the device has graphs it is run on making: its inputs must do no harm then. What ``replay`` gives is
    to be looked at before another graph of the pool is replayed.
    """

    def __init__(self, run: Callable[[], Tensor], device: torch.device, pool: GraphMemoryPool) -> None:
        self._run = run
        self._graph: torch.cuda.CUDAGraph | None = None
        self._output: Tensor | None = None
        if device.type == "cuda":
            self._record(device, pool)

    def replay(self) -> Tensor:
        """Compute it with what the tensors hold now."""
        if self._graph is None:
            return self._run()
        self._graph.replay()
        assert self._output is not None
        return self._output

    def _record(self, device: torch.device, pool: GraphMemoryPool) -> None:
        side_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side_stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UPS):
                self._run()
        torch.cuda.current_stream(device).wait_stream(side_stream)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile.
        with _RECORDING, torch.cuda.graph(self._graph, pool, side_stream, capture_error_mode="thread_local"):
            self._output = self._run()


def bucket(count: int, max_count: int, min_count: int = 1) -> int:
    """The next power of two from ``least`` on, but no more than ``most``; count: at most ``most``."""
    return min(max_count, max(min_count, 1 << (count - 1).bit_length()))


def buckets(max_count: int, min_count: int = 1) -> list[int]:
    """Every answer of ``bucket``."""
    return sorted(
        {
            bucket(count, max_count, min_count)
            for count in (*(1 << n for n in range(max_count.bit_length())), max_count)
        }
    )
