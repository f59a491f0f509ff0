"""Keys as tones: their frequencies by an independent formula (Goertzel), their lengths, their level."""

import numpy as np
import pytest

from vivavoce.adapters.audio.dtmf import encode_dtmf

# Source: ITU-T Q.23, table 1.
FREQUENCIES = {"1": (697, 1209), "5": (770, 1336), "9": (852, 1477), "0": (941, 1336), "#": (941, 1477)} | {
    "*": (941, 1209),
    "D": (941, 1633),
}
ALL = (697, 770, 852, 941, 1209, 1336, 1477, 1633)


def power(samples: np.ndarray, frequency: int, rate: int) -> float:
    at = np.arange(len(samples)) / rate
    return float(abs(np.exp(-2j * np.pi * frequency * at) @ samples) / len(samples))


@pytest.mark.parametrize("rate", [8_000, 24_000])
@pytest.mark.parametrize("key", FREQUENCIES)
def test_a_key_has_its_two_tones(key: str, rate: int) -> None:
    samples = np.frombuffer(encode_dtmf(key, rate), "<i2") / 32_768
    tone = samples[np.flatnonzero(samples)[0] : np.flatnonzero(samples)[-1]]
    assert 0.09 < len(tone) / rate < 0.11
    loudest = sorted(ALL, key=lambda frequency: power(tone, frequency, rate))[-2:]
    assert tuple(sorted(loudest)) == FREQUENCIES[key]
    assert np.abs(samples).max() < 0.5


def test_keys_have_gaps() -> None:
    loud = np.abs(np.frombuffer(encode_dtmf("12", 8_000), "<i2")) > 0
    assert not loud[:700].any() and not loud[1_650:2_350].any() and not loud[-700:].any()
