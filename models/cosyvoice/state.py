"""Session memory as values: functions over trees of batch-first tensors. No policy, no arithmetic.

A state is a frozen dataclass whose fields are tensors with the batch row first, tuples of such tensors, or
further states. A pool is the same tree with one row a slot; a step runs on the rows that it was given:

    rows = gather(pool, slots)        # copies
    y, rows = network.step(x, rows)   # may write into the memory of ``rows``: a state is used up by its step
    scatter(pool, slots, rows)

Source: the shape follows silero-vad's state-in, state-out graphs and nano-vllm's split of host bookkeeping
from device memory; CosyVoice@ace7c47 cli/model.py shows the opposite, dictionaries on a shared model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor

from .devices import to_device

State = TypeVar("State")


def map_state(change: Callable[..., Tensor], *states: State) -> State:
    """A tree of what ``change`` makes of each tensor, or of those at the same place in several trees."""
    first = states[0]
    if isinstance(first, Tensor):
        return cast(State, change(*states))
    if isinstance(first, tuple):
        return cast(State, tuple(map_state(change, *parts) for parts in zip(*states, strict=True)))
    if is_dataclass(first):
        names = [field.name for field in fields(first)]
        parts = ([getattr(state, name) for state in states] for name in names)
        build = cast(Callable[..., State], type(first))
        return build(*(map_state(change, *same) for same in parts))
    raise TypeError(f"a state holds tensors, tuples and dataclasses, not {type(first).__name__}")


def tensors(state: object) -> Iterator[Tensor]:
    """Every tensor of the tree, in field order: the order of a graph's inputs and outputs."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors(part)
    elif is_dataclass(state):
        for field in fields(state):
            yield from tensors(getattr(state, field.name))
    else:
        raise TypeError(f"a state holds tensors, tuples and dataclasses, not {type(state).__name__}")


def gather(pool: State, rows: Sequence[int]) -> State:
    """A copy of some rows, in the order asked for; a row may be asked for twice."""
    index = torch.tensor(rows)
    return map_state(lambda tensor: tensor.index_select(0, to_device(index, tensor.device)), pool)


@torch.inference_mode()
def scatter(pool: State, rows: Sequence[int], state: State) -> None:
    """Write a state's rows over some rows of the pool, in place; shapes agree but for the row count."""
    index = torch.tensor(rows)
    for target, source in zip(tensors(pool), tensors(state), strict=True):
        target[to_device(index, target.device)] = source


def join_states(states: Sequence[State]) -> State:
    """One state of all rows, in order. Shapes apart from the row count must agree."""
    return map_state(lambda *parts: torch.cat(parts), *states)


def size_bytes(state: object) -> int:
    """Memory of all tensors, as allocated."""
    return sum(tensor.nbytes for tensor in tensors(state))
