"""``sampling``'s choice as one function of tensors, for a device: no row, id or branch is looked at.

The rule is the same, and so are the random numbers: they are drawn on the host, a session's own, and come
with what it wants, two for each choice, of which the second is used where the first id was heard lately. So a
session says the same on every device, but for what is rounded otherwise on the way to a score. And a device
can go on by itself: ``after`` a choice the session wants what it wanted before, with one id more heard.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .sampling import Chooser, SamplingParameters

NONE = -1  # pads a list of ids; chosen where no id may be


@dataclass(frozen=True, slots=True)
class Wishes:
    """How each of B rows chooses.

    ``uniforms``: (B, 2 N) float64, in [0, 1), of which ``used`` are: (B, 1) int64. ``temperature``,
    ``top_p``: (B,) float32. ``top_k``: (B,) int64. ``heard``: (B, any) int64, the last ids, the latest at the
    right; ``counts``: (B, any) bool, those that repetition is judged by; ``enough``: (B, 1) float64, so often
    heard an id is drawn again. ``forbidden``: (B, any) int64, ids not to choose. Ids are padded with NONE.
    """

    uniforms: Tensor
    used: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    heard: Tensor
    counts: Tensor
    enough: Tensor
    forbidden: Tensor


def no_wishes(rows: int, choices: int, heard: int, forbidden: int) -> Wishes:
    """Rows that choose as the defaults have it, so often at most. heard, forbidden: room for so many ids."""
    usual = SamplingParameters()
    return Wishes(
        torch.zeros(rows, 2 * choices, dtype=torch.float64),
        torch.zeros(rows, 1, dtype=torch.int64),
        torch.full((rows,), usual.temperature),
        torch.full((rows,), usual.top_p),
        torch.full((rows,), usual.top_k),
        torch.full((rows, heard), NONE),
        torch.zeros(rows, heard, dtype=torch.bool),
        torch.ones(rows, 1, dtype=torch.float64),
        torch.full((rows, forbidden), NONE),
    )


def write_wishes(wishes: Wishes, row: int, chooser: Chooser, uniforms: Sequence[float]) -> None:
    """Write a session's into a row, on the host; raises ValueError where its ids do not fit."""
    parameters = chooser.parameters
    wishes.uniforms.numpy()[row] = uniforms
    wishes.temperature.numpy()[row] = parameters.temperature
    wishes.top_p.numpy()[row] = parameters.top_p
    wishes.top_k.numpy()[row] = parameters.top_k
    window, room = parameters.repetition_window, wishes.heard.shape[1]
    _write_ids(wishes.heard, row, chooser.decoded[-window:] if window else ())
    wishes.counts.numpy()[row] = np.arange(room) >= room - window
    wishes.enough.numpy()[row] = window * parameters.repetition_threshold
    _write_ids(wishes.forbidden, row, chooser.forbidden)


def _write_ids(room: Tensor, row: int, ids: Sequence[int]) -> None:
    if len(ids) > room.shape[1]:
        raise ValueError(f"{len(ids)} ids are listed; there is room for {room.shape[1]}")
    listed, first = room.numpy()[row], room.shape[1] - len(ids)
    listed[:first], listed[first:] = NONE, ids


def choose_ids(logits: Tensor, wishes: Wishes) -> Tensor:
    """One id for each row, and whether it was drawn again: (B, 2) int64. logits: (B, V), not normalised.

    The id is NONE where every one is forbidden, or the logits are no numbers.
    """
    scores = _without(logits.float() / wishes.temperature[:, None], wishes.forbidden)
    likely, ids = torch.softmax(scores, 1).sort(dim=1, descending=True, stable=True)
    uniforms = wishes.uniforms.gather(1, wishes.used + torch.arange(2, device=logits.device))
    place = _inverted(_nucleus(likely, wishes), uniforms[:, :1])
    first = ids.gather(1, place)
    others = scores.scatter(1, first, -torch.inf)
    others = torch.where(others.amax(1, keepdim=True).isfinite(), others, scores)
    second = _inverted(torch.softmax(others, 1), uniforms[:, 1:])
    times = ((wishes.heard == first) & wishes.counts).sum(1, keepdim=True)
    redrawn = (times > 0) & (times >= wishes.enough)
    chosen = torch.where(redrawn, second, first)
    possible = scores.amax(1, keepdim=True).isfinite()
    return torch.cat([torch.where(possible, chosen, NONE), redrawn], 1)


def after(wishes: Wishes, chosen: Tensor) -> Wishes:
    """What rows want once they have heard what was ``chosen``: (B, 2), of ``choose_ids``."""
    heard = torch.cat([wishes.heard[:, 1:], chosen[:, :1]], 1)
    return replace(wishes, heard=heard, used=wishes.used + 1 + chosen[:, 1:])


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
