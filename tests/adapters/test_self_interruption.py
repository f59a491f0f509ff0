"""A call does not take the echo of its own voice for a caller: echo filter and detector, with a real voice.

``benches echo`` has more sentences, and callers who speak over the echo.
"""

import asyncio

import numpy as np
import pytest

from benches.caller_speech.callers import LINE_NOISE_DBFS, Samples, noise, speak
from benches.echo import echo_of, speech_begun

SENTENCES = (
    "Please tell me your number.",
    "I did not understand that.",
    "Welcome to the library.",
    "Shall I read the list again?",
    "It left our warehouse today.",
    "Thank you for calling.",
)
ECHOES = (  # dB, ms
    (-12, 93),
    (-30, 250),
    (-12, 20),
    (-20, 250),
    (-16, 180),
    (-12, 250),
)


@pytest.fixture(scope="module")
def voices() -> list[Samples]:
    """Each sentence after 0.3 s of silence, and before half a second of it."""
    return [np.pad(samples, (2_400, 4_000)) for samples in asyncio.run(speak("default", SENTENCES))]


@pytest.mark.parametrize("in_room", [False, True], ids=["straight", "in a room"])
def test_the_echo_of_our_own_voice_is_no_caller(voices: list[Samples], in_room: bool) -> None:
    numbers = np.random.default_rng(1)
    for voice, (db, ms) in zip(voices, ECHOES, strict=True):
        heard = echo_of(voice, db, ms, in_room, numbers) + noise(len(voice), LINE_NOISE_DBFS, numbers)
        assert speech_begun(voice, heard) == [], (db, ms)


def test_the_same_audio_is_a_caller_if_it_is_not_our_own(voices: list[Samples]) -> None:
    numbers = np.random.default_rng(1)
    heard = echo_of(voices[0], -12, 93, room=False, numbers=numbers)
    assert speech_begun(np.zeros(len(heard)), heard)
