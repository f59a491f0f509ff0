"""Normal numbers of ``vocoder.normal_noise`` in one launch: Philox4x64-10, then Box and Muller.

A program computes some counts, of four words each. Imported only where ``has_fused_kernels`` says so.
"""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

_COUNTS = 256  # of a program
_ROUNDS = 10


@triton.jit  # type: ignore[untyped-decorator]
def _multiply_word(word, FACTOR: tl.constexpr):  # type: ignore[no-untyped-def]
    """The high and the low word of a product of 64-bit words."""
    factor = tl.full(word.shape, FACTOR, tl.uint64)
    return tl.umulhi(word, factor), word * factor


@triton.jit
def _store_pair(noise, first, word, size):  # type: ignore[no-untyped-def]
    """Two numbers of a word: its high and its middle 24 bits are an amplitude and an angle."""
    uniform = ((word >> 40).to(tl.int32).to(tl.float32) + 1.0) * (1.0 / 16777216.0)
    angle = ((word >> 8) & 0xFFFFFF).to(tl.int32).to(tl.float32) * (6.283185307179586 / 16777216.0)
    radius = tl.sqrt(-2.0 * tl.log(uniform))
    tl.store(noise + first, radius * tl.cos(angle), mask=first < size)
    tl.store(noise + first + 1, radius * tl.sin(angle), mask=first + 1 < size)


@triton.jit(do_not_specialize=["size", "counter", "first_key", "second_key"])  # type: ignore[untyped-decorator]
def _normal_kernel(  # type: ignore[no-untyped-def]
    noise, size, counter, first_key, second_key, COUNTS: tl.constexpr, ROUNDS: tl.constexpr
):
    counts = tl.program_id(0) * COUNTS + tl.arange(0, COUNTS)
    a = counts.to(tl.uint64) + tl.cast(counter, tl.uint64) + 1
    b, c, d = tl.zeros_like(a), tl.zeros_like(a), tl.zeros_like(a)
    key = tl.zeros_like(a) + tl.cast(first_key, tl.uint64)
    other_key = tl.zeros_like(a) + tl.cast(second_key, tl.uint64)
    for _ in tl.static_range(ROUNDS):
        high, low = _multiply_word(a, 0xD2E7470EE14C6C93)
        other_high, other_low = _multiply_word(c, 0xCA5A826395121157)
        a, b, c, d = other_high ^ b ^ key, other_low, high ^ d ^ other_key, low
        key += tl.full(key.shape, 0x9E3779B97F4A7C15, tl.uint64)
        other_key += tl.full(key.shape, 0xBB67AE8584CAA73B, tl.uint64)
    first = 8 * counts
    _store_pair(noise, first, a, size)
    _store_pair(noise, first + 2, b, size)
    _store_pair(noise, first + 4, c, size)
    _store_pair(noise, first + 6, d, size)


def normal_numbers(noise: Tensor, counter: int, key: Sequence[int]) -> Tensor:
    """Fill a contiguous float32 tensor with the numbers after ``counter``. key: two words."""
    signed = (int.from_bytes(word.to_bytes(8, "little"), "little", signed=True) for word in (counter, *key))
    grid = (triton.cdiv(noise.numel(), 8 * _COUNTS),)
    _normal_kernel[grid](noise, noise.numel(), *signed, COUNTS=_COUNTS, ROUNDS=_ROUNDS)
    return noise
