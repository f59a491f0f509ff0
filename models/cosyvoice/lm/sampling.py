"""Samples the next speech id by upstream's repetition-aware rule, for a batch of sessions.

An id is drawn among the likeliest (top-k, top-p). One that is frequent among the last ids is discarded and
drawn again among all others, which keeps speech from hanging on a sound. Each session has its own parameters
and random numbers, so its ids do not depend on the other rows of the batch.

Which ids are forbidden is decided by ``generation``.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/utils/common.py:138-167 (ras_sampling, from VALL-E 2,
arXiv:2406.05370). Upstream draws by argmax(p / Exp(1)) from one global generator; here a draw is one uniform
number through the cumulative probabilities, which has the same distribution.

``SilenceFilter`` shortens long silences of CosyVoice 3. Source: FunAudioLLM/CosyVoice@ace7c47 cli/model.py
(CosyVoice3Model.silent_tokens, llm_job).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...checkpoint.settings_file import require
from ...decoding.uniforms import Float, Integer, UniformSource, draw_columns, softmax


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Sampling parameters of a session; the defaults are upstream's."""

    temperature: float = 1.0  # above 0; below 1 the likeliest ids gain
    top_p: float = 0.8  # in (0, 1]; the id that crosses it belongs to the nucleus
    top_k: int = 25  # at least 1
    repetition_window: int = 10  # ids looked back on; 0 turns the rule off
    repetition_threshold: float = 0.1  # share of the window; 0.1 of 10 is any repetition

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature", self.temperature, "above 0")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        require(self.top_k >= 1, "top_k", self.top_k, "at least 1")
        require(self.repetition_window >= 0, "repetition_window", self.repetition_window, "at least 0")
        require(self.repetition_threshold > 0, "repetition_threshold", self.repetition_threshold, "above 0")


@dataclass(frozen=True, slots=True)
class SampledId:
    """The id sampled for one session."""

    id: int
    candidates: int  # size of the nucleus of the first draw
    redrawn: bool  # whether the first draw was a repetition


@dataclass(frozen=True, slots=True)
class SamplingContext:
    """One session's inputs to the rule."""

    decoded: Sequence[int]  # ids so far, oldest first
    source: UniformSource
    forbidden: Sequence[int] = ()
    parameters: SamplingParameters = field(default_factory=SamplingParameters)


def sample_ids(logits: Float, contexts: Sequence[SamplingContext]) -> list[SampledId]:
    """Sample one id for each row of logits (B, V), which need not be normalised.

    Raises ValueError if every id of a row is forbidden, or its logits are not numbers.
    """
    scores = np.stack([_masked_scores(row, context) for row, context in zip(logits, contexts, strict=True)])
    top_ids, probabilities = _keep_nucleus(softmax(scores), contexts)
    columns = draw_columns(probabilities, [each.source for each in contexts])
    ids = top_ids[np.arange(len(columns)), columns]
    redrawn = _are_repeated(ids, contexts)
    if redrawn.any():
        ids[redrawn] = _redraw_without(scores[redrawn], ids[redrawn], _selected(contexts, redrawn))
    candidates = np.count_nonzero(probabilities, axis=1)
    return [SampledId(int(id), int(n), bool(r)) for id, n, r in zip(ids, candidates, redrawn, strict=True)]


def _masked_scores(logits: Float, context: SamplingContext) -> Float:
    # As upstream: forbidden ids are removed after the first softmax, and the rest is normalised again.
    scores = logits.astype(np.float32) / np.float32(context.parameters.temperature)
    scores[list(context.forbidden)] = -np.inf
    if not np.isfinite(scores.max()):
        raise ValueError("no id is left to choose from: all are forbidden, or the logits are not numbers")
    return scores


def _keep_nucleus(probabilities: Float, contexts: Sequence[SamplingContext]) -> tuple[Integer, Float]:
    """Ids by falling probability, the lower id first among equals, and their probabilities.

    Both are (B, K), with the largest top_k of the batch. An id belongs to the nucleus while the ids before it
    do not reach top_p; outside the nucleus the probability is 0.
    """
    top_k = np.array([[context.parameters.top_k] for context in contexts])
    top_p = np.array([[context.parameters.top_p] for context in contexts], np.float32)
    ids = _top_ids(probabilities, min(int(top_k.max()), probabilities.shape[1]))
    sorted_probabilities = np.take_along_axis(probabilities, ids, 1)
    before = np.zeros_like(sorted_probabilities)
    np.cumsum(sorted_probabilities[:, :-1], axis=1, out=before[:, 1:])
    inside = (before < top_p) & (np.arange(ids.shape[1]) < top_k)
    return ids, np.where(inside, sorted_probabilities, np.float32(0))


def _top_ids(probabilities: Float, count: int) -> Integer:
    """The first ``count`` ids of a stable descending sort, without sorting the thousands after them."""
    size = probabilities.shape[1]
    min_probability = np.partition(probabilities, size - count, axis=1)[:, size - count, None]
    contenders = probabilities >= min_probability
    # In ascending order of ids, so that a stable sort leaves ties as it would among all ids.
    rows, found = np.nonzero(contenders)
    counts = contenders.sum(axis=1)
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    # (B, most contenders of a row), padded with probability -1
    ids = np.zeros((len(probabilities), counts.max()), np.int64)
    values = np.full(ids.shape, -1, np.float32)
    ids[rows, columns] = found
    values[rows, columns] = probabilities[rows, found]
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(ids, order, 1)


def _are_repeated(ids: Integer, contexts: Sequence[SamplingContext]) -> NDArray[np.bool_]:
    return np.array(
        [id in _repeated_ids(each.decoded, each.parameters) for id, each in zip(ids, contexts, strict=True)]
    )


def _repeated_ids(decoded: Sequence[int], parameters: SamplingParameters) -> set[int]:
    """Ids frequent enough in the window to be drawn again. ``decoded`` has all ids, oldest first."""
    if parameters.repetition_window == 0:
        return set()
    recent_ids = decoded[-parameters.repetition_window :]
    repetition_limit = parameters.repetition_window * parameters.repetition_threshold
    return {id for id in recent_ids if recent_ids.count(id) >= repetition_limit}


def _redraw_without(scores: Float, ids: Integer, contexts: Sequence[SamplingContext]) -> Integer:
    """Draw among all ids except the first draw; if there is no other, the first draw stays."""
    rows = np.arange(len(ids))
    others = scores.copy()
    others[rows, ids] = -np.inf
    only = ~np.isfinite(others.max(axis=1))
    others[only] = scores[only]
    return draw_columns(softmax(others), [each.source for each in contexts])


def _selected(contexts: Sequence[SamplingContext], chosen: NDArray[np.bool_]) -> list[SamplingContext]:
    return [context for context, wanted in zip(contexts, chosen, strict=True) if wanted]


SILENT_IDS = frozenset((1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323))
MAX_SILENT_RUN = 5  # ids, 0.2 s


class SilenceFilter:
    """Filters the speech ids of one session; keeps its position in a run between calls."""

    def __init__(self, silent: frozenset[int] = SILENT_IDS, max_run: int = MAX_SILENT_RUN) -> None:
        self._silent = silent
        self._max_run = max_run
        self._run = 0

    def push(self, ids: Iterable[int]) -> Iterator[int]:
        """Yield the ids to be spoken, in order."""
        for speech_id in ids:
            self._run = self._run + 1 if speech_id in self._silent else 0
            if self._run <= self._max_run:
                yield speech_id
