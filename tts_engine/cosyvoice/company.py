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

Part = TypeVar("Part")
Result = TypeVar("Result")


class Company:
    """The sessions of one step, oldest first in ``seniority``.

    vacate: frees what a session holds that is out because memory ran out.

    Attributes:
        failed: what ended a session, by its row.
        memory_ran_out: whether memory did in this step.
    """

    def __init__(self, seniority: Mapping[int, int], vacate: Callable[[int], None]) -> None:
        self._seniority, self._vacate = seniority, vacate
        self.failed: dict[int, Exception] = {}
        self.memory_ran_out = False

    def together(
        self, parts: Mapping[int, Part], run: Callable[[Mapping[int, Part]], Mapping[int, Result]]
    ) -> dict[int, Result]:
        """Run parts by row in one go, or apart where that fails; the results of those that did not fail.

        run: changes nothing that it cannot do again, where it raises. Boundary: whatever it raises is kept.
        """
        parts = {row: part for row, part in parts.items() if row not in self.failed}
        if not parts:
            return {}
        try:
            return dict(run(parts))
        except Exception as error:
            return self._apart(parts, run, error)

    def each(self, parts: Mapping[int, Part], work: Callable[[int, Part], Result]) -> dict[int, Result]:
        """Do something for one after the other, that is not to be done twice; what came of it."""
        results: dict[int, Result] = {}
        for row, part in parts.items():
            results |= self.together(
                {row: part}, lambda one: {row: work(row, part) for row, part in one.items()}
            )
        return results

    def alike(
        self,
        parts: Mapping[int, Part],
        kind: Callable[[Part], Hashable],
        run: Callable[[Mapping[int, Part]], Mapping[int, Result]],
    ) -> dict[int, Result]:
        """Run those of a kind ``together``, one kind after the other."""
        groups: dict[Hashable, dict[int, Part]] = {}
        for row, part in parts.items():
            groups.setdefault(kind(part), {})[row] = part
        results: dict[int, Result] = {}
        for group in groups.values():
            results |= self.together(group, run)
        return results

    def _apart(
        self,
        parts: Mapping[int, Part],
        run: Callable[[Mapping[int, Part]], Mapping[int, Result]],
        error: Exception,
    ) -> dict[int, Result]:
        logger.info("%d sessions of a step failed", len(parts), exc_info=error)
        # Whoever keeps the error would keep what its frames hold: memory of sessions that live.
        error.__traceback__ = None
        ran_out = is_out_of_memory(error)
        self.memory_ran_out |= ran_out
        if ran_out or len(parts) == 1:
            newest = max(parts, key=self._seniority.__getitem__)
            self.failed[newest] = error
            if ran_out:
                self._vacate(newest)
            return self.together(parts, run)
        results: dict[int, Result] = {}
        for row, part in parts.items():
            results |= self.together({row: part}, run)
        return results


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device or the machine had no room for a tensor."""
    # By its words: on a CPU torch raises a plain RuntimeError, and only the runners import torch.
    told = "out of memory", "DefaultCPUAllocator: can't allocate", "DefaultCPUAllocator: not enough memory"
    return isinstance(error, MemoryError) or any(text in str(error) for text in told)
