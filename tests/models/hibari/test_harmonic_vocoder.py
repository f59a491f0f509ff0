"""The streaming vocoder equals its formula computed in float64 over the whole utterance."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.models.hibari import harmonic_vocoder as vocoder

FRAMES = 60
WHOLE = vocoder.Band()
SILENCE = np.zeros_like(vocoder.noise_table())


def spectrum_and_f0() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    spectrum = rng.normal(-4, 1, (FRAMES, vocoder.PARTS * vocoder.BINS)).astype(np.float32)
    f0 = np.where((np.arange(FRAMES) % 23) < 15, 120 + 3 * np.arange(FRAMES), 0).astype(np.float32)
    f0[:4] = f0[-4:] = 0
    return spectrum, f0


def render(
    cuts: list[int],
    noise: NDArray[np.float32] = SILENCE,
    noise_row: int = 0,
    band: vocoder.Band = WHOLE,
) -> NDArray[np.float32]:
    spectrum, f0 = spectrum_and_f0()
    state, parts, first = vocoder.init_state(noise_row=noise_row, band=band), [], 0
    for stop in [*cuts, FRAMES]:
        samples, state = vocoder.step(vocoder.AngleSpectrum(spectrum[first:stop]), f0, state, noise)
        parts.append(samples)
        first = stop
    return np.concatenate([*parts, vocoder.finish(state)])[vocoder.DELAY_FRAMES * band.hop :]


def at_once(max_hz: float, max_harmonic_hz: float, decimation: int) -> NDArray[np.float64]:
    """The formula of the module, sample by sample and frame by frame, without state, below a frequency.

    Of the pulse train and of the result, only one sample in ``decimation`` is used.
    """
    spectrum, f0 = spectrum_and_f0()
    hop, window = vocoder.HOP, vocoder.WINDOW
    centres = (np.arange(FRAMES) + 0.5) * hop
    frequency = np.interp(np.arange(FRAMES * hop) + 0.5, centres, f0.astype(np.float64))
    angle = 2 * np.pi * np.cumsum(np.maximum(frequency, 40)) / vocoder.SAMPLE_RATE
    middles = np.arange(FRAMES * hop) + 0.5 - (decimation - 1) / 2
    frequency = np.interp(middles, centres, f0.astype(np.float64))
    voiced = frequency > 40
    pulses = np.zeros(FRAMES * hop)
    for sample in np.flatnonzero(voiced & (np.arange(FRAMES * hop) % decimation == 0)):
        harmonics = np.arange(1, int(max_harmonic_hz // frequency[sample]) + 1)
        pulses[sample] = decimation * np.cos(harmonics * angle[sample]).sum()
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    padded = np.pad(pulses, window // 2)
    out = np.zeros(FRAMES * hop + window)
    weight = np.zeros_like(out)
    for frame in range(FRAMES):
        window_slice = slice(frame * hop, frame * hop + window)
        source = np.fft.rfft(padded[window_slice] * hann / (window / 4))
        harmonic, theta, _, free, phi = spectrum[frame].astype(np.float64).reshape(5, -1)
        mixed = np.exp(harmonic + 1j * np.pi * np.tanh(theta)) * source + np.exp(free + 1j * phi)
        mixed[np.fft.rfftfreq(window, 1 / vocoder.SAMPLE_RATE) >= max_hz] = 0
        out[window_slice] += np.fft.irfft(mixed, window) * hann
        weight[window_slice] += hann**2
    return (out / 1.5)[window // 2 : window // 2 + FRAMES * hop : decimation]


BANDS = {
    24_000: (np.inf, 11_000, 1),
    16_000: (8_000, 11_000, 1),
    12_000: (6_000, 5_940, 2),
    8_000: (4_000, 3_940, 3),
}


@pytest.mark.parametrize("listener_rate", BANDS)
def test_the_samples_equal_the_formula(listener_rate: int) -> None:
    expected = at_once(*BANDS[listener_rate])
    rendered = render([], band=vocoder.Band.heard_at(listener_rate))
    assert len(rendered) == len(expected)
    # A thinned pulse train misses how f0 bends within the samples left out, where the voice begins and ends.
    tolerance = 1e-4 if listener_rate > 12_000 else 2.5e-3
    assert np.linalg.norm(rendered - expected) < tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize("cuts", [[1], [1, 2, 3], [30], [7, 20, 21, 55], list(range(1, FRAMES))])
@pytest.mark.parametrize("noise_row", [0, vocoder.NOISE_ROWS - 20])
@pytest.mark.parametrize("band", [WHOLE, vocoder.Band.heard_at(8_000)])
def test_any_split_into_steps_gives_the_same_samples(
    cuts: list[int], noise_row: int, band: vocoder.Band
) -> None:
    whole = render([], vocoder.noise_table(), noise_row, band)
    split = render(cuts, vocoder.noise_table(), noise_row, band)
    np.testing.assert_array_equal(whole, split)


def test_a_telephone_hears_what_it_hears_of_all_frequencies() -> None:
    def below_3_400_hz(band: vocoder.Band) -> NDArray[np.complex128]:
        samples = render([], vocoder.noise_table(), band=band).astype(np.float64)
        spectrum: NDArray[np.complex128] = np.fft.rfft(samples, norm="forward")
        return spectrum[: round(3_400 * len(samples) / band.sample_rate)]

    whole, narrow = (below_3_400_hz(vocoder.Band.heard_at(rate)) for rate in (48_000, 8_000))
    # Harmonics that glide, and pulses that begin and end, reach past 4 kHz and are folded back.
    assert np.linalg.norm(narrow - whole) < 0.05 * np.linalg.norm(whole)


@pytest.mark.parametrize("rate", [6_000, 7_350, 8_000, 11_025, 16_000, 22_050])
def test_the_bins_of_any_listener_reach_up_to_half_the_rate(rate: int) -> None:
    band = vocoder.Band.heard_at(rate)
    bin_hz = vocoder.SAMPLE_RATE / vocoder.WINDOW
    assert rate / 2 - bin_hz <= (band.bins - 1) * bin_hz < rate / 2
    assert band.sample_rate == (rate if rate == 8_000 else vocoder.SAMPLE_RATE)


def test_samples_do_not_depend_on_later_frames() -> None:
    spectrum, f0 = spectrum_and_f0()
    first, _ = vocoder.step(
        vocoder.AngleSpectrum(spectrum[:20]), f0, vocoder.init_state(), vocoder.noise_table()
    )
    changed = spectrum.copy()
    changed[20:] = 0
    again, _ = vocoder.step(
        vocoder.AngleSpectrum(changed[:20]), f0, vocoder.init_state(), vocoder.noise_table()
    )
    assert np.array_equal(first, again)


def test_the_noise_is_complex_normal_and_begins_at_the_given_row() -> None:
    table = vocoder.noise_table()
    assert abs(float(table.mean())) < 1e-3
    assert abs(float(table.std()) - 1) < 1e-3
    assert np.array_equal(render([9], table, 5), render([9], table, 5))
    assert not np.array_equal(render([9], table, 5), render([9], table, 6))
    noise_alone = render([], table) - render([])
    shifted = render([], np.roll(table[: vocoder.NOISE_ROWS], 3, axis=0), 3) - render([])
    assert np.abs(noise_alone - shifted).max() < 1e-6
