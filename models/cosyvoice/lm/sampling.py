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
class SampledId:
    """One session's choice.

    candidates: ids that the first draw chose among. redrawn: it had been heard lately.
    """

    id: int
    candidates: int
    redrawn: bool


@dataclass(frozen=True, slots=True)
class SamplingContext:
    """What one session brings to a draw.

    decoded: its ids so far, oldest first. forbidden: ids not to choose.
    """

    decoded: Sequence[int]
    source: UniformSource
    forbidden: Sequence[int] = ()
    parameters: SamplingParameters = field(default_factory=SamplingParameters)


class PeekableUniforms:
    """A session's random numbers in their order, of which the next can be looked at before they are used."""

    def __init__(self, source: UniformSource) -> None:
        self._source = source
        self._peeked: deque[float] = deque()

    def random(self) -> float:
        """The next one, in [0, 1)."""
        return self._peeked.popleft() if self._peeked else self._source.random()

    def peek(self, count: int) -> list[float]:
        """The next ones, still to be used."""
        while len(self._peeked) < count:
            self._peeked.append(self._source.random())
        return list(islice(self._peeked, count))


def seeded_uniforms(seed: int) -> PeekableUniforms:
    """A session's random numbers; the same seed, the same speech. seed: at least 0."""
    return PeekableUniforms(np.random.Generator(np.random.PCG64(seed)))


def sample_ids(logits: Float, contexts: Sequence[SamplingContext]) -> list[SampledId]:
    """One id for each row. logits: (B, V), not normalised; raises ValueError where every id is forbidden."""
    scores = np.stack([_masked_scores(row, context) for row, context in zip(logits, contexts, strict=True)])
    top_ids, probabilities = _keep_nucleus(_softmax(scores), contexts)
    places = _inverse_transform_sample(probabilities, contexts)
    ids = top_ids[np.arange(len(places)), places]
    redrawn = _are_repeated(ids, contexts)
    if redrawn.any():
        ids[redrawn] = _redraw_without(scores[redrawn], ids[redrawn], _selected(contexts, redrawn))
    candidates = np.count_nonzero(probabilities, axis=1)
    return [SampledId(int(id), int(n), bool(r)) for id, n, r in zip(ids, candidates, redrawn, strict=True)]


def _masked_scores(logits: Float, context: SamplingContext) -> Float:
    # As upstream: log-probabilities first, then what is forbidden goes, then the rest is normalised again.
    scores = logits.astype(np.float32) / np.float32(context.parameters.temperature)
    scores[list(context.forbidden)] = -np.inf
    if not np.isfinite(scores.max()):
        raise ValueError("no id is left to choose from: all are forbidden, or the logits are no numbers")
    return scores


def _softmax(scores: Float) -> Float:
    powers: Float = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _keep_nucleus(probabilities: Float, contexts: Sequence[SamplingContext]) -> tuple[Integer, Float]:
    """Ids by falling probability, the lower id first among equals, and their probabilities; 0 outside the
    nucleus.

    Both (B, K) with the largest K asked for. An id counts while those before it do not reach top_p.
    """
    max_count = np.array([[context.parameters.top_k] for context in contexts])
    share = np.array([[context.parameters.top_p] for context in contexts], np.float32)
    ids = _top_ids(probabilities, min(int(max_count.max()), probabilities.shape[1]))
    sorted_probabilities = np.take_along_axis(probabilities, ids, 1)
    before = np.zeros_like(sorted_probabilities)
    np.cumsum(sorted_probabilities[:, :-1], axis=1, out=before[:, 1:])
    inside = (before < share) & (np.arange(ids.shape[1]) < max_count)
    return ids, np.where(inside, sorted_probabilities, np.float32(0))


def _top_ids(probabilities: Float, count: int) -> Integer:
    """The first ``count`` ids of a stable descending sort, without sorting the thousands that follow."""
    size = probabilities.shape[1]
    min_probability = np.partition(probabilities, size - count, axis=1)[:, size - count, None]
    contenders = probabilities >= min_probability
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


def _inverse_transform_sample(probabilities: Float, contexts: Sequence[SamplingContext]) -> Integer:
    """One draw a row by the inverse of the cumulated probabilities; (B,) places."""
    shares = probabilities.astype(np.float64)
    cumulated = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    uniform = np.array([[context.source.random()] for context in contexts])
    places = (cumulated <= uniform).sum(axis=1)
    # Rounding may leave the sum a hair under the number drawn.
    last = probabilities.shape[1] - 1 - np.argmax(probabilities[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum(places, last))


def _are_repeated(ids: Integer, contexts: Sequence[SamplingContext]) -> NDArray[np.bool_]:
    return np.array(
        [id in repeated_ids(each.decoded, each.parameters) for id, each in zip(ids, contexts, strict=True)]
    )


def repeated_ids(decoded: Sequence[int], parameters: SamplingParameters) -> set[int]:
    """Ids that were heard so often lately that they are drawn again. decoded: all so far, oldest first."""
    if parameters.repetition_window == 0:
        return set()
    recent_ids = decoded[-parameters.repetition_window :]
    repetition_limit = parameters.repetition_window * parameters.repetition_threshold
    return {id for id in recent_ids if recent_ids.count(id) >= repetition_limit}


def _redraw_without(scores: Float, ids: Integer, contexts: Sequence[SamplingContext]) -> Integer:
    """Draw among all ids but the one that was drawn first; where there is no other, it stays."""
    rows = np.arange(len(ids))
    others = scores.copy()
    others[rows, ids] = -np.inf
    only = ~np.isfinite(others.max(axis=1))
    others[only] = scores[only]
    return _inverse_transform_sample(_softmax(others), contexts)


def _selected(contexts: Sequence[SamplingContext], chosen: NDArray[np.bool_]) -> list[SamplingContext]:
    return [context for context, wanted in zip(contexts, chosen, strict=True) if wanted]


def _require(holds: bool, name: str, got: float, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {got}; it must be {allowed}")
