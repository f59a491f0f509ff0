"""The sampling rule of ``sampling`` as a function of tensors, for CUDA graphs: no branch depends on a value.

The random numbers are drawn on the host from each session's own source, two for each id; the second one is
used if the first draw is a repetition. A session therefore samples the same ids on every device, except where
logits differ by rounding. ``choose_and_place`` adds the inputs for the next id, so that a device can sample
several ids without the host; on a card it is one kernel.

Source: as ``sampling``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...networks.kernel_support import has_fused_kernels
from ...networks.state import tensors
from .sampling import SamplingContext, SamplingParameters

NO_ID = -1  # pads a list of ids; also the result if no id can be chosen


@dataclass(frozen=True, slots=True)
class SamplingInputs:
    """Inputs of the rule for B rows. Lists of ids are padded with NO_ID."""

    uniforms: Tensor  # (B, 2 N) float64 in [0, 1), for up to N ids
    uniforms_used: Tensor  # (B, 1) int64
    temperature: Tensor  # (B,) float32
    top_p: Tensor  # (B,) float32
    top_k: Tensor  # (B,) int64
    recent_ids: Tensor  # (B, R) int64, the latest at the right
    in_window: Tensor  # (B, R) bool, whether the repetition rule counts the id
    repetition_limit: Tensor  # (B, 1) float64, occurrences from which an id is drawn again
    forbidden_ids: Tensor  # (B, F) int64


def default_sampling_inputs(rows: int, draws_per_row: int, recent_ids: int, forbidden: int) -> SamplingInputs:
    """Inputs with default parameters, for ``draws_per_row`` ids and lists of the given lengths."""
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
    inputs: SamplingInputs, row: int, context: SamplingContext, uniforms: Sequence[float]
) -> None:
    """Write a session's values into a row of inputs on the host. Raises ValueError if its ids do not fit."""
    parameters = context.parameters
    inputs.uniforms.numpy()[row] = uniforms
    inputs.temperature.numpy()[row] = parameters.temperature
    inputs.top_p.numpy()[row] = parameters.top_p
    inputs.top_k.numpy()[row] = parameters.top_k
    window, width = parameters.repetition_window, inputs.recent_ids.shape[1]
    _write_ids(inputs.recent_ids, row, context.decoded[-window:] if window else ())
    inputs.in_window.numpy()[row] = np.arange(width) >= width - window
    inputs.repetition_limit.numpy()[row] = window * parameters.repetition_threshold
    _write_ids(inputs.forbidden_ids, row, context.forbidden)


def _write_ids(buffer: Tensor, row: int, ids: Sequence[int]) -> None:
    if len(ids) > buffer.shape[1]:
        raise ValueError(f"{len(ids)} ids are listed; there is room for {buffer.shape[1]}")
    row_ids, first = buffer.numpy()[row], buffer.shape[1] - len(ids)
    row_ids[:first], row_ids[first:] = NO_ID, ids


@dataclass(frozen=True, slots=True)
class ChosenIds:
    """Ids of B rows, and what the next step of the language model takes."""

    answers: Tensor  # (B, 2) int64, of ``choose_ids``
    sampling: SamplingInputs
    indices: Tensor  # (B, 1) int64, of the ids among all inputs
    positions: Tensor  # (B, 1) int64
    write_positions: Tensor  # (B, 1) int64


@dataclass(frozen=True, slots=True)
class InputPlaces:
    """Where the inputs of B rows are that gave the logits."""

    positions: Tensor  # (B,) int64
    is_active: Tensor  # (B,) bool; inputs of other rows are written to the position ``capacity``
    capacity: int  # positions of a row's memory
    first_index: int  # of the speech ids among all inputs


def choose_and_place(logits: Tensor, inputs: SamplingInputs, places: InputPlaces) -> ChosenIds:
    """``choose_ids`` and ``after_choice``, and the places of the ids as the next inputs."""
    if has_fused_kernels(logits.device):
        return _choose_in_one_kernel(logits, inputs, places)
    answers = choose_ids(logits, inputs)
    positions = places.positions + 1
    writes = torch.where(places.is_active, positions.clamp(max=places.capacity), places.capacity)
    return ChosenIds(
        answers,
        after_choice(inputs, answers),
        places.first_index + answers[:, :1].clamp(min=0),
        positions[:, None],
        writes[:, None],
    )


def _choose_in_one_kernel(logits: Tensor, inputs: SamplingInputs, places: InputPlaces) -> ChosenIds:
    from ..kernels import sampling_kernel

    answers, used, recent, indices, positions, writes = sampling_kernel.choose_and_place(
        logits,
        tuple(tensors(inputs)),
        places.positions,
        places.is_active,
        capacity=places.capacity,
        first_index=places.first_index,
    )
    following = replace(inputs, uniforms_used=used, recent_ids=recent)
    return ChosenIds(answers, following, indices, positions, writes)


def choose_ids(logits: Tensor, inputs: SamplingInputs) -> Tensor:
    """Sample an id for each row of logits (B, V): (B, 2) int64, the id and whether it was drawn twice.

    The id is NO_ID if every id is forbidden, or the logits are not numbers.
    """
    scores = _mask_forbidden(logits.float() / inputs.temperature[:, None], inputs.forbidden_ids)
    sorted_probabilities, ids = torch.softmax(scores, 1).sort(dim=1, descending=True, stable=True)
    uniforms = inputs.uniforms.gather(1, inputs.uniforms_used + torch.arange(2, device=logits.device))
    column = _inverse_transform_sample(_keep_nucleus(sorted_probabilities, inputs), uniforms[:, :1])
    first = ids.gather(1, column)  # (B, 1)
    others = scores.scatter(1, first, -torch.inf)
    others = torch.where(others.amax(1, keepdim=True).isfinite(), others, scores)
    second = _inverse_transform_sample(torch.softmax(others, 1), uniforms[:, 1:])
    repetitions = ((inputs.recent_ids == first) & inputs.in_window).sum(1, keepdim=True)
    redrawn = (repetitions > 0) & (repetitions >= inputs.repetition_limit)
    chosen = torch.where(redrawn, second, first)
    possible = scores.amax(1, keepdim=True).isfinite()
    return torch.cat([torch.where(possible, chosen, NO_ID), redrawn], 1)


def after_choice(inputs: SamplingInputs, chosen: Tensor) -> SamplingInputs:
    """The inputs for the next id, after ``choose_ids`` has returned ``chosen`` (B, 2)."""
    recent_ids = torch.cat([inputs.recent_ids[:, 1:], chosen[:, :1]], 1)
    return replace(inputs, recent_ids=recent_ids, uniforms_used=inputs.uniforms_used + 1 + chosen[:, 1:])


def _mask_forbidden(scores: Tensor, forbidden: Tensor) -> Tensor:
    """The scores (B, V), minus infinity where forbidden."""
    size = scores.shape[1]
    columns = torch.where(forbidden < 0, size, forbidden)  # padding goes to an extra column, cut off again
    return F.pad(scores, (0, 1)).scatter(1, columns, -torch.inf)[:, :size]


def _keep_nucleus(sorted_probabilities: Tensor, inputs: SamplingInputs) -> Tensor:
    """Probabilities (B, V) in falling order, set to 0 outside the nucleus."""
    before = F.pad(sorted_probabilities[:, :-1].cumsum(1), (1, 0))
    count = torch.arange(sorted_probabilities.shape[1], device=sorted_probabilities.device)
    inside = (before < inputs.top_p[:, None]) & (count < inputs.top_k[:, None])
    return torch.where(inside, sorted_probabilities, 0.0)


def _inverse_transform_sample(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """One draw a row by the inverse of the cumulative probabilities: (B, 1) columns."""
    shares = probabilities.double()
    cumulative = (shares / shares.sum(1, keepdim=True)).cumsum(1)
    count = torch.arange(shares.shape[1], device=shares.device)
    # Rounding can leave the total just below the number drawn.
    last = torch.where(shares > 0, count, 0).amax(1, keepdim=True)
    return torch.minimum((cumulative <= uniform).sum(1, keepdim=True), last)
