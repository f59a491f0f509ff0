"""``sampling``'s choice as one function of tensors, for a device: no row, id or branch is looked at.

The rule is the same, and so are the random numbers: they are drawn on the host, a session's own, and two of
them come with each step, the second for where the first id was heard lately. So a session says the same on
every device, but for what is rounded otherwise on the way to a score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .sampling import Chooser, SamplingParameters, repeated

NONE = -1  # pads a list of ids; chosen where no id may be


@dataclass(frozen=True, slots=True)
class Wishes:
    """How each of B rows chooses.

    ``uniforms``: (B, 2) float64, in [0, 1). ``temperature``, ``top_p``: (B,) float32. ``top_k``: (B,) int64.
    ``repeated``, ``forbidden``: (B, any) int64, padded with NONE: ids to draw again, and not to choose.
    """

    uniforms: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    repeated: Tensor
    forbidden: Tensor


def no_wishes(rows: int, repeated: int, forbidden: int) -> Wishes:
    """Rows that choose as the defaults have it. repeated, forbidden: room for so many ids."""
    usual = SamplingParameters()
    return Wishes(
        torch.zeros(rows, 2, dtype=torch.float64),
        torch.full((rows,), usual.temperature),
        torch.full((rows,), usual.top_p),
        torch.full((rows,), usual.top_k),
        torch.full((rows, repeated), NONE),
        torch.full((rows, forbidden), NONE),
    )


def write_wishes(wishes: Wishes, row: int, chooser: Chooser, uniforms: Sequence[float]) -> None:
    """Write a session's into a row, on the host; raises ValueError where its ids do not fit."""
    parameters = chooser.parameters
    wishes.uniforms.numpy()[row] = uniforms
    wishes.temperature.numpy()[row] = parameters.temperature
    wishes.top_p.numpy()[row] = parameters.top_p
    wishes.top_k.numpy()[row] = parameters.top_k
    _write_ids(wishes.repeated, row, sorted(repeated(chooser.decoded, parameters)))
    _write_ids(wishes.forbidden, row, chooser.forbidden)


def _write_ids(room: Tensor, row: int, ids: Sequence[int]) -> None:
    if len(ids) > room.shape[1]:
        raise ValueError(f"{len(ids)} ids are listed; there is room for {room.shape[1]}")
    listed = room.numpy()[row]
    listed[: len(ids)] = ids
    listed[len(ids) :] = NONE


def choose_ids(logits: Tensor, wishes: Wishes) -> Tensor:
    """One id for each row, and whether it was drawn again: (B, 2) int64. logits: (B, V), not normalised.

    The id is NONE where every one is forbidden, or the logits are no numbers.
    """
    scores = _without(logits.float() / wishes.temperature[:, None], wishes.forbidden)
    likely, ids = torch.softmax(scores, 1).sort(dim=1, descending=True, stable=True)
    place = _inverted(_nucleus(likely, wishes), wishes.uniforms[:, :1])
    first = ids.gather(1, place)
    others = scores.scatter(1, first, -torch.inf)
    others = torch.where(others.amax(1, keepdim=True).isfinite(), others, scores)
    second = _inverted(torch.softmax(others, 1), wishes.uniforms[:, 1:])
    redrawn = (wishes.repeated == first).any(1, keepdim=True)
    chosen = torch.where(redrawn, second, first)
    possible = scores.amax(1, keepdim=True).isfinite()
    return torch.cat([torch.where(possible, chosen, NONE), redrawn], 1)


def _without(scores: Tensor, forbidden: Tensor) -> Tensor:
    """The scores (B, V), minus infinity where forbidden."""
    size = scores.shape[1]
    places = torch.where(forbidden < 0, size, forbidden)  # padding: to a column that is cut off again
    return F.pad(scores, (0, 1)).scatter(1, places, -torch.inf)[:, :size]


def _nucleus(likely: Tensor, wishes: Wishes) -> Tensor:
    """Falling probabilities (B, V), 0 outside the nucleus."""
    before = F.pad(likely[:, :-1].cumsum(1), (1, 0))
    count = torch.arange(likely.shape[1], device=likely.device)
    inside = (before < wishes.top_p[:, None]) & (count < wishes.top_k[:, None])
    return torch.where(inside, likely, 0.0)


def _inverted(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """One draw a row by the inverse of the cumulated probabilities: (B, 1) places."""
    shares = probabilities.double()
    cumulated = (shares / shares.sum(1, keepdim=True)).cumsum(1)
    count = torch.arange(shares.shape[1], device=shares.device)
    # Rounding may leave the sum a hair under the number drawn.
    last = torch.where(shares > 0, count, 0).amax(1, keepdim=True)
    return torch.minimum((cumulated <= uniform).sum(1, keepdim=True), last)
