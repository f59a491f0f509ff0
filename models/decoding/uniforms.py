"""Random numbers of a session, and draws with them. No torch.

A draw is one uniform number through the cumulative probabilities, so the ids of a session depend on its own
numbers only.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
Integer = NDArray[np.int64]


class UniformSource(Protocol):
    """Random numbers of one session, e.g. a ``numpy.random.Generator``."""

    def random(self) -> float:
        """Return the next number, in [0, 1)."""


class PeekableUniforms:
    """Random numbers of a session; the next ones can be read before they are consumed."""

    def __init__(self, source: UniformSource) -> None:
        self._source = source
        self._peeked: deque[float] = deque()

    def random(self) -> float:
        """Consume and return the next number, in [0, 1)."""
        return self._peeked.popleft() if self._peeked else self._source.random()

    def peek(self, count: int) -> list[float]:
        """Return the next numbers without consuming them."""
        while len(self._peeked) < count:
            self._peeked.append(self._source.random())
        return list(islice(self._peeked, count))


def seeded_uniforms(seed: int) -> PeekableUniforms:
    """Random numbers of a session from a seed of at least 0. The same seed gives the same speech."""
    return PeekableUniforms(np.random.Generator(np.random.PCG64(seed)))


def softmax(scores: Float) -> Float:
    """Probabilities of each row of scores (..., V)."""
    powers: Float = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def draw_columns(probabilities: Float, sources: Sequence[UniformSource]) -> Integer:
    """Draw a column of each row of probabilities (B, V), which need not sum to 1: (B,).

    Takes one number of each row's source. A column with the probability 0 is not drawn.
    """
    shares = probabilities.astype(np.float64)
    cumulative = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    uniform = np.array([[source.random()] for source in sources])
    columns = (cumulative <= uniform).sum(axis=1)
    # Rounding can leave the total just below the number drawn.
    last = probabilities.shape[1] - 1 - np.argmax(probabilities[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum(columns, last))
