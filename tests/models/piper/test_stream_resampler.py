"""The resampler of a stream: its output has the whole length of the input."""

import math

import numpy as np
import pytest

from vivavoce.models.piper.stream_resampler import StreamResampler


@pytest.mark.parametrize("rates", [(22_050, 24_000), (24_000, 8_000), (16_000, 24_000)], ids=str)
def test_the_flush_returns_all_that_is_left(rates: tuple[int, int]) -> None:
    resampler = StreamResampler(*rates)
    pieces = [resampler.push(np.ones(count, np.float32)) for count in (1, 500, 37)] + [resampler.flush()]
    assert sum(map(len, pieces)) == math.ceil(538 * rates[1] / rates[0])
