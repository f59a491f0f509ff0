"""Streaming resamplers for speech: 24 kHz s16le in, another rate out, in pushes of any size.

``Downsampler`` is the one for telephones: 24 kHz to 8 kHz with 2 ms of delay, where general resamplers
withhold 20-155 ms in blocks. ``PassthroughResampler`` keeps 24 kHz. ``BlockResampler`` wraps soxr, or its like, where
latency does not matter. Not here: encoding (``codecs``), pacing (``playout``).

Source: windowed-sinc design after Kaiser, in Oppenheim & Schafer, Discrete-Time Signal Processing, 7.6.
"""

from functools import cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...tts_engine.chunk import SAMPLE_RATE
from .codecs import require_whole_samples

DECIMATION: Final = 3
TAPS: Final = 97  # 2.0 ms each side at 24 kHz
CUTOFF_HZ: Final = 3_925  # -6 dB; the pass band ends at 3,400 Hz, the stop band begins at 4,600 Hz
KAISER_BETA: Final = 8.0
COEFFICIENT_BITS: Final = 20
BLOCK_IN: Final = 96  # samples of a row; >= TAPS - DECIMATION, so that outputs need only the row after theirs
BLOCK_OUT: Final = BLOCK_IN // DECIMATION
# OpenBLAS wakes its thread pool above 262,144 multiply-adds; 64 rows are 196,608 and 256 ms of speech.
MAX_ROWS: Final = 64
BUILT_IN_RATES: Final = (8_000, 24_000)  # Hz that ``resampler_to`` knows


class Resampler(Protocol):
    """What ``Playout`` asks of a resampler: s16le mono bytes in and out."""

    def push(self, pcm: bytes) -> bytes:
        """Take speech at 24 kHz and return what is ready at the rate out."""

    def drain(self) -> bytes:
        """Return the withheld tail; the next push begins anew."""

    def reset(self) -> None:
        """Forget what is withheld; the next push begins anew."""


@cache
def coefficients() -> NDArray[np.float64]:
    """The low-pass filter of ``Downsampler``: (97,) float64, symmetric, sum exactly 1.

    Every value is a multiple of 2**-20, so each product with a 16-bit sample and each sum of them is exact
    in float64. The order of summation then cannot change a bit: not the split into pushes, not the BLAS,
    not the CPU.
    """
    centre = TAPS // 2
    time = np.arange(TAPS) - centre
    ideal = np.sinc(2 * CUTOFF_HZ / SAMPLE_RATE * time) * np.kaiser(TAPS, KAISER_BETA)
    one = 2**COEFFICIENT_BITS
    whole = np.rint(ideal / ideal.sum() * one)
    whole[centre] += one - whole.sum()
    taps: NDArray[np.float64] = whole / one
    taps.flags.writeable = False
    return taps


@cache
def _toeplitz() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # out[row] = row @ own + next_row @ following; each is (96, 32)
    matrix = np.zeros((2 * BLOCK_IN, BLOCK_OUT))
    for column in range(BLOCK_OUT):
        matrix[DECIMATION * column : DECIMATION * column + TAPS, column] = coefficients()
    return matrix[:BLOCK_IN].copy(), matrix[BLOCK_IN:].copy()


class Downsampler:
    """24 kHz to 8 kHz through a linear-phase polyphase FIR, as a block-Toeplitz matrix product.

    Pass band 0-3,400 Hz within 0.05 dB, everything above 4,600 Hz down by more than 80 dB. Sample k of the
    output stands where sample 3k of the input stood: the group delay is taken out of the positions and
    withheld instead, 2.0 ms, and up to two samples more wait for their third: 2.00-2.08 ms in all, and
    nothing beside it. n samples in give ceil(n / 3) out after ``drain``. The output is bit-equal for any
    split of the input.

    Samples are rounded half to even and saturated. No dither: it would add a hiss at -90 dBFS for an error
    that the telephone's own 8-bit companding (38 dB SNR) hides.
    """

    def __init__(self) -> None:
        self._line: NDArray[np.float64] = np.zeros((MAX_ROWS + 1) * BLOCK_IN)
        self._held = TAPS // 2  # samples of the line in use; begins with silence

    def push(self, pcm: bytes) -> bytes:
        """Take s16le at 24 kHz and return s16le at 8 kHz; ValueError for an odd number of bytes."""
        samples = np.frombuffer(require_whole_samples(pcm), "<i2")
        room = MAX_ROWS * BLOCK_IN
        if len(samples) <= room:
            return self._filter(samples)
        return b"".join(self._filter(samples[start : start + room]) for start in range(0, len(samples), room))

    def drain(self) -> bytes:
        """Return the last 2 ms, as if silence followed; the next push begins anew."""
        tail = self._filter(np.zeros(TAPS // 2, "<i2"))
        self.reset()
        return tail

    def reset(self) -> None:
        """Forget what is withheld; the next push begins anew."""
        self._line[: TAPS // 2] = 0
        self._held = TAPS // 2

    def _filter(self, samples: NDArray[np.int16]) -> bytes:
        line = self._line
        have = self._held + len(samples)
        line[self._held : have] = samples
        count = (have - TAPS) // DECIMATION + 1
        if count <= 0:
            self._held = have
            return b""
        rows = -(-count // BLOCK_OUT)
        # The last row may reach into what an earlier push left there; those columns are cut off below.
        blocks = line[: (rows + 1) * BLOCK_IN].reshape(rows + 1, BLOCK_IN)
        own, following = _toeplitz()
        # dot: half of a small product's time is what @ spends before it begins
        out = blocks[:-1].dot(own)
        out += blocks[1:].dot(following)
        self._held = have - DECIMATION * count
        line[: self._held] = line[DECIMATION * count : have]
        return _as_pcm(out)[: 2 * count]


class PassthroughResampler:
    """24 kHz as it is, withholding nothing."""

    def push(self, pcm: bytes) -> bytes:
        """Return the same bytes; ValueError for an odd number of them."""
        return require_whole_samples(pcm)

    def drain(self) -> bytes:
        """Return nothing: nothing is withheld."""
        return b""

    def reset(self) -> None:
        """Do nothing: nothing is withheld."""


class BlockStream(Protocol):
    """A resampler from elsewhere, mono int16 in and out; ``soxr.ResampleStream`` is one."""

    def resample_chunk(self, x: NDArray[np.int16], last: bool = ...) -> NDArray[np.int16]:
        """Take samples and return what is ready; all that is left where ``last``."""
        ...

    def clear(self) -> None:
        """Forget what is withheld."""
        ...


class BlockResampler:
    """24 kHz to another rate through a general resampler, for peers where latency does not matter.

    Such resamplers work in blocks: output comes in bursts, and what lies between two is withheld. With
    ``soxr.ResampleStream(24_000, rate, 1, dtype="int16", quality="HQ")`` and pushes of 20 ms, the first
    output comes after 37 ms of input at 16 kHz and after 38 ms at 48 kHz, and as much may be withheld later.
    Lengths and times are right after ``drain``. At 8 kHz it would be 74 ms, and 155 ms with quality VHQ.
    """

    def __init__(self, stream: BlockStream) -> None:
        self._stream = stream

    def push(self, pcm: bytes) -> bytes:
        """Take s16le at 24 kHz and return what is ready; ValueError for an odd number of bytes."""
        return self._stream.resample_chunk(np.frombuffer(require_whole_samples(pcm), "<i2")).tobytes()

    def drain(self) -> bytes:
        """Return the withheld tail; the next push begins anew."""
        tail = self._stream.resample_chunk(np.empty(0, np.int16), last=True).tobytes()
        self.reset()
        return tail

    def reset(self) -> None:
        """Forget what is withheld; the next push begins anew."""
        self._stream.clear()


def resampler_to(sample_rate: int) -> Resampler:
    """The resampler from 24 kHz to 8 or 24 kHz; ValueError for rates that need a ``BlockResampler``."""
    match sample_rate:
        case 8_000:
            return Downsampler()
        case 24_000:
            return PassthroughResampler()
        case _:
            raise ValueError(
                f"got {sample_rate} Hz; 8000 and 24000 are built in, others need a BlockResampler"
            )


def _as_pcm(samples: NDArray[np.float64]) -> bytes:
    np.rint(samples, out=samples)
    # minimum and maximum into place cost a third of np.clip on arrays this small
    np.minimum(samples, 32_767, out=samples)
    np.maximum(samples, -32_768, out=samples)
    return samples.astype("<i2").tobytes()
