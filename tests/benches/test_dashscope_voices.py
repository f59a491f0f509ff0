"""The DashScope bench: its server of tone voices, and its check for the audio of another voice."""

import asyncio

import numpy as np

from benches import dashscope_voices as bench


def test_the_speech_of_twenty_clients_is_not_mixed_up() -> None:
    (mixed,) = asyncio.run(bench.voice_isolation_figures())
    assert (mixed.value, mixed.at_most) == (0, 0)


def tone(pitch_hz: int, seconds: float) -> bytes:
    samples = 8_000 * np.sin(2 * np.pi * pitch_hz * np.arange(round(24_000 * seconds)) / 24_000)
    return bytes(samples.astype("<i2").tobytes())


def test_a_tenth_of_a_second_of_another_voice_is_detected() -> None:
    assert bench._is_single_tone(tone(600, 0.8) + bytes(9_600), 600)
    assert not bench._is_single_tone(tone(600, 0.8), 750)
    assert not bench._is_single_tone(tone(600, 0.4) + tone(750, 0.1) + tone(600, 0.3), 600)
    assert not bench._is_single_tone(bytes(48_000), 600)
