"""A step whose tensors stay where they are: recorded once, replayed as often as it is wanted. No networks.

A graphics card that is told of each product by itself waits for the host most of the time. A recorded step is
told of in one word, and so takes no other shapes and no other memory than those it was recorded with: its
inputs are carried into a ``Tray``, and what there may be more or fewer of is rounded up to a bucket:

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

from .devices import new_on_host
from .state import State, map_state, tensors

_ALIGNMENT = 16  # bytes; no element is larger
_WARM_UPS = 2  # libraries choose and allocate in their first calls
_RECORDING = threading.Lock()  # torch waits for the whole device first, which spoils a recording under way


class Tray(Generic[State]):
    """Tensors filled on the host and carried to the device in one go, always to the same place.

    Attributes:
        host: to be written to, once what was made of the last ones has been waited for.
        there: the same on the device, after ``carry``.
    """

    def __init__(self, template: State, device: torch.device) -> None:
        sizes = [-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in tensors(template)]
        begins = [0, *accumulate(sizes)]
        self._host = new_on_host((begins[-1],), torch.uint8)
        is_here = device.type == "cpu"
        self._there = self._host if is_here else torch.empty(begins[-1], dtype=torch.uint8, device=device)
        self.host = _laid_into(self._host, begins, template)
        self.there = _laid_into(self._there, begins, template)
        for part, first in zip(tensors(self.host), tensors(template), strict=True):
            part.copy_(first)
        self.carry()

    def carry(self) -> None:
        """Take what is on the host to the device; not waited for."""
        if self._there is not self._host:
            self._there.copy_(self._host, non_blocking=True)


def _laid_into(room: Tensor, begins: Sequence[int], template: State) -> State:
    places = iter(begins)

    def view(part: Tensor) -> Tensor:
        begin = next(places)
        return room[begin : begin + part.nbytes].view(part.dtype).view(part.shape)

    return map_state(view, template)


Pool: TypeAlias = "torch.cuda._POOL_HANDLE | None"


def new_pool(device: torch.device) -> Pool:
    """Memory that graphs share which are never replayed at the same time; None where there are no graphs."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


class StepGraph:
    """A function of tensors in place, to be replayed.

    Where the device has graphs it is run on making: its inputs must do no harm then. What ``replay`` gives is
    to be looked at before another graph of the pool is replayed.
    """

    def __init__(self, run: Callable[[], Tensor], device: torch.device, pool: Pool) -> None:
        self._run = run
        self._graph: torch.cuda.CUDAGraph | None = None
        self._answer: Tensor | None = None
        if device.type == "cuda":
            self._record(device, pool)

    def replay(self) -> Tensor:
        """Compute it with what the tensors hold now."""
        if self._graph is None:
            return self._run()
        self._graph.replay()
        assert self._answer is not None
        return self._answer

    def _record(self, device: torch.device, pool: Pool) -> None:
        beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UPS):
                self._run()
        torch.cuda.current_stream(device).wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile.
        with _RECORDING, torch.cuda.graph(self._graph, pool, beside, capture_error_mode="thread_local"):
            self._answer = self._run()


def bucket(count: int, most: int, least: int = 1) -> int:
    """The next power of two from ``least`` on, but no more than ``most``; count: at most ``most``."""
    return min(most, max(least, 1 << (count - 1).bit_length()))


def buckets(most: int, least: int = 1) -> list[int]:
    """Every answer of ``bucket``."""
    return sorted(
        {bucket(count, most, least) for count in (*(1 << n for n in range(most.bit_length())), most)}
    )
