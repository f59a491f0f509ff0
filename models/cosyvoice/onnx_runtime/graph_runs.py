"""Runs of a graph on numpy arrays, the threads that it may use, and memory for its states."""

import math
import mmap
import os
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Float = NDArray[np.float32]
Integers = NDArray[np.int64]
State = dict[str, NDArray[np.generic]]


def thread_count() -> int:
    """Threads of a graph: as many as torch uses, or the processors of this process if torch is not loaded."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch else len(os.sched_getaffinity(0))


def run_arrays(
    session: onnxruntime.InferenceSession, inputs: Mapping[str, NDArray[np.generic]]
) -> dict[str, NDArray[np.generic]]:
    """Run a graph; its outputs by name. Inputs that are contiguous are not copied."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def paged_zeros(shape: Sequence[int]) -> Float:
    """Zeros in pages of 4 kB, which take no memory until they are written.

    numpy asks for pages of 2 MB, of which the unused part of every head's or layer's buffer would fill some.
    """
    # Private: pages of a shared mapping that are given back stay in use.
    pages = mmap.mmap(-1, max(1, 4 * math.prod(shape)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, np.float32, math.prod(shape)).reshape(shape)


def initial_arrays(session: onnxruntime.InferenceSession, rows: int) -> State:
    """Zeros for every ``past_`` input of a graph: 0 long on dynamic axes other than the rows."""
    return {
        part.name: np.zeros(
            [rows, *(size if isinstance(size, int) else 0 for size in part.shape[1:])],
            np.float64 if part.type == "tensor(double)" else np.float32,
        )
        for part in session.get_inputs()
        if part.name.startswith("past_")
    }


def fixed_shape(session: onnxruntime.InferenceSession, name: str) -> list[int]:
    """The sizes of an input between its rows and its positions, then its width."""
    shape = next(part.shape for part in session.get_inputs() if part.name == name)
    return [*shape[1:-2], shape[-1]]
