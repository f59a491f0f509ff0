"""Turns predicted spectra into samples, a few frames at a time. Signal processing only, no network.

A frame's spectrum is the sum of a harmonic part (a pulse train at the fundamental, filtered), a noise part
and a free-phase part:

    S = exp(h) e^{i pi tanh(theta)} STFT(pulses(f0)) + exp(n) Z + exp(r) e^{i phi},   Z complex normal

and the samples are its inverse short-time Fourier transform: 1,200-point periodic Hann window, hop 300
samples (12.5 ms at 24 kHz), so that a block of 300 samples is complete two frames later:

    frame k covers    | k-2 | k-1 |  k  | k+1 |      blocks of 300 samples
    complete after frame k:   block k-2

The state carries the phase of the pulse train, the pulses that later frames still look at, and the three
unfinished blocks of the overlap-add; any split into steps gives the same samples.
Source: the signal model of hibari-tts 0.2.1 (Apache-2.0), after StyleTTS 2 and NSF-HiFiGAN.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 24_000
WINDOW = 1_200
HOP = 300
BINS = WINDOW // 2 + 1
PARTS = 5  # harmonic magnitude, harmonic phase, noise, free-phase magnitude, free phase
FRAME_S = HOP / SAMPLE_RATE
DELAY_FRAMES = 2
NOISE_ROWS = 2_048
_ROWS_AT_ONCE = 80

_UNVOICED_BELOW_HZ = 40.0
_MAX_HARMONIC_HZ = 11_000.0
_MAX_EXPONENT = 7.0
_BLOCKS = WINDOW // HOP

Float = NDArray[np.float32]

_HANN: Float = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
# A unit cosine peaks at sum(window) / 2 in the transform: scaled so that exp(h) is a harmonic's magnitude,
# and by the window's length for norm="forward", which numpy transforms in a fifth of the time of its default.
_ANALYSIS: Float = (_HANN / (WINDOW / 4) * WINDOW).astype(np.float32)
# Squared Hann windows a quarter apart sum to 3/2 everywhere.
_SYNTHESIS: Float = (_HANN / 1.5).astype(np.float32)
_RISE: Float = (((np.arange(HOP) + 0.5) / HOP - 0.5) % 1.0).astype(np.float32)


@dataclass(frozen=True, slots=True)
class HarmonicVocoderState:
    """What the vocoder remembers between steps.

    ``frame``: the next frame. ``noise_row``: of the noise under frame 0.
    ``phase``: of the pulse train, in turns, at the next pulse block.
    ``pulses``: (n, 300) float32, blocks ``frame - 2`` onwards that are computed already.
    ``unfinished``: (3, 300) float32, overlap-add of blocks ``frame - 2`` to ``frame``.
    """

    frame: int
    noise_row: int
    phase: float
    pulses: Float
    unfinished: Float


@cache
def noise_table() -> Float:
    """Complex normal noise of 25.6 s and a second of it again: (2128, 1202) float32, re and im in turn.

    Drawing noise anew for every frame would be a quarter of all this. Each utterance begins at a row
    of its own, and nobody hears that a breath comes back after 25 s.
    """
    table = np.random.default_rng(0).standard_normal((NOISE_ROWS, 2 * BINS), dtype=np.float32)
    return np.concatenate([table, table[:_ROWS_AT_ONCE]])


def init_state(frame: int = 0, noise_row: int = 0) -> HarmonicVocoderState:
    """A beginning at ``frame``: silence before it, pulse phase zero. noise_row: 0 to NOISE_ROWS - 1."""
    return HarmonicVocoderState(
        frame=frame,
        noise_row=noise_row,
        phase=0.0,
        pulses=np.zeros((DELAY_FRAMES, HOP), np.float32),
        unfinished=np.zeros((_BLOCKS - 1, HOP), np.float32),
    )


def step(
    spectrum: Float, f0: Float, state: HarmonicVocoderState, noise: Float
) -> tuple[Float, HarmonicVocoderState]:
    """Render the next frames.

    spectrum: (T, 3005) float32, the five parts of frames ``state.frame`` onwards.
    f0: (F,) float32 Hz of the whole utterance, below 40 where unvoiced. noise: ``noise_table()``.
    Returns (T * 300,) float32 samples, of blocks ``state.frame - 2`` to ``state.frame + T - 3``.
    """
    frames = len(spectrum)
    harmonic, theta, breath, free, phi = spectrum.reshape(frames, PARTS, BINS).transpose(1, 0, 2)
    breathing = _noise_for(state, frames, noise)
    source, state = _source(f0, state, frames)
    mixed = _polar(_exp(harmonic), np.float32(np.pi) * np.tanh(theta))
    mixed *= source
    mixed += breathing * _exp(breath)
    mixed += _polar(_exp(free), phi)
    return _overlap_add(mixed, state)


def finish(state: HarmonicVocoderState) -> Float:
    """The two blocks (600 samples) that are still unfinished after the last frame."""
    return state.unfinished[:DELAY_FRAMES].reshape(-1)


def _noise_for(state: HarmonicVocoderState, frames: int, noise: Float) -> NDArray[np.complex64]:
    first = (state.noise_row + state.frame) % NOISE_ROWS
    if first + frames > len(noise):
        return noise[np.arange(first, first + frames) % NOISE_ROWS].view(np.complex64)
    return noise[first : first + frames].view(np.complex64)


def _exp(log_magnitude: Float) -> Float:
    return np.exp(np.minimum(log_magnitude, _MAX_EXPONENT))


def _polar(magnitude: Float, angle: Float) -> NDArray[np.complex64]:
    out = np.empty(magnitude.shape, np.complex64)
    np.multiply(magnitude, np.cos(angle), out=out.real)
    np.multiply(magnitude, np.sin(angle), out=out.imag)
    return out


def _source(
    f0: Float, state: HarmonicVocoderState, frames: int
) -> tuple[NDArray[np.complex64], HarmonicVocoderState]:
    """Spectrum of the pulse train under each of the next frames: (T, 601) complex64."""
    first = state.frame - DELAY_FRAMES + len(state.pulses)
    fresh, phase = _pulses(f0, first, state.frame + frames + 1, state.phase)
    pulses = np.concatenate([state.pulses, fresh])
    windows = np.lib.stride_tricks.sliding_window_view(pulses.reshape(-1), WINDOW)[::HOP][:frames]
    source = np.fft.rfft(windows * _ANALYSIS, axis=1, norm="forward").astype(np.complex64, copy=False)
    return source, replace(state, phase=phase, pulses=pulses[frames:])


def _pulses(f0: Float, first: int, stop: int, phase: float) -> tuple[Float, float]:
    """Blocks ``first`` to ``stop - 1`` of the band-limited pulse train: (stop - first, 300).

    Every harmonic below 11 kHz at unit amplitude: sum cos(h t) = sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2.
    """
    blocks = np.arange(first - 1, stop + 1).clip(0, len(f0) - 1)
    frequency = _interpolate(f0[blocks])
    voiced = frequency > _UNVOICED_BELOW_HZ
    np.maximum(frequency, _UNVOICED_BELOW_HZ, out=frequency)
    turns = np.cumsum(frequency, dtype=np.float64)
    turns /= SAMPLE_RATE
    turns += phase
    turns -= np.floor(turns)
    if not voiced.any():
        return np.zeros((stop - first, HOP), np.float32), float(turns[-1])
    train = _harmonic_sum(turns.astype(np.float32), np.floor(_MAX_HARMONIC_HZ / frequency))
    train *= voiced
    return train.reshape(-1, HOP), float(turns[-1])


def _harmonic_sum(turns: Float, harmonics: Float) -> Float:
    """Sum of cos(2 pi h turns) over h = 1 ... harmonics, at each sample."""
    half_angle = turns * np.float32(np.pi)
    count = harmonics + np.float32(0.5)
    train = np.sin(2 * count * half_angle)
    divisor = 2 * np.sin(half_angle)
    peak = np.flatnonzero(np.abs(divisor) <= 2e-3)  # there the quotient is its limit
    divisor[peak] = 1
    train /= divisor
    train[peak] = count[peak]
    train -= np.float32(0.5)
    return train


def _interpolate(f0: Float) -> Float:
    """Linear between frame centres: sample j of a frame lies at (j + 1/2) / 300 - 1/2 from its centre."""
    half = HOP // 2
    before, here, after = f0[:-2, None], f0[1:-1, None], f0[2:, None]
    out = np.empty((len(f0) - 2, HOP), np.float32)
    out[:, :half] = before + (here - before) * _RISE[:half]
    out[:, half:] = here + (after - here) * _RISE[half:]
    return out.reshape(-1)


def _overlap_add(
    spectrum: NDArray[np.complex64], state: HarmonicVocoderState
) -> tuple[Float, HarmonicVocoderState]:
    frames = len(spectrum)
    pieces = np.fft.irfft(spectrum, WINDOW, axis=1)
    pieces *= _SYNTHESIS
    pieces = pieces.reshape(frames, _BLOCKS, HOP)
    blocks = np.zeros((frames + _BLOCKS - 1, HOP), np.float32)
    blocks[: _BLOCKS - 1] = state.unfinished
    for block in range(_BLOCKS):
        blocks[block : block + frames] += pieces[:, block]
    samples = blocks[:frames].reshape(-1)
    return samples, replace(state, frame=state.frame + frames, unfinished=blocks[frames:])
