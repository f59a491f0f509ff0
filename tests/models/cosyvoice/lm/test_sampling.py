"""The sampling rule: nucleus, repetitions, forbidden ids, and independence of the other rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vivavoce.models.cosyvoice.lm.sampling import (
    SamplingContext,
    SamplingParameters,
    sample_ids,
)
from vivavoce.models.decoding.uniforms import seeded_uniforms


class FixedUniform:
    """Always the same number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


def logits(*probabilities: float) -> NDArray[np.float32]:
    return np.log(np.array([probabilities], np.float32))


SLOPE = logits(0.1, 0.4, 0.2, 0.3)
JUST_BELOW_ONE = FixedUniform(1 - 2**-53)


@pytest.mark.parametrize(("uniform", "expected"), [(0.0, 1), (0.43, 1), (0.45, 3), (0.77, 3), (0.78, 2)])
def test_a_draw_is_made_among_the_likeliest_ids(uniform: float, expected: int) -> None:
    # 0.4 + 0.3 + 0.2: the id that crosses top_p = 0.8 belongs to the nucleus.
    (drawn,) = sample_ids(SLOPE, [SamplingContext([], FixedUniform(uniform))])
    assert (drawn.id, drawn.candidates, drawn.redrawn) == (expected, 3, False)


def test_the_nucleus_ends_where_top_p_is_reached_exactly() -> None:
    halves = logits(0.5, 0.25, 0.125, 0.125)
    (drawn,) = sample_ids(
        halves, [SamplingContext([], JUST_BELOW_ONE, parameters=SamplingParameters(top_p=0.75))]
    )
    assert (drawn.id, drawn.candidates) == (1, 2)


def test_top_k_bounds_the_candidates() -> None:
    (drawn,) = sample_ids(
        SLOPE, [SamplingContext([], JUST_BELOW_ONE, parameters=SamplingParameters(top_k=2))]
    )
    assert (drawn.id, drawn.candidates) == (3, 2)


def test_equal_scores_are_ordered_by_id() -> None:
    even = logits(*[0.01] * 100)
    (first,) = sample_ids(even, [SamplingContext([], FixedUniform(0.0))])
    (last,) = sample_ids(even, [SamplingContext([], JUST_BELOW_ONE)])
    assert (first.id, last.id, last.candidates) == (0, 24, 25)


def test_a_low_temperature_prefers_the_likeliest() -> None:
    cold = SamplingParameters(temperature=0.05, top_p=1.0)
    (drawn,) = sample_ids(SLOPE, [SamplingContext([], FixedUniform(0.99), parameters=cold)])
    assert drawn.id == 1


def test_a_repetition_in_the_window_is_redrawn_among_all_other_ids() -> None:
    (drawn,) = sample_ids(SLOPE, [SamplingContext([1], FixedUniform(0.0))])
    assert (drawn.id, drawn.redrawn) == (0, True)


def test_a_repetition_before_the_window_is_not_redrawn() -> None:
    (drawn,) = sample_ids(SLOPE, [SamplingContext([1] + [0] * 10, FixedUniform(0.0))])
    assert (drawn.id, drawn.redrawn) == (1, False)


def test_a_higher_threshold_allows_repetitions() -> None:
    twice = SamplingParameters(repetition_threshold=0.3)
    (drawn,) = sample_ids(SLOPE, [SamplingContext([1, 1], FixedUniform(0.0), parameters=twice)])
    assert not drawn.redrawn
    (drawn,) = sample_ids(SLOPE, [SamplingContext([1, 1, 1], FixedUniform(0.0), parameters=twice)])
    assert drawn.redrawn


def test_without_a_window_nothing_is_redrawn() -> None:
    (drawn,) = sample_ids(
        SLOPE, [SamplingContext([1], FixedUniform(0.0), parameters=SamplingParameters(repetition_window=0))]
    )
    assert not drawn.redrawn


def test_the_only_id_left_may_be_repeated() -> None:
    (drawn,) = sample_ids(SLOPE, [SamplingContext([1], FixedUniform(0.0), forbidden=(0, 2, 3))])
    assert drawn.id == 1


def test_a_row_without_an_allowed_id_is_an_error() -> None:
    with pytest.raises(ValueError, match="no id is left"):
        sample_ids(SLOPE, [SamplingContext([], FixedUniform(0.0), forbidden=range(4))])
    with pytest.raises(ValueError, match="no id is left"):
        sample_ids(np.full((1, 4), np.nan, np.float32), [SamplingContext([], FixedUniform(0.0))])


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_a_row_alone_draws_what_it_draws_among_others(seed: int, rows: int) -> None:
    scores = np.random.default_rng(seed).standard_normal((rows, 200)).astype(np.float32) * 3
    scores[:, ::7] = scores[:, :1]  # ties
    kinds = [SamplingParameters(top_k=1 + 9 * row, temperature=0.5 + row / 4) for row in range(rows)]

    def context(row: int) -> SamplingContext:
        return SamplingContext([3, 5, row], seeded_uniforms(row), (row,), kinds[row])

    together = sample_ids(scores, [context(row) for row in range(rows)])
    alone = [sample_ids(scores[row : row + 1], [context(row)])[0] for row in range(rows)]
    assert together == alone
    assert all(drawn.id != row for row, drawn in enumerate(together))


def test_draws_follow_the_probabilities() -> None:
    source = seeded_uniforms(1)
    everything = SamplingParameters(top_p=1.0, repetition_window=0)
    context = SamplingContext([], source, parameters=everything)
    ids = [sample_ids(SLOPE, [context])[0].id for _ in range(4000)]
    assert np.bincount(ids) / 4000 == pytest.approx([0.1, 0.4, 0.2, 0.3], abs=0.03)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.0),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", 0),
        ("repetition_window", -1),
        ("repetition_threshold", 0.0),
    ],
)
def test_a_parameter_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        SamplingParameters(**{name: value})  # type: ignore[arg-type]
