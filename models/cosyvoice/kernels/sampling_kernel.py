"""The sampling rule of ``lm.device_sampling`` in one launch, a program a row, and the next input's places.

    logits / temperature, forbidden ids out | softmax | the likeliest ids one by one, until they reach top_p
    a draw among these | a draw among all other ids, if the first is repeated | places of the next input

Imported only where ``has_fused_kernels`` says so.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...kernels.fused_kernels import await_inputs, launch_next, launch_options

_WARPS = 8


@triton.jit
def _softmax(scores):  # type: ignore[no-untyped-def]
    exponentials = tl.exp(scores - tl.max(scores, 0))
    return exponentials / tl.sum(exponentials, 0)


@triton.jit
def _draw(probabilities, columns, uniform):  # type: ignore[no-untyped-def]
    """The column of one draw by the inverse of the cumulative probabilities, which need not add up to 1."""
    shares = probabilities.to(tl.float64)
    cumulative = tl.cumsum(shares / tl.sum(shares, 0), 0)
    # Rounding can leave the total just below the number drawn.
    last = tl.max(tl.where(shares > 0, columns, 0), 0)
    return tl.minimum(tl.sum((cumulative <= uniform).to(tl.int32), 0), last)


@triton.jit  # type: ignore[untyped-decorator]
def _masked_scores(  # type: ignore[no-untyped-def]
    logits, temperature, forbidden, columns, VOCABULARY: tl.constexpr, FORBIDDEN: tl.constexpr
):
    """Logits of a row over the temperature, minus infinity where an id is forbidden or beyond the last."""
    scores = tl.load(logits + columns, mask=columns < VOCABULARY, other=float("-inf")).to(tl.float32)
    scores = scores / temperature
    for place in range(FORBIDDEN):
        scores = tl.where(columns == tl.load(forbidden + place), float("-inf"), scores)
    return scores


@triton.jit  # type: ignore[untyped-decorator]
def _list_nucleus(probabilities, columns, top_p, top_k, ids, values, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store the likeliest ids and their probabilities, the lower id first among equals; returns their number.

    An id belongs to the nucleus while the ids before it do not reach top_p.
    """
    count = 0
    before = 0.0
    while (before < top_p) & (count < top_k):
        largest = tl.max(probabilities, 0)
        likeliest = tl.min(tl.where(probabilities == largest, columns, PADDED - 1), 0)
        tl.store(ids + count, likeliest)
        tl.store(values + count, largest)
        probabilities = tl.where(columns == likeliest, -1.0, probabilities)
        before += largest
        count += 1
    tl.debug_barrier()  # all threads read what one has stored
    return count


@triton.jit  # type: ignore[untyped-decorator]
def _choose_kernel(  # type: ignore[no-untyped-def]
    logits, uniforms, uniforms_used, temperatures, top_ps, top_ks, recent_ids, in_window, limits, forbidden,
    positions, is_active, nucleus_ids, nucleus_values,
    answers, next_used, next_recent, next_indices, next_positions, next_writes,
    uniform_count, recent_count, capacity, first_index,
    VOCABULARY: tl.constexpr, PADDED: tl.constexpr, RECENT: tl.constexpr, FORBIDDEN: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    await_inputs(EARLY)
    row, columns = tl.program_id(0), tl.arange(0, PADDED)
    scores = _masked_scores(
        logits + row * VOCABULARY, tl.load(temperatures + row), forbidden + row * FORBIDDEN, columns,
        VOCABULARY, FORBIDDEN,
    )  # fmt: skip
    largest = tl.max(scores, 0)
    used = tl.load(uniforms_used + row)
    ids, values = nucleus_ids + row * VOCABULARY, nucleus_values + row * VOCABULARY
    top_k = tl.minimum(tl.load(top_ks + row), VOCABULARY)
    count = _list_nucleus(_softmax(scores), columns, tl.load(top_ps + row), top_k, ids, values, PADDED)
    nucleus = tl.load(values + columns, mask=columns < count, other=0.0)
    draw = _draw(nucleus, columns, tl.load(uniforms + row * uniform_count + used))
    chosen = tl.load(ids + draw)
    places = tl.arange(0, RECENT)
    is_place = places < recent_count
    recent = tl.load(recent_ids + row * recent_count + places, mask=is_place, other=-1)
    counts = tl.load(in_window + row * recent_count + places, mask=is_place, other=0)
    repetitions = tl.sum(((recent == chosen) & (counts != 0)).to(tl.int32), 0)
    redrawn = (repetitions > 0) & (repetitions.to(tl.float64) >= tl.load(limits + row))
    if redrawn:
        others = tl.where(columns == chosen, float("-inf"), scores)
        if tl.max(others, 0) > float("-inf"):
            uniform = tl.load(uniforms + row * uniform_count + used + 1)
            chosen = _draw(_softmax(others), columns, uniform).to(tl.int64)
    is_possible = (largest > float("-inf")) & (largest < float("inf"))
    chosen = tl.where(is_possible, chosen, -1)
    tl.store(answers + 2 * row, chosen)
    tl.store(answers + 2 * row + 1, redrawn.to(tl.int64))
    tl.store(next_used + row, used + 1 + redrawn.to(tl.int64))
    shifted = tl.load(recent_ids + row * recent_count + places + 1, mask=places + 1 < recent_count, other=0)
    shifted = tl.where(places == recent_count - 1, chosen, shifted)
    tl.store(next_recent + row * recent_count + places, shifted, mask=is_place)
    position = tl.load(positions + row) + 1
    tl.store(next_indices + row, first_index + tl.maximum(chosen, 0))
    tl.store(next_positions + row, position)
    write = tl.where(tl.load(is_active + row) != 0, tl.minimum(position, capacity), capacity)
    tl.store(next_writes + row, write)


def choose_and_place(
    logits: Tensor,
    sampling: tuple[Tensor, ...],
    positions: Tensor,
    is_active: Tensor,
    *,
    capacity: int,
    first_index: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sample an id for each row of logits (B, V) float32, as ``device_sampling.choose_ids`` does.

    sampling: the tensors of ``SamplingInputs``, in its order. positions: (B,) int64, of the inputs that gave
    the logits. is_active: (B,) bool. capacity: position that inputs of other rows are written to.
    first_index: index of the first speech id among all inputs. Returns answers (B, 2), used uniform numbers
    (B, 1), recent ids (B, R), and of the next input the index, position and where it is written (B, 1), all
    int64.
    """
    rows, vocabulary = logits.shape
    uniforms, used, temperature, top_p, top_k, recent, in_window, limit, forbidden = sampling
    answers, next_used = used.new_empty(rows, 2), torch.empty_like(used)
    indices, next_positions, writes = (positions.new_empty(rows, 1) for _ in range(3))
    next_recent = torch.empty_like(recent)
    _choose_kernel[(rows,)](
        logits.contiguous(), uniforms, used, temperature, top_p, top_k, recent, in_window, limit, forbidden,
        positions, is_active, recent.new_empty(rows, vocabulary), logits.new_empty(rows, vocabulary),
        answers, next_used, next_recent, indices, next_positions, writes,
        uniforms.shape[1], recent.shape[1], capacity, first_index,
        VOCABULARY=vocabulary, PADDED=triton.next_power_of_2(vocabulary),
        RECENT=triton.next_power_of_2(recent.shape[1]), FORBIDDEN=forbidden.shape[1],
        num_warps=_WARPS, **launch_options(logits.device),
    )  # fmt: skip
    return answers, next_used, next_recent, indices, next_positions, writes
