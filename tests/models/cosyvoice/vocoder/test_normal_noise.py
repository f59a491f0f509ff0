"""The noise of version 2's vocoder: numbers of a counter, with the moments of a normal distribution."""

import numpy as np

from vivavoce.models.cosyvoice.vocoder.normal_noise import draw_normal, noise_generator


def test_numbers_are_those_of_their_counts_however_they_are_drawn() -> None:
    whole, parts = noise_generator(7), noise_generator(7)
    expected = draw_normal(whole, (24, 9))
    drawn = [draw_normal(parts, (rows, 9)) for rows in (8, 16)]
    assert np.array_equal(np.concatenate(drawn), expected)


def test_a_count_that_is_begun_is_not_drawn_from_again() -> None:
    whole, parts = noise_generator(7), noise_generator(7)
    expected = draw_normal(whole, (16,))
    assert np.array_equal(draw_normal(parts, (3,)), expected[:3])
    assert np.array_equal(draw_normal(parts, (8,)), expected[8:])


def test_a_generator_that_was_sent_away_goes_on_where_it_was() -> None:
    here, there = noise_generator(7), noise_generator(1)
    draw_normal(here, (480, 9))
    there.bit_generator.state = here.bit_generator.state
    assert np.array_equal(draw_normal(there, (480, 9)), draw_normal(here, (480, 9)))


def test_numbers_are_standard_normal_and_differ_by_seed() -> None:
    numbers = draw_normal(noise_generator(7), (400_000,)).astype(np.float64)
    moments = [float((numbers**power).mean()) for power in (1, 2, 3, 4)]
    assert np.allclose(moments, (0, 1, 0, 3), atol=0.03)
    assert abs(float((numbers[::2] * numbers[1::2]).mean())) < 0.01  # of a pair
    assert float(np.abs(numbers).max()) < 6
    assert not np.array_equal(draw_normal(noise_generator(8), (8,)), numbers[:8].astype(np.float32))
