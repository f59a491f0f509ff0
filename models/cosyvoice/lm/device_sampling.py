"""``sampling``'s choice as one function of tensors, for a device: no row, id or branch is looked at.

The rule is the same, and so are the random numbers: they are drawn on the host, a session's own, and come
with what it wants, two for each choice, of which the second is used where the first id was heard lately. So a
session says the same on every device, but for what is rounded otherwise on the way to a score. And a device
can go on by itself: ``after_choice`` a choice the session wants what it wanted before, with one id more heard.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .sampling import SamplingContext, SamplingParameters

NO_ID = -1  # pads a list of ids; chosen where no id may be


@dataclass(frozen=True, slots=True)
class SamplingInputs:
    """How each of B rows chooses.

    ``uniforms``: (B, 2 N) float64, in [0, 1), of which ``used`` are: (B, 1) int64. ``temperature``,
    ``top_p``: (B,) float32. ``top_k``: (B,) int64. ``heard``: (B, any) int64, the last ids, the latest at the
    right; ``counts``: (B, any) bool, those that repetition is judged by; ``enough``: (B, 1) float64, so often
    heard an id is drawn again. ``forbidden``: (B, any) int64, ids not to choose. Ids are padded with NONE.
    """

    uniforms: Tensor
    uniforms_used: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    recent_ids: Tensor
    in_window: Tensor
    repetition_limit: Tensor
    forbidden_ids: Tensor


def default_sampling_inputs(rows: int, draws_per_row: int, recent_ids: int, forbidden: int) -> SamplingInputs:
    """Rows that choose as the defaults have it, so often at most. heard, forbidden: room for so many ids."""
    defaults = SamplingParameters()
    return SamplingInputs(
        torch.zeros(rows, 2 * draws_per_row, dtype=torch.float64),
        torch.zeros(rows, 1, dtype=torch.int64),
        torch.full((rows,), defaults.temperature),
        torch.full((rows,), defaults.top_p),
        torch.full((rows,), defaults.top_k),
        torch.full((rows, recent_ids), NO_ID),
        torch.zeros(rows, recent_ids, dtype=torch.bool),
        torch.ones(rows, 1, dtype=torch.float64),
        torch.full((rows, forbidden), NO_ID),
    )


def write_sampling_inputs(
    inputs: SamplingInputs, row: int, chooser: SamplingContext, uniforms: Sequence[float]
) -> None:
    """Write a session's into a row, on the host; raises ValueError where its ids do not fit."""
    parameters = chooser.parameters
    inputs.uniforms.numpy()[row] = uniforms
    inputs.temperature.numpy()[row] = parameters.temperature
    inputs.top_p.numpy()[row] = parameters.top_p
    inputs.top_k.numpy()[row] = parameters.top_k
    window, buffer = parameters.repetition_window, inputs.recent_ids.shape[1]
    _write_ids(inputs.recent_ids, row, chooser.decoded[-window:] if window else ())
    inputs.in_window.numpy()[row] = np.arange(buffer) >= buffer - window
    inputs.repetition_limit.numpy()[row] = window * parameters.repetition_threshold
    _write_ids(inputs.forbidden_ids, row, chooser.forbidden)


def _write_ids(buffer: Tensor, row: int, ids: Sequence[int]) -> None:
    if len(ids) > buffer.shape[1]:
        raise ValueError(f"{len(ids)} ids are listed; there is room for {buffer.shape[1]}")
    row_ids, first = buffer.numpy()[row], buffer.shape[1] - len(ids)
    row_ids[:first], row_ids[first:] = NO_ID, ids


def choose_ids(logits: Tensor, inputs: SamplingInputs) -> Tensor:
    """One id for each row, and whether it was drawn again: (B, 2) int64. logits: (B, V), not normalised.

    The id is NONE where every one is forbidden, or the logits are no numbers.
    """
    scores = _mask_forbidden(logits.float() / inputs.temperature[:, None], inputs.forbidden_ids)
    sorted_probabilities, ids = torch.softmax(scores, 1).sort(dim=1, descending=True, stable=True)
    uniforms = inputs.uniforms.gather(1, inputs.uniforms_used + torch.arange(2, device=logits.device))
    place = _inverse_transform_sample(_keep_nucleus(sorted_probabilities, inputs), uniforms[:, :1])
    first = ids.gather(1, place)
    others = scores.scatter(1, first, -torch.inf)
    others = torch.where(others.amax(1, keepdim=True).isfinite(), others, scores)
    second = _inverse_transform_sample(torch.softmax(others, 1), uniforms[:, 1:])
    repetitions = ((inputs.recent_ids == first) & inputs.in_window).sum(1, keepdim=True)
    redrawn = (repetitions > 0) & (repetitions >= inputs.repetition_limit)
    chosen = torch.where(redrawn, second, first)
    possible = scores.amax(1, keepdim=True).isfinite()
    return torch.cat([torch.where(possible, chosen, NO_ID), redrawn], 1)


def after_choice(inputs: SamplingInputs, chosen: Tensor) -> SamplingInputs:
    """What rows want once they have heard what was ``chosen``: (B, 2), of ``choose_ids``."""
    recent_ids = torch.cat([inputs.recent_ids[:, 1:], chosen[:, :1]], 1)
    return replace(inputs, recent_ids=recent_ids, uniforms_used=inputs.uniforms_used + 1 + chosen[:, 1:])


def _mask_forbidden(scores: Tensor, forbidden: Tensor) -> Tensor:
    """The scores (B, V), minus infinity where forbidden."""
    size = scores.shape[1]
    places = torch.where(forbidden < 0, size, forbidden)  # padding: to a column that is cut off again
    return F.pad(scores, (0, 1)).scatter(1, places, -torch.inf)[:, :size]


def _keep_nucleus(sorted_probabilities: Tensor, inputs: SamplingInputs) -> Tensor:
    """Falling probabilities (B, V), 0 outside the nucleus."""
    before = F.pad(sorted_probabilities[:, :-1].cumsum(1), (1, 0))
    count = torch.arange(sorted_probabilities.shape[1], device=sorted_probabilities.device)
    inside = (before < inputs.top_p[:, None]) & (count < inputs.top_k[:, None])
    return torch.where(inside, sorted_probabilities, 0.0)


def _inverse_transform_sample(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """One draw a row by the inverse of the cumulated probabilities: (B, 1) places."""
    shares = probabilities.double()
    cumulated = (shares / shares.sum(1, keepdim=True)).cumsum(1)
    count = torch.arange(shares.shape[1], device=shares.device)
    # Rounding may leave the sum a hair under the number drawn.
    last = torch.where(shares > 0, count, 0).amax(1, keepdim=True)
    return torch.minimum((cumulated <= uniform).sum(1, keepdim=True), last)
