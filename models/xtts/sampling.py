"""Samples the next speech id of XTTS, with the parameters and the random numbers of each session.

The order is that of upstream: repetition penalty, temperature, top-k, top-p, draw. Upstream fills the places
of voice and text in the ids that it penalizes with id 1, so speech id 1 and the start id are penalized from
the first step on; voices sound as they were tuned only with this quirk, so it is kept.

A draw is one uniform number through the cumulative probabilities in the order of ids.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/gpt.py (generate) and the logits processors of
transformers 4.57 that it calls; the penalty is that of CTRL (arXiv:1909.05858).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..checkpoint.settings_file import require
from ..decoding.uniforms import Float, UniformSource, draw_columns, softmax

PREFIX_ID = 1  # what upstream writes in the places of voice and text


@dataclass(frozen=True, slots=True)
class XttsSampling:
    """Sampling parameters of a session; the defaults are those of the released config.json.

    Upstream's length_penalty weighs beams, which a stream does not have, so there is none here.
    """

    temperature: float = 0.75  # above 0; below 1 the likeliest ids gain
    top_k: int = 50  # the likeliest ids, ties included; 0 keeps all
    top_p: float = 0.85  # in (0, 1]; the id that crosses it is kept
    repetition_penalty: float = 5.0  # above 0; 1 turns it off

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature", self.temperature, "above 0")
        require(self.top_k >= 0, "top_k", self.top_k, "at least 0")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        penalty = self.repetition_penalty
        require(penalty > 0, "repetition_penalty", penalty, "above 0")


@dataclass(frozen=True, slots=True)
class XttsSamplingInputs:
    """One session's inputs to a draw."""

    seen: Iterable[int]  # ids to penalize: PREFIX_ID, the start id and every decoded id
    source: UniformSource
    parameters: XttsSampling = XttsSampling()


def sample_speech_ids(logits: Float, inputs: Sequence[XttsSamplingInputs]) -> list[int]:
    """Sample one id for each row of logits (B, V) float32, which need not be normalised.

    Raises ValueError if the logits of a row are not numbers.
    """
    return [_sample(row, each) for row, each in zip(logits, inputs, strict=True)]


def likeliest_id(logits: Float, seen: Iterable[int], repetition_penalty: float) -> int:
    """The id with the highest score (V,) after the penalty: greedy decoding."""
    return int(penalize(logits, seen, repetition_penalty).argmax())


def penalize(logits: Float, seen: Iterable[int], penalty: float) -> Float:
    """Lower the scores (V,) of seen ids, each once: positive ones are divided, others multiplied."""
    scores = logits.astype(np.float32)
    ids = sorted(set(seen))
    scores[ids] = np.where(
        scores[ids] > 0, scores[ids] / np.float32(penalty), scores[ids] * np.float32(penalty)
    )
    return scores


def _sample(logits: Float, inputs: XttsSamplingInputs) -> int:
    parameters = inputs.parameters
    scores = penalize(logits, inputs.seen, parameters.repetition_penalty)
    scores = scores / np.float32(parameters.temperature)
    if not np.isfinite(scores.max()):
        raise ValueError("the logits are not numbers")
    if 0 < parameters.top_k < len(scores):
        kth = np.partition(scores, -parameters.top_k)[-parameters.top_k]
        scores[scores < kth] = -np.inf
    if parameters.top_p < 1:
        scores[_tail(scores, parameters.top_p)] = -np.inf
    return int(draw_columns(softmax(scores)[None], [inputs.source])[0])


def _tail(scores: Float, top_p: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Ids whose probabilities, added from the smallest, stay within 1 - top_p; never the likeliest id."""
    order = np.argsort(scores, kind="stable")
    cumulative = np.cumsum(softmax(scores[order]), dtype=np.float32)
    return order[:-1][cumulative[:-1] <= np.float32(1 - top_p)]
