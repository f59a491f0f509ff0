"""Sessions that share a step: what goes wrong with one of them is its own. No tensors.

    rows 0 1 2 3   fail together, for whatever reason
    row  0         alone: done
    row  1         alone: fails, and is out
    row  2 ...     alone: done

Where memory ran out, the newest is out, what it held is free at once, and the others go on together: a call
that is heard is worth more than one that has hardly begun.
"""

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

logger = logging.getLogger(__name__)

RowInput = TypeVar("RowInput")
RowResult = TypeVar("RowResult")


class FaultIsolation:
    """The sessions of one step, oldest first in ``seniority``.

    vacate: frees what a session holds that is out because memory ran out.

    Attributes:
        failed: what ended a session, by its row.
        memory_ran_out: whether memory did in this step.
    """

    def __init__(self, age: Mapping[int, int], free_memory: Callable[[int], None]) -> None:
        self._age, self._free_memory = age, free_memory
        self.failed: dict[int, Exception] = {}
        self.out_of_memory = False

    def run_batch(
        self, inputs: Mapping[int, RowInput], run: Callable[[Mapping[int, RowInput]], Mapping[int, RowResult]]
    ) -> dict[int, RowResult]:
        """Run parts by row in one go, or apart where that fails; the results of those that did not fail.

        run: changes nothing that it cannot do again, where it raises. Boundary: whatever it raises is kept.
        """
        inputs = {row: row_input for row, row_input in inputs.items() if row not in self.failed}
        if not inputs:
            return {}
        try:
            return dict(run(inputs))
        except Exception as error:
            return self._run_separately(inputs, run, error)

    def run_each(
        self, inputs: Mapping[int, RowInput], run_one: Callable[[int, RowInput], RowResult]
    ) -> dict[int, RowResult]:
        """Do something for one after the other, that is not to be done twice; what came of it."""
        results: dict[int, RowResult] = {}
        for row, row_input in inputs.items():
            results |= self.run_batch(
                {row: row_input}, lambda one: {row: run_one(row, row_input) for row, row_input in one.items()}
            )
        return results

    def run_grouped(
        self,
        inputs: Mapping[int, RowInput],
        group_key: Callable[[RowInput], Hashable],
        run: Callable[[Mapping[int, RowInput]], Mapping[int, RowResult]],
    ) -> dict[int, RowResult]:
        """Run those of a kind ``together``, one kind after the other."""
        groups: dict[Hashable, dict[int, RowInput]] = {}
        for row, row_input in inputs.items():
            groups.setdefault(group_key(row_input), {})[row] = row_input
        results: dict[int, RowResult] = {}
        for group in groups.values():
            results |= self.run_batch(group, run)
        return results

    def _run_separately(
        self,
        inputs: Mapping[int, RowInput],
        run: Callable[[Mapping[int, RowInput]], Mapping[int, RowResult]],
        error: Exception,
    ) -> dict[int, RowResult]:
        logger.info("%d sessions of a step failed", len(inputs), exc_info=error)
        # Whoever keeps the error would keep what its frames hold: memory of sessions that live.
        error.__traceback__ = None
        ran_out = is_out_of_memory(error)
        self.out_of_memory |= ran_out
        if ran_out or len(inputs) == 1:
            newest = max(inputs, key=self._age.__getitem__)
            self.failed[newest] = error
            if ran_out:
                self._free_memory(newest)
            return self.run_batch(inputs, run)
        results: dict[int, RowResult] = {}
        for row, row_input in inputs.items():
            results |= self.run_batch({row: row_input}, run)
        return results


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device or the machine had no room for a tensor."""
    # By its words: on a CPU torch raises a plain RuntimeError, and only the runners import torch.
    messages = (
        "out of memory",
        "DefaultCPUAllocator: can't allocate",
        "DefaultCPUAllocator: not enough memory",
    )
    return isinstance(error, MemoryError) or any(text in str(error) for text in messages)
