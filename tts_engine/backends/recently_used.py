"""A bounded table of values that are made when they are first needed."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """Keeps the ``max_count`` values that were used last. Changed by one thread."""

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._values: OrderedDict[Key, Value] = OrderedDict()

    @property
    def values(self) -> tuple[Value, ...]:
        """The values kept now, the one used last at the end. May be called from any thread."""
        return tuple(self._values.values())

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key; made if it is not kept."""
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > self._max_count:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]
