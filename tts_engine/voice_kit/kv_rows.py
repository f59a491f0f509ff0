"""The rows of a language model's memory: one for each session that decodes.

A sentence begins with columns that are the same for all sentences of a voice or a prompt. They are computed
once, kept as a state of one row, and copied into the row of each new sentence:

    row    |<- prefix, copied ->| inputs of the sentence | decoded ids | unused ...

Used by one thread, but for ``clear_row``.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any


class KvRows:
    """The memory of all rows, as views that a step reads and writes.

    A state is the network's, on torch or numpy: a dataclass with ``kv`` (B, layers, 2, heads, positions,
    width), which a step writes in place, ``lengths`` (B,), the columns of each row, and ``clear_row``.

    Attributes:
        state: of all rows.
    """

    def __init__(self, state: Any) -> None:
        self.state = state
        self._prefixes: dict[int, Any] = {}  # by row, the state that the row begins with

    def span(self, rows: Collection[int]) -> Any:
        """A view of the rows from the first to the last of ``rows``, and of those in between."""
        first, stop = min(rows), max(rows) + 1
        state = self.state
        return replace(state, kv=state.kv[first:stop], lengths=state.lengths[first:stop])

    def commit(self, rows: Collection[int], after: Any) -> None:
        """Take the lengths of ``rows`` from the state after a step on their ``span``."""
        first = min(rows)
        # Only the rows of the step: a row in between may be cleared by another thread meanwhile.
        for row in rows:
            self.state.lengths[row] = after.lengths[row - first]

    def advance(self, rows: Collection[int]) -> None:
        """Count one more column in each of ``rows``."""
        for row in rows:
            self.state.lengths[row] += 1

    def begin(self, row: int, prefix: Any) -> int:
        """Begin a row with the columns of a prefix, a state of one row; returns how many.

        They are copied, unless the row's last sentence began with them too.
        """
        count = int(prefix.lengths[0])
        if self._prefixes.get(row) is not prefix:
            self.state.kv[row, :, :, :, :count] = prefix.kv[0, :, :, :, :count]
            self._prefixes[row] = prefix
        self.state.lengths[row] = count
        return count

    def clear_row(self, row: int) -> None:
        """Empty a row, so that attention is not computed over it."""
        self._prefixes.pop(row, None)
        self.state.clear_row(row)
