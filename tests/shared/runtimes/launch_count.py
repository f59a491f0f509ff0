"""Counts what steps launch on a card, without one. Needs torch, and Triton imported with TRITON_INTERPRET.

Every operation of torch that computes counts as one launch, and so does every kernel in Triton, which is not
executed.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction

_FREE = ("empty", "detach", "alias", "_unsafe_view", "_local_scalar_dense", "_to_copy")


class LaunchCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations of torch that launch a kernel on a card: not views, nor allocations."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        self.count += not (function.is_view or any(word in name for word in _FREE))
        return function(*args, **(kwargs or {}))


@contextmanager
def counted_launches() -> Iterator[LaunchCount]:
    """Count the launches of a block; kernels in Triton compute nothing."""

    def launch(kernel: object, *arguments: object, **options: object) -> None:
        launched.count += 1

    with ExitStack() as stack:
        stack.enter_context(patch.object(InterpretedFunction, "run", launch))
        launched = stack.enter_context(LaunchCount())  # type: ignore[no-untyped-call]
        yield launched


def launches(step: Callable[[], object]) -> int:
    """Launches of a step after the first, which makes what is made once."""
    for _ in range(2):
        with counted_launches() as launched:
            step()
    return launched.count
