"""Compares what a network computes with the stored answer of upstream, one array at a time."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Arrays = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One array of a case."""

    case: str
    array: str
    error: float  # largest absolute difference; for a trace, the number of rows that differ
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance

    @property
    def severity(self) -> float:
        """Error as a share of the tolerance, or the error itself where none is tolerated."""
        return self.error / self.tolerance if self.tolerance else self.error


# Yields a comparison for every array of a case in a folder of vectors.
Check = Callable[[Path], Iterator[Comparison]]


def compare(case: str, array: str, ours: Tensor, theirs: Tensor, tolerance: float) -> Comparison:
    """Compare two arrays. The error is infinite if the shapes differ or a value is NaN."""
    if ours.shape != theirs.shape:
        return Comparison(case, array, float("inf"), tolerance)
    error = float((ours.double() - theirs.double()).abs().max()) if ours.numel() else 0.0
    return Comparison(case, array, error if error == error else float("inf"), tolerance)


def compare_rows(case: str, name: str, ours: Sequence[object], theirs: Sequence[object]) -> Comparison:
    """Compare two traces row by row; no difference is tolerated."""
    different = sum(mine != other for mine, other in zip(ours, theirs, strict=False))
    return Comparison(case, name, float(different + abs(len(ours) - len(theirs))), 0.0)


def read_arrays(folder: Path, case: str) -> Arrays:
    """Read the arrays of ``CASE.npz``."""
    with np.load(folder / f"{case}.npz", allow_pickle=False) as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


def read_rows(folder: Path, case: str) -> Any:
    """Read the traces of ``CASE.json``."""
    return json.loads((folder / f"{case}.json").read_text("utf-8"))
