"""Draws with the random numbers of a session: the inverse of the cumulative probabilities."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.models.decoding.uniforms import draw_columns, seeded_uniforms, softmax

WEIGHTS = st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any)


class FixedUniform:
    """Always the same number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


@given(rows=st.lists(WEIGHTS, min_size=1, max_size=3), sixteenths=st.integers(0, 15))
def test_a_draw_is_the_column_at_that_share_of_the_sum(rows: list[list[int]], sixteenths: int) -> None:
    width = max(map(len, rows))
    probabilities = np.array([row + [0] * (width - len(row)) for row in rows], np.float32)
    drawn = draw_columns(probabilities, [FixedUniform(sixteenths / 16) for _ in rows])
    for row, column in zip(rows, drawn, strict=True):
        place = Fraction(sixteenths, 16) * sum(row)
        if any(place == sum(row[: index + 1]) for index in range(len(row))):
            continue  # on the border of two columns, rounding decides
        assert sum(row[:column]) <= place < sum(row[: column + 1])


def test_the_largest_number_draws_a_column_that_has_a_probability() -> None:
    below_one = FixedUniform(np.nextafter(1.0, 0.0))
    probabilities = np.array([[1 / 3, 1 / 3, 1 / 3, 0.0], [0.1, 0.0, 0.0, 0.0]], np.float32)
    assert draw_columns(probabilities, [below_one, below_one]).tolist() == [2, 0]


def test_scores_become_probabilities_of_each_row() -> None:
    scores = np.log(np.array([[1, 3], [2, 2]], np.float32)) + np.float32(50)
    assert np.allclose(softmax(scores), [[0.25, 0.75], [0.5, 0.5]], atol=1e-5)
    assert np.allclose(softmax(scores[0]), [0.25, 0.75], atol=1e-5)


def test_numbers_that_were_peeked_are_drawn_next_and_once() -> None:
    plain, source = seeded_uniforms(7), seeded_uniforms(7)
    expected = [plain.random() for _ in range(5)]
    assert source.peek(2) == source.peek(2) == expected[:2]
    assert [source.random() for _ in range(3)] == expected[:3]
    assert source.peek(2) == expected[3:]
