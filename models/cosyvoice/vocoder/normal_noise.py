"""The normal noise of version 2's vocoder, from a counter: a session hears the same on every executor.

Philox turns a key and a counter into four words of 64 bits. So a card computes the numbers of a chunk at
once, in any order, and numpy, which has the same generator, computes those numbers on a processor. Each word
gives two numbers (Box and Muller, 1958), which differ between executors by the rounding of logarithm and
cosine.

    counter      1               2               ...       numpy counts up before it draws
    words        0   1   2   3   4   5   6   7
    numbers      0 1 2 3 4 5 6 7 8 9 ...

Source: J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011), Philox4x64-10.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NUMBERS_PER_COUNT = 8


def noise_generator(seed: int) -> Generator:
    """The generator of a session's noise. Draw from it with this module only."""
    return Generator(Philox(SeedSequence([seed, 1])))


def draw_normal(generator: Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Standard normal numbers, float32. The generator goes on at the next count."""
    size = int(np.prod(shape))
    words = generator.bit_generator.random_raw(4 * -(-size // NUMBERS_PER_COUNT))
    high, low = (words >> np.uint64(40)), (words >> np.uint64(8)) & np.uint64(0xFFFFFF)
    first, second = (part.astype(np.float32) for part in (high, low))  # 24 bits, exact in float32
    radius = np.sqrt(np.float32(-2) * np.log((first + np.float32(1)) * np.float32(2**-24)))
    angle = second * np.float32(2 * np.pi * 2**-24)
    numbers: NDArray[np.float32] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return numbers.ravel()[:size].reshape(shape)


def draw_normal_on(device: "torch.device", generator: Generator, shape: tuple[int, ...]) -> "Tensor":
    """``draw_normal`` in the memory of a device; one kernel, without a copy, where there are kernels."""
    import torch

    from ...networks.kernel_support import has_fused_kernels

    if not has_fused_kernels(device):
        return torch.from_numpy(draw_normal(generator, shape)).to(device)
    from ..kernels.noise_kernel import normal_numbers

    state = generator.bit_generator.state["state"]
    noise = normal_numbers(
        torch.empty(shape, device=device), int(state["counter"][0]), [int(word) for word in state["key"]]
    )
    generator.bit_generator.advance(-(-noise.numel() // NUMBERS_PER_COUNT))  # type: ignore[attr-defined]
    return noise
