"""Voice activity detection of speech of the packaged voice, of noise and of tones."""

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.adapters.audiosocket.protocol import SAMPLE_RATE_OF_KIND
from vivavoce.adapters.voice_activity import VoiceActivityChange, VoiceActivityDetector
from vivavoce.tts_engine.engine import Engine

RATE = 24_000


@pytest.fixture(scope="module")
def speech() -> bytes:
    """Two seconds of silence, a sentence, two seconds of silence; s16le at 24 kHz."""

    async def speak() -> bytes:
        async with await Engine.open() as engine, engine.stream() as stream:
            stream.push_text("Excuse me, could I please talk to somebody about my bill?")
            stream.end_input()
            return b"".join([chunk.pcm async for chunk in stream])

    silence = bytes(2 * 2 * RATE)
    return silence + asyncio.run(speak()) + silence


def changes(pcm: bytes, sample_rate: int, *, push_ms: int = 20) -> list[VoiceActivityChange]:
    detector = VoiceActivityDetector()
    size = sample_rate * push_ms // 1000 * 2
    return [
        change
        for start in range(0, len(pcm), size)
        for change in detector.push(pcm[start : start + size], sample_rate)
    ]


def at_rate(pcm: bytes, sample_rate: int) -> bytes:
    if sample_rate == 8_000:
        down = Downsampler()
        return down.push(pcm) + down.drain()
    samples = np.frombuffer(pcm, "<i2")
    place = np.arange(len(samples) * sample_rate // RATE) * RATE / sample_rate
    return np.interp(place, np.arange(len(samples)), samples).astype("<i2").tobytes()


@pytest.mark.parametrize("sample_rate", SAMPLE_RATE_OF_KIND.values())
def test_a_sentence_has_one_beginning_and_one_end_at_any_rate(speech: bytes, sample_rate: int) -> None:
    begun, ended = changes(at_rate(speech, sample_rate), sample_rate)
    assert begun.speaking
    assert 2.0 < begun.at_s < 2.4
    assert not ended.speaking
    spoken_s = len(speech) / 2 / RATE - 4
    assert 2 + spoken_s + 0.2 < ended.at_s < 2 + spoken_s + 0.8


def test_any_split_of_the_audio_gives_the_same_changes(speech: bytes) -> None:
    assert (
        changes(speech, RATE, push_ms=20)
        == changes(speech, RATE, push_ms=60)
        == changes(speech, RATE, push_ms=1)
    )


def noise(level_dbfs: float) -> NDArray[np.int16]:
    samples = np.random.default_rng(0).standard_normal(5 * RATE) * 10 ** (level_dbfs / 20)
    return (samples.clip(-1, 1) * 32767).astype("<i2")


@pytest.mark.parametrize("level_dbfs", [-60, -45, -30])
def test_noise_is_not_speech(level_dbfs: float) -> None:
    assert changes(noise(level_dbfs).tobytes(), RATE) == []


def test_a_dtmf_tone_is_not_speech() -> None:
    time_s = np.arange(5 * RATE) / RATE
    tone = 0.2 * (np.sin(2 * np.pi * 697 * time_s) + np.sin(2 * np.pi * 1209 * time_s))
    tone[RATE // 10 :] = 0
    assert changes((tone * 32767).astype("<i2").tobytes(), RATE) == []


def test_silence_does_not_load_the_network() -> None:
    detector = VoiceActivityDetector()
    assert detector.push(bytes(2 * 16_000), 16_000) == []
    assert detector._network is None
