"""Keeps the failure of one session from ending the other sessions of its step. No tensors.

A step alternates between work on one session (``run_each``) and device calls that several sessions share
(``run_batch``). The error of a shared call does not name the session at fault, so the call is repeated:

    rows 0 1 2 3   any error        rows 0, 1, 2 and 3 run alone; a row that fails alone is out
    rows 0 1 2 3   out of memory    row 3, the newest, is out and its memory is freed; 0 1 2 run together

The newest session is dropped first because ending a call in progress costs more than ending one that has just
begun.
"""

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

logger = logging.getLogger(__name__)

RowInput = TypeVar("RowInput")
RowResult = TypeVar("RowResult")


class FaultIsolation:
    """The failures of one step. Rows that have failed take no part in what follows.

    opened_order: a number for each row that is higher the later its session was opened. free_memory: frees
    the device memory of a row that is out because memory ran out.

    Attributes:
        failed: the error that ended a session, by row.
        out_of_memory: whether memory ran out in this step.
        device_is_lost: whether the device failed in this step, after which every call to it fails.
    """

    def __init__(self, opened_order: Mapping[int, int], free_memory: Callable[[int], None]) -> None:
        self._opened_order, self._free_memory = opened_order, free_memory
        self.failed: dict[int, Exception] = {}
        self.out_of_memory = self.device_is_lost = False

    def run_each(
        self, inputs: Mapping[int, RowInput], work: Callable[[int, RowInput], RowResult]
    ) -> dict[int, RowResult]:
        """Do the work of one session after the other; the results of the rows that succeeded.

        ``work`` is called once for each row, so it may change the session. Boundary: an exception ends its
        row only.
        """
        results: dict[int, RowResult] = {}
        for row, row_input in self._without_failed(inputs).items():
            try:
                results[row] = work(row, row_input)
            except Exception as error:
                self._fail(row, _logged(error, rows=1))
        return results

    def run_batch(
        self,
        inputs: Mapping[int, RowInput],
        call: Callable[[Mapping[int, RowInput]], Mapping[int, RowResult]],
    ) -> dict[int, RowResult]:
        """Make one call for all rows, and repeat it for fewer if it fails; the results of those that
        succeeded.

        ``call`` must leave every session as it was when it raises. Boundary: see the module's docstring.
        """
        inputs = self._without_failed(inputs)
        if not inputs:
            return {}
        try:
            return dict(call(inputs))
        except Exception as raised:
            error = _logged(raised, rows=len(inputs))
        if len(inputs) == 1 or is_out_of_memory(error):
            self._fail(max(inputs, key=self._opened_order.__getitem__), error)
            return self.run_batch(inputs, call)
        results: dict[int, RowResult] = {}
        for row, row_input in inputs.items():
            results |= self.run_batch({row: row_input}, call)
        return results

    def run_batches(
        self,
        inputs: Mapping[int, RowInput],
        batch_key: Callable[[RowInput], Hashable],
        call: Callable[[Mapping[int, RowInput]], Mapping[int, RowResult]],
    ) -> dict[int, RowResult]:
        """``run_batch`` for each group of rows with an equal key."""
        batches: dict[Hashable, dict[int, RowInput]] = {}
        for row, key in self.run_each(inputs, lambda row, row_input: batch_key(row_input)).items():
            batches.setdefault(key, {})[row] = inputs[row]
        results: dict[int, RowResult] = {}
        for batch in batches.values():
            results |= self.run_batch(batch, call)
        return results

    def _without_failed(self, inputs: Mapping[int, RowInput]) -> dict[int, RowInput]:
        return {row: row_input for row, row_input in inputs.items() if row not in self.failed}

    def _fail(self, row: int, error: Exception) -> None:
        self.failed[row] = error
        self.device_is_lost |= is_device_lost(error)
        if is_out_of_memory(error):
            self.out_of_memory = True
            self._free_memory(row)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device or the machine had no room for a tensor."""
    # By the message: on a CPU torch raises a plain RuntimeError, and only the runners import torch.
    messages = (
        "out of memory",
        "STATUS_ALLOC_FAILED",  # of CUDA's libraries
        "Failed to allocate memory",  # ONNX Runtime
        "DefaultCPUAllocator: can't allocate",
        "DefaultCPUAllocator: not enough memory",
    )
    return isinstance(error, MemoryError) or any(text in str(error) for text in messages)


def is_device_lost(error: Exception) -> bool:
    """Whether a graphics card failed: CUDA answers every later call of the process with the same error."""
    messages = (
        "CUDA error",
        "CUDA driver error",
        "CUDA failure",  # ONNX Runtime
        "Triton Error [CUDA]",
        "CUDNN_STATUS_EXECUTION_FAILED",
        "CUFFT_EXEC_FAILED",
    )
    return not is_out_of_memory(error) and any(text in str(error) for text in messages)


def _logged(error: Exception, *, rows: int) -> Exception:
    logger.info("a call for %d sessions of a step failed", rows, exc_info=error)
    # The error outlives the step, and the frames of its traceback would keep tensors of other sessions alive.
    error.__traceback__ = None
    return error
