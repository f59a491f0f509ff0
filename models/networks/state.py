"""Memory of sessions as values: functions on trees of batch-first tensors.

A state is a frozen dataclass whose fields are tensors with the batch row first, tuples of such tensors, or
further states. A step takes a state and returns the next one. It may write into the tensors it was given, so
that a state must not be used again after its step:

    y, state = network.step(x, state)
    rows = gather(states, [2, 0])         # copies of rows
    batch = join_states([a, b, c])        # sessions as rows of one state

Source: silero-vad's graphs (state in, state out) and nano-vllm's separation of host bookkeeping from device
memory; CosyVoice@ace7c47 cli/model.py keeps dictionaries on a shared model instead.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor

from ..devices.torch_devices import to_device

State = TypeVar("State")


def map_state(change: Callable[..., Tensor], *states: State) -> State:
    """The tree of ``change(tensor)``, or of ``change(*tensors)`` for equal places in several trees."""
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
    raise TypeError(f"a state consists of tensors, tuples and dataclasses, not {type(first).__name__}")


def tensors(state: object) -> Iterator[Tensor]:
    """All tensors of the tree, in field order: the order of a graph's inputs and outputs."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors(part)
    elif is_dataclass(state):
        for field in fields(state):
            yield from tensors(getattr(state, field.name))
    else:
        raise TypeError(f"a state consists of tensors, tuples and dataclasses, not {type(state).__name__}")


def gather(pool: State, rows: Sequence[int]) -> State:
    """A copy of some rows, in the given order; a row may occur twice."""
    index = torch.tensor(rows)
    return map_state(lambda tensor: tensor.index_select(0, to_device(index, tensor.device)), pool)


def join_states(states: Sequence[State]) -> State:
    """One state with the rows of all states, in order. Shapes must agree except for the row count."""
    return map_state(lambda *parts: torch.cat(parts), *states)
