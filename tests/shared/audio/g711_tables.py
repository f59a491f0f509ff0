"""G.711 from the tables of the Recommendation, for comparison with the codec in use.

Both laws are given by the widths of their quantizing intervals, from zero outwards. A value between two
decision values has the number of its interval; its output is the middle of the interval.

Source: ITU-T G.711 (11/1988), tables 1a, 1b (A-law, 13 bits) and 2a, 2b (µ-law, 14 bits).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class G711Law:
    """One of the two laws. decisions: (129,) decision values; outputs: (128,) quantized values."""

    decisions: NDArray[np.int64]
    outputs: NDArray[np.float64]
    positive_mask: int  # the character signal of interval n of a positive value is n XOR this
    negative_mask: int
    unused_bits: int  # of a 16-bit sample
    negative_offset: int  # how a sample of two's complement below zero becomes a magnitude

    def encode(self, pcm: bytes) -> bytes:
        """Encode s16le."""
        values = np.frombuffer(pcm, "<i2").astype(np.int64) >> self.unused_bits
        magnitudes = np.where(values < 0, -values - self.negative_offset, values)
        clipped = np.minimum(magnitudes, self.decisions[-1] - 1)
        intervals = np.searchsorted(self.decisions, clipped, side="right") - 1
        masks = np.where(values < 0, self.negative_mask, self.positive_mask)
        return bytes((intervals ^ masks).astype(np.uint8))

    def decode(self, payload: bytes) -> NDArray[np.float64]:
        """Decode to 16-bit values."""
        codes = np.frombuffer(payload, np.uint8).astype(np.int64)
        is_negative = (codes & 0x80) == (self.negative_mask & 0x80)
        intervals = codes ^ np.where(is_negative, self.negative_mask, self.positive_mask)
        values: NDArray[np.float64] = np.where(is_negative, -1.0, 1.0) * self.outputs[intervals]
        values *= 2**self.unused_bits
        return values


def _law(
    widths: list[int], unused_bits: int, masks: tuple[int, int], offset: int, zero: float | None
) -> G711Law:
    decisions = np.concatenate([[0], np.cumsum(widths)])
    outputs = (decisions[:-1] + decisions[1:]) / 2
    if zero is not None:
        outputs[0] = zero
    return G711Law(decisions, outputs, *masks, unused_bits, offset)


def _segments(first: list[int], width: int, segments: int) -> list[int]:
    return first + [width * 2**segment for segment in range(segments) for _ in range(16)]


A_LAW = _law(_segments([2] * 32, 4, 6), 3, (0xD5, 0x55), 1, None)
MU_LAW = _law(_segments([1] + [2] * 15, 4, 7), 2, (0xFF, 0x7F), 0, 0.0)
