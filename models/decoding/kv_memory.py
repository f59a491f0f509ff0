"""Memory of a language model that decodes speech ids: keys and values of rows, and the places of a step.

A row's memory holds keys and values of every column it was fed, at their positions; a step writes the new
ones behind them and attends to all:

    position    0 .. lengths-1         | lengths .. lengths+valid-1 | .. capacity-1 | capacity
                fed before, untouched  | written by this step       | unused        | what padding writes
"""

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..devices.host_memory import release_pages
from ..devices.torch_devices import to_device

# Positions whose pages an empty row keeps: most sentences need no more, and new pages cost time.
_KEPT_POSITIONS = 256


@dataclass(frozen=True, slots=True)
class SpeechLmState:
    """Memory of each row.

    A step writes ``kv`` in place behind ``lengths``, so a state can be stepped from only once.
    """

    # (B, layers, 2, kv_heads, capacity + 1, head_width), keys and values; the last position is scratch.
    # The last three axes are contiguous.
    kv: Tensor
    lengths: Tensor  # (B,) int64 on the host, ids fed so far

    @property
    def capacity(self) -> int:
        """Number of ids that a row can hold."""
        return self.kv.shape[4] - 1

    def clear_row(self, row: int) -> None:
        """Empty a row. On a CPU, memory of a long sequence is returned to the system."""
        is_long = int(self.lengths[row]) > _KEPT_POSITIONS
        self.lengths[row] = 0
        if is_long and self.kv.device.type == "cpu":
            # Rows need not be in one piece: in ONNX Runtime, rows of the same layer are neighbours.
            for kv in self.kv[row].unbind():
                for heads in kv.unbind():
                    shape = (heads.shape[1], heads.shape[2])
                    release_pages(heads.data_ptr(), heads.nbytes, shape, heads.itemsize, _KEPT_POSITIONS)


def empty_state(rows: int, capacity: int, heads_shape: tuple[int, int, int], like: Tensor) -> SpeechLmState:
    """Empty memory for ``capacity`` ids a row, in the type and on the device of ``like``.

    heads_shape: layers, heads of keys in each, their width. On a CPU, pages that are not written take no
    memory.
    """
    layers, kv_heads, head_width = heads_shape
    kv = lazy_zeros((rows, layers, 2, kv_heads, capacity + 1, head_width), like)
    return SpeechLmState(kv, torch.zeros(rows, dtype=torch.int64))


def lazy_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros that take memory only once they are written.

    They have to be zeros: masked values are multiplied by 0 and must be finite. Anonymous mmap pages of 4 kB
    are used on a CPU, because torch.zeros writes all of them, and numpy's come in pages of 2 MB, of which the
    keys of every head would occupy one.
    """
    if like.device.type != "cpu":
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    # Private: pages of a shared mapping that are given back stay in use.
    size = math.prod(shape) * like.element_size()
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)


@dataclass(frozen=True, slots=True)
class KvStepPlan:
    """Where a step writes and what it attends to; the same in all layers."""

    rows: Tensor  # (B, 1) int64
    write_positions: Tensor  # (B, T) int64
    attended_positions: int
    # (B, 1, G * T, attended_positions) bool, G queries a key. None: all, or as the positions tell kernels
    visible: Tensor | None

    def update(self, kv: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values of the columns; returns the keys and the values to attend to.

        kv: (B, 2, kv_heads, capacity + 1, head_width) of one layer. new: (B, T, 2, kv_heads, head_width).
        Returns (B, kv_heads, attended_positions, head_width) each, views of ``kv``.
        """
        # Advanced indices come first in the result: (B, T, 2, kv_heads, head_width).
        kv[self.rows, :, :, self.write_positions] = new
        return kv[:, 0, :, : self.attended_positions], kv[:, 1, :, : self.attended_positions]


@dataclass(frozen=True, slots=True)
class ColumnPositions:
    """Places of a step's columns in the rows, on the step's device."""

    positions: Tensor  # (B, T) int64
    write_positions: Tensor  # (B, T) int64; of padding: the scratch position
    lengths: Tensor  # (B,) int64 on the host, of the rows after the step

    def plan(self, queries_per_key: int = 1) -> KvStepPlan:
        """The plan of a step that is not recorded: it attends to the columns of the longest row."""
        plan = plan_kv_step(self.positions, self.write_positions, int(self.lengths.max()), queries_per_key)
        # One row attends to its whole length, so no mask is needed.
        return replace(plan, visible=None) if self.positions.numel() == 1 else plan


def place_columns(state: SpeechLmState, x: Tensor, valid: Tensor | None) -> ColumnPositions:
    """Places of columns ``x`` (B, T, hidden), of which ``valid`` (B,), on the host, are real in each row.

    None: all are. Raises ValueError if a row would outgrow its memory.
    """
    rows, columns, _ = x.shape
    if valid is None:
        valid = state.lengths.new_full((rows,), columns)
    lengths = state.lengths + valid
    max_length = int(lengths.max())
    if max_length > state.capacity:
        raise ValueError(f"a row would hold {max_length} ids; its memory was made for {state.capacity}")
    positions, write_positions = input_and_write_positions(state, valid, columns)
    return ColumnPositions(to_device(positions, x.device), to_device(write_positions, x.device), lengths)


def input_and_write_positions(state: SpeechLmState, valid: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Position of each input, and where it is written (padding: scratch); (B, T) int64 on the host."""
    column = torch.arange(columns)
    positions = state.lengths[:, None] + column
    return positions, torch.where(column < valid[:, None], positions, state.capacity)


def plan_kv_step(
    positions: Tensor, write_positions: Tensor, attended_positions: int, queries_per_key: int = 1
) -> KvStepPlan:
    """The plan of columns at ``positions`` (B, T), on their device; a column sees itself and earlier ones."""
    rows = torch.arange(len(positions), device=positions.device)[:, None]
    seen = torch.arange(attended_positions, device=positions.device) <= positions[..., None]
    return KvStepPlan(
        rows, write_positions, attended_positions, seen[:, None].repeat(1, 1, queries_per_key, 1)
    )


def plan_kv_step_for_kernels(write_positions: Tensor, attended_positions: int) -> KvStepPlan:
    """``plan_kv_step`` for kernels, which see by the positions what a column sees: without a mask."""
    rows = torch.arange(len(write_positions), device=write_positions.device)[:, None]
    return KvStepPlan(rows, write_positions, attended_positions, None)


def last_valid_hidden(hidden: Tensor, valid: Tensor) -> Tensor:
    """Hidden state at the last real column of each row: (B, hidden), undefined for empty rows."""
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    return hidden[rows, to_device((valid - 1).clamp(min=0), hidden.device)]
