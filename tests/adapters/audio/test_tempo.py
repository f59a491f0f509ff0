"""``TimeStretcher``: length, pitch, continuity and limits."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vivavoce.adapters.audio.tempo import TimeStretcher

RATE = 24_000


def tone(pitch_hz: float, seconds: float) -> NDArray[np.int16]:
    time = np.arange(round(seconds * RATE)) / RATE
    return (10_000 * np.sin(2 * np.pi * pitch_hz * time)).astype("<i2")


def stretched(samples: NDArray[np.int16], tempo: float, pitch: float = 1.0) -> NDArray[np.int16]:
    stretcher = TimeStretcher(tempo, pitch)
    pushed = [stretcher.push(samples[at : at + 480].tobytes()) for at in range(0, len(samples), 480)]
    return np.frombuffer(b"".join([*pushed, stretcher.drain()]), "<i2")


def pitch_of(samples: NDArray[np.int16]) -> float:
    middle = samples[2_400:-2_400].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    return float(np.argmax(spectrum)) * RATE / len(middle)


@pytest.mark.parametrize("tempo", [0.25, 0.5, 0.8, 1.25, 2.0, 4.0])
def test_tempo_changes_the_length_and_keeps_the_pitch(tempo: float) -> None:
    heard = stretched(tone(220, 4.0), tempo)
    assert len(heard) / RATE == pytest.approx(4.0 / tempo, abs=0.1)
    assert pitch_of(heard) == pytest.approx(220, abs=4)


@pytest.mark.parametrize(("tempo", "pitch"), [(1.0, 0.5), (1.0, 2.0), (2.0, 2.0), (0.25, 2.0), (4.0, 0.5)])
def test_pitch_changes_the_pitch_and_keeps_the_length(tempo: float, pitch: float) -> None:
    heard = stretched(tone(220, 2.0), tempo, pitch)
    assert len(heard) / RATE == pytest.approx(2.0 / tempo, rel=0.03)
    assert pitch_of(heard) == pytest.approx(220 * pitch, rel=0.02)


def test_stretched_speech_has_no_discontinuity() -> None:
    heard = stretched(tone(220, 1.0), 1.5).astype(int)
    assert np.abs(np.diff(heard)).max() < 2 * np.abs(np.diff(tone(220, 1.0).astype(int))).max()


LENGTHS = st.one_of(st.sampled_from([0, 1, 2, 479, 480, 481]), st.integers(0, 12_000))
NOISE = (np.random.default_rng(0).standard_normal(12_000) * 3_000).astype("<i2")


@settings(max_examples=100)
@example(4.0, 1.0, [1])
@example(2.5, 1.0, [1] * 500)
@example(0.5, 1.0, [480])
@example(4.0, 0.5, [4_800, 4_800])  # aborted the process in FFmpeg 8
@given(
    st.one_of(st.sampled_from([0.25, 4.0]), st.floats(0.25, 4.0)),
    st.one_of(st.just(1.0), st.floats(0.5, 2.0)),
    st.lists(LENGTHS, max_size=4),
)
def test_the_length_is_exact_for_any_pushes(tempo: float, pitch: float, lengths: list[int]) -> None:
    stretcher = TimeStretcher(tempo, pitch)
    pushed = [stretcher.push(NOISE[:length].tobytes()) for length in lengths]
    output = b"".join([*pushed, stretcher.drain()])
    assert len(output) == 2 * round(sum(lengths) / tempo)


@pytest.mark.parametrize(("tempo", "pitch"), [(0.24, 1), (4.1, 1), (1, 0.4), (1, 2.1), (float("nan"), 1)])
def test_factors_out_of_range_are_refused(tempo: float, pitch: float) -> None:
    with pytest.raises(ValueError, match=r"allowed are 0\.25 to 4 and 0\.5 to 2"):
        TimeStretcher(tempo, pitch)


def test_an_odd_number_of_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="must be even"):
        TimeStretcher(2.0).push(b"\0")
