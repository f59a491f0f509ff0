"""Triton's interpreter without work that it repeats: half of its time. Needs TRITON_INTERPRET=1.

A kernel's launch replaces the functions of ``triton.language``. The interpreter does so again in each call
of a function by a kernel, for the sake of Triton's own functions, which use ``triton.language.core``; here
that is replaced once. For each sum of integers it interprets seven operations that look for an overflow.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from triton.language import semantic, standard
from triton.runtime import interpreter

# Sizes of ``decoder_layers`` that leave small networks several programs in each phase, and not hundreds.
DECODER_TILES: Mapping[str, Any] = {
    "SLOTS": 16,
    "_DEPTH": 64,
    "_CHANNEL_PAIRS": 8,
    "_OUTPUTS": 32,
    "_INNER_PAIRS": {1: 16, 2: 16, 4: 16},
}


def speed_up_interpreter() -> None:
    """For the rest of the process."""
    interpreter._patch_lang(standard.zeros.fn)
    interpreter.InterpretedFunction.__call__ = _call
    semantic.TritonSemantic.binary_op_sanitize_overflow_impl = _assert_no_overflow


def _call(function: Any, *arguments: Any, **options: Any) -> Any:
    return function.rewrite()(*arguments, **options)


def _assert_no_overflow(_: object, left: Any, right: Any, operation: Any) -> None:
    kind = left.type.scalar
    if kind.int_bitwidth >= 64:
        return
    compute = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operation.__name__]
    result = compute(left.handle.data, right.handle.data, dtype=np.int64)
    assert result.min() >= kind.get_int_min_value() and result.max() <= kind.get_int_max_value(), operation
