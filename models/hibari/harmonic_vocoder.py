"""Turns predicted spectra into samples, a few frames at a time. Signal processing only, no network.

The spectrum of a frame is the sum of a harmonic part (a filtered pulse train at the fundamental), a noise
part and a part of free phase:

    S = exp(h) e^{i alpha} STFT(pulses(f0)) + exp(n) Z + exp(r) e^{i phi},   Z complex normal

Decoders differ in how they say the angles alpha and phi, and one gives no noise part: ``AngleSpectrum`` and
``DirectionSpectrum`` read what they give.

The samples are its inverse short-time Fourier transform with a periodic Hann window of 1,200 samples and a
hop of 300 (12.5 ms at 24 kHz), so a block of 300 samples is complete two frames later:

    frame k covers blocks     | k-2 | k-1 |  k  | k+1 |
    complete after frame k       k-2
    unfinished                         | k-1 |  k  | k+1 |   in the state

The state holds the phase of the pulse train, the pulses that later frames cover, and the three unfinished
blocks of the overlap-add. Every split into steps gives the same samples, bit by bit.

For a listener at a lower sample rate only the bins below half of that rate are computed. At 8 and 12 kHz the
samples come at that rate: the pulse train and both transforms are shorter by the same factor.

Source: the signal model of hibari-tts 0.2.1 (Apache-2.0), after StyleTTS 2 and NSF-HiFiGAN.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 24_000
WINDOW = 1_200
HOP = 300
BINS = WINDOW // 2 + 1
PARTS = 5  # of an AngleSpectrum
FRAME_S = HOP / SAMPLE_RATE
DELAY_FRAMES = 2
SAMPLE_RATES = (24_000, 12_000, 8_000)  # Hz, of the samples
NOISE_ROWS = 2_048  # frames, 25.6 s
_REPEATED_NOISE_ROWS = 80  # at the end of the table, so that a step across its end is one slice

_UNVOICED_BELOW_HZ = 40.0
_MAX_HARMONIC_HZ = 11_000.0
_MAX_EXPONENT = 7.0  # bounds magnitudes
_MIN_SQUARE = np.float32(1e-6)  # of a direction's length
_BLOCKS = WINDOW // HOP  # that a frame covers

Float = NDArray[np.float32]

_HANN: Float = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
# A unit cosine peaks at sum(window) / 2 in the transform. Dividing by that makes exp(h) the magnitude of a
# harmonic. The factor WINDOW undoes norm="forward", with which numpy takes a fifth of the default's time.
_ANALYSIS: Float = (_HANN / (WINDOW / 4) * WINDOW).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Band:
    """The frequencies that are rendered, from 0 on. There is silence above.

    Attributes:
        bins: of the spectrum that are computed.
        decimation: of the samples and of the pulse train: one in so many of 24 kHz. The bins lie below half
            of the rate that is left.
    """

    bins: int = BINS
    decimation: int = 1

    @classmethod
    def heard_at(cls, sample_rate: int) -> "Band":
        """What can be heard at a sample rate in Hz."""
        if sample_rate >= SAMPLE_RATE:
            return cls()
        decimation = SAMPLE_RATE // sample_rate if sample_rate in SAMPLE_RATES else 1
        return cls(-(-WINDOW * sample_rate // (2 * SAMPLE_RATE)), decimation)

    @property
    def sample_rate(self) -> int:
        """Of the samples, Hz."""
        return SAMPLE_RATE // self.decimation

    @property
    def window(self) -> int:
        """Samples of a frame's window."""
        return WINDOW // self.decimation

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return HOP // self.decimation

    @property
    def max_harmonic_hz(self) -> float:
        """The highest harmonic of the pulse train; the window spreads it over two bins to either side."""
        if self.decimation == 1:
            return _MAX_HARMONIC_HZ
        return min(_MAX_HARMONIC_HZ, (self.bins - 3) * SAMPLE_RATE / WINDOW)


TELEPHONE_BAND = Band.heard_at(8_000)


@dataclass(frozen=True, slots=True)
class HarmonicVocoderState:
    """Memory of the vocoder between steps. D: ``band.decimation``."""

    band: Band
    frame: int  # the next frame
    noise_row: int  # row of the noise table under frame 0
    phase: float  # of the pulse train at the next pulse block, in turns since the first one
    pulses: Float  # (n, 300 / D) float32, pulse blocks from ``frame - 2`` on that are computed already
    unfinished: Float  # (3, 300 / D) float32, overlap-add of blocks ``frame - 2`` to ``frame``


class SpectrumReader(Protocol):
    """The spectra of T frames as a decoder gives them."""

    def __len__(self) -> int:
        """T."""

    def filters(self, voiced: NDArray[np.bool_], bins: int) -> NDArray[np.complex64]:
        """Of the pulse train of the V frames of a mask (T,): (V, bins)."""

    def write_rest(self, out: NDArray[np.complex64], noise: Float) -> None:
        """Write the part of free phase and the noise part, (T, bins). noise: (T, 2, bins)."""


class AngleSpectrum:
    """The five parts of the packaged voice's own decoder: h, theta, n, r, phi, with alpha = pi tanh(theta).

    Args:
        spectrum: (T, 3005).
    """

    def __init__(self, spectrum: Float) -> None:
        # 5 x (T, 601)
        self._harmonic, self._theta, self._breath, self._free, self._phi = spectrum.reshape(
            len(spectrum), PARTS, BINS
        ).transpose(1, 0, 2)

    def __len__(self) -> int:
        return len(self._free)

    def filters(self, voiced: NDArray[np.bool_], bins: int) -> NDArray[np.complex64]:
        """As of ``SpectrumReader``."""
        magnitude, theta = _exp(self._harmonic[voiced, :bins]), self._theta[voiced, :bins]
        return _polar(magnitude, np.float32(np.pi) * np.tanh(theta))

    def write_rest(self, out: NDArray[np.complex64], noise: Float) -> None:
        """As of ``SpectrumReader``."""
        bins = out.shape[1]
        phi = self._phi[:, :bins]
        level, breath_level = _exp(self._free[:, :bins]), _exp(self._breath[:, :bins])
        out.real = level * np.cos(phi) + breath_level * noise[:, 0]
        out.imag = level * np.sin(phi) + breath_level * noise[:, 1]


class DirectionSpectrum:
    """The six parts of the decoder for telephones: h, x, y, r, x', y'. There is no noise part.

    alpha is the angle of (x, y), phi that of (x', y').

    Args:
        spectrum: (T, 6, bins).
    """

    def __init__(self, spectrum: Float) -> None:
        self._spectrum = spectrum

    def __len__(self) -> int:
        return len(self._spectrum)

    def filters(self, voiced: NDArray[np.bool_], bins: int) -> NDArray[np.complex64]:
        """As of ``SpectrumReader``."""
        harmonic = self._spectrum[voiced, :3, :bins]
        out = np.empty((len(harmonic), bins), np.complex64)
        _write_directed(out, harmonic)
        return out

    def write_rest(self, out: NDArray[np.complex64], noise: Float) -> None:
        """As of ``SpectrumReader``."""
        _write_directed(out, self._spectrum[:, 3:, : out.shape[1]])


def _write_directed(out: NDArray[np.complex64], part: Float) -> None:
    """Write numbers of a magnitude and a direction. part: (T, 3, bins), log magnitude, x, y."""
    log_magnitude, x, y = part.transpose(1, 0, 2)
    scale = _exp(log_magnitude)
    scale /= np.sqrt(x * x + y * y + _MIN_SQUARE)
    np.multiply(x, scale, out=out.real)
    np.multiply(y, scale, out=out.imag)


@cache
def noise_table() -> Float:
    """Complex normal noise for 25.6 s, and its first second again: (2128, 2, 601) float32, re before im.

    Drawing new noise for every frame would take a quarter of the vocoder's time. Each utterance begins at a
    row of its own; a repetition after 25.6 s is inaudible.
    """
    pairs = np.random.default_rng(0).standard_normal((NOISE_ROWS, BINS, 2), dtype=np.float32)
    table = pairs.transpose(0, 2, 1)
    return np.concatenate([table, table[:_REPEATED_NOISE_ROWS]])


def init_state(frame: int = 0, noise_row: int = 0, band: Band | None = None) -> HarmonicVocoderState:
    """The state before ``frame``: silence, and pulse phase zero. noise_row: 0 to NOISE_ROWS - 1."""
    band = band or Band()
    return HarmonicVocoderState(
        band=band,
        frame=frame,
        noise_row=noise_row,
        phase=-(band.decimation - 1) * _UNVOICED_BELOW_HZ / SAMPLE_RATE,
        pulses=np.zeros((DELAY_FRAMES, band.hop), np.float32),
        unfinished=np.zeros((_BLOCKS - 1, band.hop), np.float32),
    )


def step(
    spectrum: SpectrumReader, f0: Float, state: HarmonicVocoderState, noise: Float
) -> tuple[Float, HarmonicVocoderState]:
    """Render T frames: (T * hop,) float32 samples of blocks ``state.frame - 2`` to ``state.frame + T - 3``.

    spectrum: of the frames from ``state.frame`` on. f0: (F,) float32 Hz, of the whole utterance, below 40
    where unvoiced. noise: ``noise_table()``.
    """
    frames = len(spectrum)
    bins = state.band.bins
    breath_noise = _noise_for(state, frames, noise)[:, :, :bins]
    voiced, source, state = _source(f0, state, frames)
    padded = np.zeros((frames, state.band.window // 2 + 1), np.complex64)  # irfft takes longer to pad it
    mixed = padded[:, :bins]
    spectrum.write_rest(mixed, breath_noise)
    mixed[voiced] += source * spectrum.filters(voiced, bins)
    return _overlap_add(padded, state)


def finish(state: HarmonicVocoderState) -> Float:
    """The two unfinished blocks after the last frame. The third lies after the utterance."""
    return state.unfinished[:DELAY_FRAMES].reshape(-1)


def _noise_for(state: HarmonicVocoderState, frames: int, noise: Float) -> Float:
    """The noise under the next frames: (T, 2, 601)."""
    first = (state.noise_row + state.frame) % NOISE_ROWS
    if first + frames > len(noise):
        return noise[np.arange(first, first + frames) % NOISE_ROWS]
    return noise[first : first + frames]


def _exp(log_magnitude: Float) -> Float:
    return np.exp(np.minimum(log_magnitude, _MAX_EXPONENT))


def _polar(magnitude: Float, angle: Float) -> NDArray[np.complex64]:
    out = np.empty(magnitude.shape, np.complex64)
    np.multiply(magnitude, np.cos(angle), out=out.real)
    np.multiply(magnitude, np.sin(angle), out=out.imag)
    return out


def _source(
    f0: Float, state: HarmonicVocoderState, frames: int
) -> tuple[NDArray[np.bool_], NDArray[np.complex64], HarmonicVocoderState]:
    """Which of the next T frames have pulses, and the spectrum of the pulse train under these V frames.

    voiced: (T,). source: (V, bins) complex64.
    """
    band = state.band
    first = state.frame - DELAY_FRAMES + len(state.pulses)
    new, phase = _pulses(f0, first, state.frame + frames + 1, state.phase, band)
    pulses = np.concatenate([state.pulses, new])
    pulsed = np.asarray(pulses.any(axis=1))
    voiced = pulsed[: 1 - _BLOCKS].copy()
    for block in range(1, _BLOCKS):
        voiced |= pulsed[block : block + frames]
    windows = np.concatenate([pulses[block : block + frames][voiced] for block in range(_BLOCKS)], axis=1)
    windows *= _ANALYSIS[:: band.decimation]
    source = np.fft.rfft(windows, axis=1, norm="forward")[:, : band.bins]
    return (
        voiced,
        source.astype(np.complex64, copy=False),
        replace(state, phase=phase, pulses=pulses[frames:]),
    )


def _pulses(f0: Float, first: int, stop: int, phase: float, band: Band) -> tuple[Float, float]:
    """Blocks ``first`` to ``stop - 1`` of the band-limited pulse train, (B, 300 / D), and the next phase.

    All its harmonics have amplitude 1: sum cos(h t) = sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2.
    """
    blocks = np.minimum(np.maximum(np.arange(first - 1, stop + 1), 0), len(f0) - 1)
    frequency = _interpolate(f0[blocks], band.decimation)
    voiced = frequency > _UNVOICED_BELOW_HZ
    np.maximum(frequency, _UNVOICED_BELOW_HZ, out=frequency)
    steps = np.concatenate([[phase], frequency * np.float64(band.decimation / SAMPLE_RATE)])
    turns = np.cumsum(steps, dtype=np.float64)[1:]  # one after another, so any split gives the same sums
    phase = float(turns[-1])
    if not voiced.any():
        return np.zeros((stop - first, band.hop), np.float32), phase
    turns -= np.floor(turns)
    train = _harmonic_sum(turns.astype(np.float32), np.floor(np.float32(band.max_harmonic_hz) / frequency))
    train *= voiced
    return train.reshape(stop - first, -1), phase


def _harmonic_sum(turns: Float, harmonics: Float) -> Float:
    """Sum of cos(2 pi h turns) over h = 1 ... harmonics, for each sample."""
    half_angle = turns * np.float32(np.pi)
    count = harmonics + np.float32(0.5)
    train = np.sin(2 * count * half_angle)
    divisor = 2 * np.sin(half_angle)
    peak = np.flatnonzero(np.abs(divisor) <= 2e-3)  # near 0 / 0: use the limit of the quotient
    divisor[peak] = 1
    train /= divisor
    train[peak] = count[peak]
    train -= np.float32(0.5)
    return train


def _interpolate(f0: Float, decimation: int) -> Float:
    """f0 for each sample that is kept, linear between frame centres: (F + 2,) -> (300 F / D,)."""
    rise, half = _rise(decimation)
    before, here, after = f0[:-2, None], f0[1:-1, None], f0[2:, None]
    out = np.empty((len(f0) - 2, len(rise)), np.float32)
    out[:, :half] = before + (here - before) * rise[:half]
    out[:, half:] = here + (after - here) * rise[half:]
    return out.reshape(-1)


@cache
def _rise(decimation: int) -> tuple[Float, int]:
    """Where the f0 of the samples that are kept is taken: way from a centre to the next one, 0 to 1; and how
    many are taken before the frame's own centre.

    Sample j of a frame lies (j + 1/2) / 300 - 1/2 frames from its centre. Samples 0, D, 2 D, ... are kept,
    and f0 is taken in the middle of the D samples that end there, so that its sum is the phase.
    """
    positions = (np.arange(0, HOP, decimation) - (decimation - 1) / 2 + 0.5) / HOP - 0.5
    return (positions % 1.0).astype(np.float32), int(np.sum(positions < 0))


def _overlap_add(
    spectrum: NDArray[np.complex64], state: HarmonicVocoderState
) -> tuple[Float, HarmonicVocoderState]:
    """Inverse transform and overlap-add: (T, window / 2 + 1) -> (T * hop,) complete samples."""
    frames, band = len(spectrum), state.band
    pieces = np.fft.irfft(spectrum, band.window, axis=1)
    pieces *= _synthesis_window(band.decimation)
    pieces = pieces.reshape(frames, _BLOCKS, band.hop)
    blocks = np.zeros((frames + _BLOCKS - 1, band.hop), np.float32)
    blocks[: _BLOCKS - 1] = state.unfinished
    for block in reversed(range(_BLOCKS)):  # of the earliest frame first, so any split gives the same sums
        blocks[block : block + frames] += pieces[:, block]
    samples = blocks[:frames].reshape(-1)
    return samples, replace(state, frame=state.frame + frames, unfinished=blocks[frames:])


@cache
def _synthesis_window(decimation: int) -> Float:
    """Makes the overlapping frames of ``irfft`` add up to samples, one in ``decimation``: (1200 / D,).

    Squared Hann windows at a quarter of their length add up to 3/2 everywhere. A shorter transform divides by
    a smaller length.
    """
    return (_HANN[::decimation] / (1.5 * decimation)).astype(np.float32)
