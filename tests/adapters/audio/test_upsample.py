"""Upsamplers: pass band, image rejection, split independence and delay."""

import numpy as np
import pytest

from shared.audio.tones import tone
from vivavoce.adapters.audio.upsample import Upsampler


@pytest.mark.parametrize("frequency_hz", [400, 1_000, 3_000])
def test_upsampling_keeps_a_tone_and_adds_no_image(frequency_hz: float) -> None:
    upsampler = Upsampler(2)
    heard = b"".join(upsampler.push(tone(frequency_hz, 8_000, start, 160)) for start in range(0, 8_000, 160))
    samples = np.frombuffer(heard, "<i2")[1_000:-1_000] * np.hanning(14_000)
    spectrum = np.abs(np.fft.rfft(samples))
    own = round(frequency_hz * 14_000 / 16_000)
    level = spectrum[own - 3 : own + 4].max() / 14_000 * 4
    assert level == pytest.approx(8_000, rel=0.1)
    spectrum[own - 10 : own + 11] = 0
    assert spectrum.max() / 14_000 * 4 < 8_000 / 300  # images 50 dB down


def test_upsampling_does_not_depend_on_the_split_and_delays_by_1_ms() -> None:
    pcm = np.random.default_rng(2).integers(-8_000, 8_000, 800, dtype="<i2").astype("<i2").tobytes()
    whole = Upsampler(2).push(pcm)
    upsampler = Upsampler(2)
    assert b"".join(upsampler.push(pcm[start : start + 66]) for start in range(0, 1_600, 66)) == whole
    click = np.zeros(160, "<i2")
    click[40] = 10_000
    heard = np.frombuffer(Upsampler(2).push(click.tobytes()), "<i2")
    assert (int(np.argmax(heard)) - 80) / 16 == pytest.approx(1.0, abs=0.1)
