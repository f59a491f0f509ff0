"""The numbers that ``torch.rand`` and ``torch.randn`` draw after a seed, from numpy's same generator.

Both are the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), seeded alike. Uniform numbers are
equal; normal ones (Box and Muller, 1958) differ by the rounding of logarithm and cosine.
"""

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

Float = NDArray[np.float32]


def uniform_numbers(generator: RandomState, count: int) -> Float:
    """(count,) numbers in 0..1: the low 24 bits of each draw."""
    drawn = generator.randint(0, 2**32, count, dtype=np.uint32) & 0xFFFFFF
    return drawn.astype(np.float32) * np.float32(2**-24)


def normal_numbers(generator: RandomState, count: int) -> Float:
    """(count,) standard normal numbers, a multiple of 16: a pair of draws 8 apart gives a pair of numbers."""
    first, second = uniform_numbers(generator, count).reshape(-1, 2, 8).transpose(1, 0, 2)
    radius, angle = np.sqrt(-2 * np.log(1 - first)), np.float32(2 * np.pi) * second
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()
