"""Attention memory: the buffers with the keys and values of earlier frames, in three layouts.

    Tensor            one buffer for all rows, written in place          a session, or a batch of equal ones
    SeparateBuffers   one buffer for each row, where it already is       sessions that share one step
    PagedBuffers      a pool of blocks, listed by a table for each row   recorded steps

A buffer has slots, one for each frame. It is a ring if the attention window is bounded: the plan of a chunk
(``attention_plan``) says which frame each slot holds. Copying the buffers of sessions into one batch would
cost more than a shared step saves, hence ``SeparateBuffers``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...devices.host_memory import release_pages
from ...networks.state import tensors


@dataclass(frozen=True, slots=True)
class SeparateBuffers:
    """The buffers of several sessions as one memory. ``rows``: (n, ...) each, in row order."""

    rows: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class PagedBuffers:
    """A pool of pages, one block of frames each, shared by all rows. pool: (pages, ..., block, D)."""

    pool: Tensor


AttentionMemory = Tensor | SeparateBuffers | PagedBuffers


def layer_memories(cache: AttentionMemory) -> Sequence[AttentionMemory]:
    """Views of the memory of each layer: (N, layers, P, W, D) -> (N, P, W, D) each."""
    if isinstance(cache, Tensor):
        return cache.unbind(1)
    if isinstance(cache, PagedBuffers):
        return [PagedBuffers(layer) for layer in cache.pool.unbind(1)]
    return [SeparateBuffers(layer) for layer in zip(*(rows.unbind(1) for rows in cache.rows), strict=True)]


def slot_capacity(cache: AttentionMemory) -> int:
    """Number of slots, W; of separate buffers the largest, of pages all."""
    if isinstance(cache, PagedBuffers):
        return len(cache.pool) * cache.pool.shape[-2]
    return cache.shape[-2] if isinstance(cache, Tensor) else max(rows.shape[-2] for rows in cache.rows)


def device_of(cache: AttentionMemory) -> torch.device:
    """The device of the buffers."""
    return next(tensors(cache)).device


def release_pages_behind(cache: Tensor, slots: int) -> None:
    """Return the memory pages after the first ``slots`` slots of each buffer to the system.

    cache: (..., W, D), contiguous, on a CPU under Linux. Their contents are
    lost; a page costs nothing until it is written again. Raises OSError if the system refuses.
    """
    release_pages(cache.data_ptr(), cache.nbytes, tuple(cache.shape[-2:]), cache.element_size(), slots)


def split_by_buffer(
    cache: Tensor | SeparateBuffers, first: int, last: int
) -> Iterator[tuple[int, int, Tensor]]:
    """Rows ``first`` to ``last`` as (begin, end, buffer), one item for each buffer."""
    if isinstance(cache, Tensor):
        yield first, last, cache[first:last]
        return
    start = 0
    for rows in cache.rows:
        stop = start + len(rows)
        begin, end = max(first, start), min(last, stop)
        if begin < end:
            yield begin, end, rows[begin - start : end - start]
        start = stop
