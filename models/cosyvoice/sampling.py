"""Choose the next speech id: upstream's repetition-aware rule, for a batch of sessions at once.

A draw is made among the likeliest ids (top-k, top-p); one that was heard in the last few ids already is
thrown away and drawn again among all the others, so that speech does not hang. Each session has parameters
and a source of random numbers of its own: what one is given never depends on its company.

Not here: which ids may be chosen at all (``bistream.Ask.forbidden``), and the network.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/utils/common.py:138-167 (ras_sampling, from VALL-E 2,
arXiv:2406.05370). Upstream draws by argmax(p / Exp(1)) from one global generator; here a draw is one uniform
number through the cumulated probabilities, which is the same distribution.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
Integer = NDArray[np.int64]


class UniformSource(Protocol):
    """Random numbers of one session, e.g. a ``numpy.random.Generator``."""

    def random(self) -> float:
        """The next one, in [0, 1)."""


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How a session chooses; the defaults are upstream's.

    temperature: above 0; below 1 is steadier. top_p: in (0, 1], the id that crosses it still counts.
    top_k: at least 1. repetition_window: ids looked back on; 0 turns the rule off.
    repetition_threshold: share of the window at which an id is drawn again; 0.1 of 10 is any repetition.
    """

    temperature: float = 1.0
    top_p: float = 0.8
    top_k: int = 25
    repetition_window: int = 10
    repetition_threshold: float = 0.1

    def __post_init__(self) -> None:
        _require(self.temperature > 0, "temperature", self.temperature, "above 0")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= 1, "top_k", self.top_k, "at least 1")
        _require(self.repetition_window >= 0, "repetition_window", self.repetition_window, "at least 0")
        _require(self.repetition_threshold > 0, "repetition_threshold", self.repetition_threshold, "above 0")


@dataclass(frozen=True, slots=True)
class Draw:
    """One session's choice.

    candidates: ids that the first draw chose among. redrawn: it had been heard lately.
    """

    id: int
    candidates: int
    redrawn: bool


@dataclass(frozen=True, slots=True)
class Chooser:
    """What one session brings to a draw.

    decoded: its ids so far, oldest first. forbidden: ids not to choose.
    """

    decoded: Sequence[int]
    source: UniformSource
    forbidden: Sequence[int] = ()
    parameters: SamplingParameters = field(default_factory=SamplingParameters)


class Draws:
    """A session's random numbers in their order, of which the next can be looked at before they are used."""

    def __init__(self, source: UniformSource) -> None:
        self._source = source
        self._seen: deque[float] = deque()

    def random(self) -> float:
        """The next one, in [0, 1)."""
        return self._seen.popleft() if self._seen else self._source.random()

    def ahead(self, count: int) -> list[float]:
        """The next ones, still to be used."""
        while len(self._seen) < count:
            self._seen.append(self._source.random())
        return list(islice(self._seen, count))


def seeded(seed: int) -> Draws:
    """A session's random numbers; the same seed, the same speech. seed: at least 0."""
    return Draws(np.random.Generator(np.random.PCG64(seed)))


def draw(logits: Float, choosers: Sequence[Chooser]) -> list[Draw]:
    """One id for each row. logits: (B, V), not normalised; raises ValueError where every id is forbidden."""
    scores = np.stack([_allowed(row, chooser) for row, chooser in zip(logits, choosers, strict=True)])
    likely, probabilities = _nucleus(_softmax(scores), choosers)
    places = _inverted(probabilities, choosers)
    ids = likely[np.arange(len(places)), places]
    redrawn = _heard_lately(ids, choosers)
    if redrawn.any():
        ids[redrawn] = _drawn_elsewhere(scores[redrawn], ids[redrawn], _where(choosers, redrawn))
    candidates = np.count_nonzero(probabilities, axis=1)
    return [Draw(int(id), int(n), bool(r)) for id, n, r in zip(ids, candidates, redrawn, strict=True)]


def _allowed(logits: Float, chooser: Chooser) -> Float:
    # As upstream: log-probabilities first, then what is forbidden goes, then the rest is normalised again.
    scores = logits.astype(np.float32) / np.float32(chooser.parameters.temperature)
    scores[list(chooser.forbidden)] = -np.inf
    if not np.isfinite(scores.max()):
        raise ValueError("no id is left to choose from: all are forbidden, or the logits are no numbers")
    return scores


def _softmax(scores: Float) -> Float:
    powers: Float = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _nucleus(probabilities: Float, choosers: Sequence[Chooser]) -> tuple[Integer, Float]:
    """Ids by falling probability, the lower id first among equals, and their probabilities; 0 outside the
    nucleus.

    Both (B, K) with the largest K asked for. An id counts while those before it do not reach top_p.
    """
    most = np.array([[chooser.parameters.top_k] for chooser in choosers])
    share = np.array([[chooser.parameters.top_p] for chooser in choosers], np.float32)
    ids = _likeliest(probabilities, min(int(most.max()), probabilities.shape[1]))
    sorted_probabilities = np.take_along_axis(probabilities, ids, 1)
    before = np.zeros_like(sorted_probabilities)
    np.cumsum(sorted_probabilities[:, :-1], axis=1, out=before[:, 1:])
    inside = (before < share) & (np.arange(ids.shape[1]) < most)
    return ids, np.where(inside, sorted_probabilities, np.float32(0))


def _likeliest(probabilities: Float, count: int) -> Integer:
    """The first ``count`` ids of a stable descending sort, without sorting the thousands that follow."""
    size = probabilities.shape[1]
    least = np.partition(probabilities, size - count, axis=1)[:, size - count, None]
    contenders = probabilities >= least
    # Found in ascending order, so that a stable sort leaves ties as it would among all ids.
    rows, found = np.nonzero(contenders)
    counts = contenders.sum(axis=1)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    ids = np.zeros((len(probabilities), counts.max()), np.int64)
    values = np.full(ids.shape, -1, np.float32)
    ids[rows, places] = found
    values[rows, places] = probabilities[rows, found]
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(ids, order, 1)


def _inverted(probabilities: Float, choosers: Sequence[Chooser]) -> Integer:
    """One draw a row by the inverse of the cumulated probabilities; (B,) places."""
    shares = probabilities.astype(np.float64)
    cumulated = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    uniform = np.array([[chooser.source.random()] for chooser in choosers])
    places = (cumulated <= uniform).sum(axis=1)
    # Rounding may leave the sum a hair under the number drawn.
    last = probabilities.shape[1] - 1 - np.argmax(probabilities[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum(places, last))


def _heard_lately(ids: Integer, choosers: Sequence[Chooser]) -> NDArray[np.bool_]:
    return np.array(
        [id in repeated(each.decoded, each.parameters) for id, each in zip(ids, choosers, strict=True)]
    )


def repeated(decoded: Sequence[int], parameters: SamplingParameters) -> set[int]:
    """Ids that were heard so often lately that they are drawn again. decoded: all so far, oldest first."""
    if parameters.repetition_window == 0:
        return set()
    lately = decoded[-parameters.repetition_window :]
    enough = parameters.repetition_window * parameters.repetition_threshold
    return {id for id in lately if lately.count(id) >= enough}


def _drawn_elsewhere(scores: Float, ids: Integer, choosers: Sequence[Chooser]) -> Integer:
    """Draw among all ids but the one that was drawn first; where there is no other, it stays."""
    rows = np.arange(len(ids))
    others = scores.copy()
    others[rows, ids] = -np.inf
    only = ~np.isfinite(others.max(axis=1))
    others[only] = scores[only]
    return _inverted(_softmax(others), choosers)


def _where(choosers: Sequence[Chooser], chosen: NDArray[np.bool_]) -> list[Chooser]:
    return [chooser for chooser, wanted in zip(choosers, chosen, strict=True) if wanted]


def _require(holds: bool, name: str, got: float, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {got}; it must be {allowed}")
