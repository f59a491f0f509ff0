"""Streaming resamplers of speech from 24 kHz s16le to other rates, in pushes of any size.

``Downsampler`` and ``WidebandDownsampler`` produce 8 and 16 kHz for telephones with 2 ms of delay, where
general resamplers withhold 20 to 155 ms in blocks. ``PassthroughResampler`` keeps 24 kHz. ``BlockResampler``
wraps soxr for rates at which latency does not matter. Audio that is received is resampled in
``input_resampler``.

Source: windowed-sinc design after Kaiser, in Oppenheim & Schafer, Discrete-Time Signal Processing, 7.6.
"""

from functools import cache
from typing import Final, Protocol

import numpy as np
import soxr
from numpy.typing import NDArray

from ...tts_engine.chunk import SAMPLE_RATE
from .pcm import require_whole_samples

DECIMATION: Final = 3
TAPS: Final = 97  # 2.0 ms each side at 24 kHz
CUTOFF_HZ: Final = 3_925  # -6 dB; the pass band ends at 3,400 Hz, the stop band begins at 4,600 Hz
KAISER_BETA: Final = 8.0
COEFFICIENT_BITS: Final = 20
# Input samples a row; at least TAPS - DECIMATION, so that each output needs its own row and the next only.
BLOCK_IN: Final = 96
BLOCK_GROUPS: Final = BLOCK_IN // DECIMATION
# OpenBLAS wakes its thread pool above 262,144 multiply-adds; 64 rows are 196,608 and 256 ms of speech.
MAX_ROWS: Final = 64
BUILT_IN_RATES: Final = (8_000, 24_000)  # Hz of encoded speech that no other library resamples
WIDEBAND_CUTOFF_HZ: Final = 7_400  # -6 dB; the pass band ends at 6,700 Hz, the stop band begins at 8,050 Hz


class Resampler(Protocol):
    """Streaming resampler of s16le mono from 24 kHz to a fixed rate."""

    def push(self, pcm: bytes) -> bytes:
        """Resample ``pcm`` (24 kHz) and return the samples that are ready."""

    def drain(self) -> bytes:
        """Return the withheld samples and start a new signal."""

    def reset(self) -> None:
        """Drop the withheld samples and start a new signal."""


@cache
def coefficients() -> NDArray[np.float64]:
    """Return the low-pass filter of ``Downsampler``: (97,) float64, symmetric, sum exactly 1.

    Every value is a multiple of 2**-20, so every product with a 16-bit sample and every sum of products is
    exact in float64. The output therefore does not depend on the order of summation: not on the split into
    pushes, the BLAS or the CPU.
    """
    time = np.arange(TAPS) - TAPS // 2
    return _quantized(np.sinc(2 * CUTOFF_HZ / SAMPLE_RATE * time) * np.kaiser(TAPS, KAISER_BETA))


@cache
def wideband_coefficients() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the two phases of the filter of ``WidebandDownsampler``: (97,) and (96,) float64.

    They are the even and the odd taps of one symmetric low-pass filter at 48 kHz. The sum of each is exactly
    1, and their values are exact as those of ``coefficients``.
    """
    time = np.arange(2 * TAPS - 1) - (TAPS - 1)
    ideal = np.sinc(WIDEBAND_CUTOFF_HZ / SAMPLE_RATE * time) * np.kaiser(2 * TAPS - 1, KAISER_BETA)
    return _quantized(ideal[::2]), _quantized(ideal[1::2])


def _quantized(ideal: NDArray[np.float64]) -> NDArray[np.float64]:
    one = 2**COEFFICIENT_BITS
    whole = np.rint(ideal / ideal.sum() * one)
    rest = one - whole.sum()  # the sum after rounding is exactly 1
    whole[len(whole) // 2] += rest - rest // 2  # of an even number of taps, the two in the middle share it
    whole[(len(whole) - 1) // 2] += rest // 2
    taps: NDArray[np.float64] = whole / one
    taps.flags.writeable = False
    return taps


@cache
def _narrowband_matrices() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return _block_matrices((0, coefficients()))


@cache
def _wideband_matrices() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    even, odd = wideband_coefficients()
    return _block_matrices((0, even), (2, odd))  # output 2k is at input 3k, output 2k + 1 at 3k + 1.5


def _block_matrices(
    *phases: tuple[int, NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # (own, following), each (96, 32 P): out[row] = rows[row] @ own + rows[row + 1] @ following.
    # phases: P of them, the first input of each output of a group, and its taps
    matrix = np.zeros((2 * BLOCK_IN, len(phases) * BLOCK_GROUPS))
    for group in range(BLOCK_GROUPS):
        for phase, (offset, taps) in enumerate(phases):
            first = DECIMATION * group + offset
            matrix[first : first + len(taps), len(phases) * group + phase] = taps
    return matrix[:BLOCK_IN].copy(), matrix[BLOCK_IN:].copy()


class _BlockFilter:
    """Linear-phase polyphase FIR, computed as a block-Toeplitz product.

    Three input samples make a group, which gives ``phases`` output samples. Samples are rounded half to even
    and saturated. There is no dither: it would add noise at -90 dBFS to hide an error that is far below that
    of 8-bit companding (38 dB SNR).

    Args:
        matrices: as ``_block_matrices`` returns them.
        phases: output samples of a group.
        group_inputs: that the outputs of a group depend on.
    """

    def __init__(
        self, matrices: tuple[NDArray[np.float64], NDArray[np.float64]], phases: int, group_inputs: int
    ) -> None:
        self._own, self._following = matrices
        self._phases, self._group_inputs = phases, group_inputs
        self._room = MAX_ROWS // phases * BLOCK_IN  # input samples of one product
        # Input samples to filter: those held, the room, and what completes the last row.
        self._line: NDArray[np.float64] = np.zeros(self._room + BLOCK_IN + DECIMATION)
        self._held = TAPS // 2  # samples of the line in use; silence precedes the signal

    def push(self, pcm: bytes) -> bytes:
        """Resample s16le; raises ValueError for an odd number of bytes."""
        samples = np.frombuffer(require_whole_samples(pcm), "<i2")
        room = self._room
        if len(samples) <= room:
            return self._filter(samples)
        return b"".join(self._filter(samples[start : start + room]) for start in range(0, len(samples), room))

    def drain(self) -> bytes:
        """Return the last 2 ms, filtered as if silence followed, and start a new signal."""
        rest = (self._held - TAPS // 2) % DECIMATION  # inputs of a last group that is not whole
        beyond = self._phases - -(-self._phases * rest // DECIMATION) if rest else 0
        tail = self._filter(np.zeros(self._group_inputs - TAPS // 2 - 1, "<i2"))
        self.reset()
        return tail[: len(tail) - 2 * beyond]

    def reset(self) -> None:
        """Drop the withheld samples and start a new signal."""
        self._line[: TAPS // 2] = 0
        self._held = TAPS // 2

    def _filter(self, samples: NDArray[np.int16]) -> bytes:
        line = self._line
        have = self._held + len(samples)
        line[self._held : have] = samples
        groups = (have - self._group_inputs) // DECIMATION + 1
        if groups <= 0:
            self._held = have
            return b""
        rows = -(-groups // BLOCK_GROUPS)
        # The last row may contain stale samples of an earlier push; its outputs are cut off at the return.
        blocks = line[: (rows + 1) * BLOCK_IN].reshape(rows + 1, BLOCK_IN)  # (rows + 1, 96)
        # dot instead of @, whose overhead is half of the time of a product this small
        out = blocks[:-1].dot(self._own)  # (rows, 32 P)
        out += blocks[1:].dot(self._following)
        self._held = have - DECIMATION * groups
        line[: self._held] = line[DECIMATION * groups : have]
        return _as_pcm(out)[: 2 * self._phases * groups]


class Downsampler(_BlockFilter):
    """Resamples 24 kHz to 8 kHz.

    The pass band is 0 to 3,400 Hz within 0.05 dB; frequencies above 4,600 Hz are down by more than 80 dB.
    Output sample k is aligned with input sample 3k. The filter withholds its group delay of 2.0 ms and up to
    two samples that wait for their third, 2.00 to 2.08 ms in all. n input samples give ceil(n / 3) output
    samples after ``drain``. The output is bit-equal for any split of the input.
    """

    def __init__(self) -> None:
        super().__init__(_narrowband_matrices(), phases=1, group_inputs=TAPS)


class WidebandDownsampler(_BlockFilter):
    """Resamples 24 kHz to 16 kHz.

    The pass band is 0 to 6,700 Hz within 0.05 dB; frequencies above 8,050 Hz are down by more than 80 dB.
    Output samples come in pairs, for three input samples each; 2.0 to 2.13 ms are withheld. n input samples
    give ceil(2n / 3) output samples after ``drain``. The output is bit-equal for any split of the input.
    """

    def __init__(self) -> None:
        super().__init__(_wideband_matrices(), phases=2, group_inputs=TAPS + 1)


class PassthroughResampler:
    """Keeps 24 kHz and withholds nothing."""

    def push(self, pcm: bytes) -> bytes:
        """Return ``pcm`` unchanged; raises ValueError for an odd number of bytes."""
        return require_whole_samples(pcm)

    def drain(self) -> bytes:
        """Return no bytes, because nothing is withheld."""
        return b""

    def reset(self) -> None:
        """Do nothing, because nothing is withheld."""


class BlockStream(Protocol):
    """Interface of ``soxr.ResampleStream``: mono int16 in and out."""

    def resample_chunk(self, x: NDArray[np.int16], last: bool = ...) -> NDArray[np.int16]:
        """Resample ``x`` and return the samples that are ready, all of them if ``last``."""
        ...

    def clear(self) -> None:
        """Drop the withheld samples."""
        ...


class BlockResampler:
    """Adapts a general resampler that works in blocks, for peers where latency does not matter.

    Output comes in bursts. With ``soxr_resampler(24_000, rate)`` and pushes of 20 ms, the first output comes
    after 37 ms of input at 16 kHz and after 38 ms at 48 kHz, and as much may be withheld later. At 8 kHz it
    would be 74 ms, and 155 ms with soxr's quality VHQ. The total length is exact after ``drain``.
    """

    def __init__(self, stream: BlockStream) -> None:
        self._stream = stream

    def push(self, pcm: bytes) -> bytes:
        """Resample s16le and return what is ready; raises ValueError for an odd number of bytes."""
        return self._stream.resample_chunk(np.frombuffer(require_whole_samples(pcm), "<i2")).tobytes()

    def drain(self) -> bytes:
        """Return the withheld samples and start a new signal."""
        tail = self._stream.resample_chunk(np.empty(0, np.int16), last=True).tobytes()
        self.reset()
        return tail

    def reset(self) -> None:
        """Drop the withheld samples and start a new signal."""
        self._stream.clear()


def resampler_to(sample_rate: int) -> Resampler:
    """Return the resampler with the least delay from 24 kHz: one in blocks but to 8, 16 and 24 kHz."""
    match sample_rate:
        case 8_000:
            return Downsampler()
        case 16_000:
            return WidebandDownsampler()
        case 24_000:
            return PassthroughResampler()
        case _:
            return soxr_resampler(SAMPLE_RATE, sample_rate)


def soxr_resampler(input_rate: int, output_rate: int) -> BlockResampler:
    """Return a resampler between any two rates (Hz); see ``BlockResampler`` for its latency."""
    return BlockResampler(soxr.ResampleStream(input_rate, output_rate, 1, dtype="int16", quality="HQ"))


def _as_pcm(samples: NDArray[np.float64]) -> bytes:
    np.rint(samples, out=samples)
    # In-place minimum and maximum cost a third of np.clip on arrays this small.
    np.minimum(samples, 32_767, out=samples)
    np.maximum(samples, -32_768, out=samples)
    return samples.astype("<i2").tobytes()
