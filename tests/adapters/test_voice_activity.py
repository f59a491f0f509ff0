"""Voice activity detection of speech of the packaged voice, of noise and of tones.

``benches echo`` and ``benches speech-detection`` have other voices, levels and sounds.
"""

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.adapters.audio.formats.g711 import ulaw_decode, ulaw_encode
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.adapters.audiosocket.protocol import SAMPLE_RATE_OF_KIND
from vivavoce.adapters.speech_network import SpeechNetworkState, load_speech_network
from vivavoce.adapters.voice_activity import VoiceActivityChange, VoiceActivityDetector, _slowed, _Windows
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


@pytest.mark.parametrize("start_ms", range(0, 32, 4))
def test_a_caller_is_noticed_at_once_after_any_silence(speech: bytes, start_ms: int) -> None:
    telephone = ulaw_decode(ulaw_encode(at_rate(speech, 8_000)))
    loud = np.flatnonzero(np.abs(np.frombuffer(telephone, "<i2")) > 1_000)  # -30 dBFS
    begun = changes(bytes(16 * start_ms) + telephone, 8_000)[0]
    assert loud[0] / 8_000 < begun.at_s - start_ms / 1_000 < loud[0] / 8_000 + 0.1


@pytest.mark.parametrize("start_ms", [0, 8, 16, 24])
def test_a_high_voice_is_noticed_in_time(speech: bytes, start_ms: int) -> None:
    # Played 1.3 times as fast; the network alone notices it after 0.23 s.
    samples = np.frombuffer(speech, "<i2")
    high = np.interp(np.arange(0, len(samples) - 1, 1.3), np.arange(len(samples)), samples).astype("<i2")
    telephone = ulaw_decode(ulaw_encode(at_rate(high.tobytes(), 8_000)))
    loud = np.flatnonzero(np.abs(np.frombuffer(telephone, "<i2")) > 1_000)
    begun = changes(bytes(16 * start_ms) + telephone, 8_000)[0]
    assert 0 < begun.at_s - start_ms / 1_000 - loud[0] / 8_000 < 0.15


def test_a_pause_of_the_caller_does_not_change_what_is_heard_after_it(speech: bytes) -> None:
    first, second = [change.at_s for change in changes(at_rate(speech, 8_000) * 2, 8_000) if change.speaking]
    assert second - first == pytest.approx(len(speech) / 2 / RATE, abs=0.02)


def tones(*frequencies: int, seconds: float, pause_s: float) -> bytes:
    """Ten of them at -12 dBFS, s16le at 8 kHz."""
    time_s = np.arange(round(8_000 * seconds)) / 8_000
    tone = sum(np.sin(2 * np.pi * frequency * time_s) for frequency in frequencies) / len(frequencies)
    samples = np.concatenate([0.25 * tone, np.zeros(round(8_000 * pause_s))] * 10)
    return ulaw_decode(ulaw_encode((samples * 32767).astype("<i2").tobytes()))


@pytest.mark.parametrize(
    ("frequencies", "seconds", "pause_s"),
    [
        ((697, 1209), 0.1, 0.1),  # the key 1
        ((941, 1477), 0.1, 0.2),  # the key #
        ((425,), 0.24, 0.24),  # congested, in Europe
        ((480, 620), 0.5, 0.5),  # busy, in North America
        ((440, 480), 2.0, 1.0),  # ringing, in North America
        ((1_000,), 0.2, 1.0),  # the beep of a machine
    ],
)
def test_the_tones_of_a_telephone_are_not_speech(
    frequencies: tuple[int, ...], seconds: float, pause_s: float
) -> None:
    assert changes(tones(*frequencies, seconds=seconds, pause_s=pause_s), 8_000) == []


_DEEP_CHORD = pytest.mark.xfail(reason="chords as deep as a man's voice are taken for speech", strict=True)


@pytest.mark.parametrize("root_hz", [pytest.param(123, marks=_DEEP_CHORD), 165, 196, 220, 262, 330])
def test_chords_are_not_speech(root_hz: int) -> None:
    time_s = np.arange(8_000) / 8_000
    notes = [root_hz * ratio * harmonic for ratio in (1, 5 / 4, 3 / 2) for harmonic in range(1, 7)]
    chord = sum(np.sin(2 * np.pi * note * time_s) * root_hz / note for note in notes if note < 3_400)
    chord = 0.1 * chord * np.minimum(1, time_s / 0.01) * np.exp(-3 * time_s)
    samples = np.concatenate([np.zeros(4_000), chord] * 8)
    assert changes(ulaw_decode(ulaw_encode((samples * 32767).astype("<i2").tobytes())), 8_000) == []


def test_clicks_are_not_speech() -> None:
    numbers = np.random.default_rng(1)
    samples = np.zeros(20 * 8_000)
    for at in range(4_000, len(samples) - 800, 4_000):
        length = int(numbers.uniform(8, 400))
        samples[at : at + length] = (
            0.3 * numbers.normal(size=length) * np.exp(-4 * np.arange(length) / length)
        )
    assert changes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes(), 8_000) == []


def test_each_memory_hears_every_second_window_and_the_second_one_slower(speech: bytes) -> None:
    samples = (np.frombuffer(at_rate(speech, 16_000)[64_000:96_000], "<i2") / 32_768).astype(np.float32)
    probabilities = list(_Windows(np.zeros(512, np.float32))._probabilities(samples))
    network, line = load_speech_network(), np.concatenate([np.zeros(832, np.float32), samples])
    for first, heard in ((0, _slowed), (1, np.asarray)):
        state = SpeechNetworkState.empty()
        alone = [
            network.step(heard(line[start : start + 576]), state)
            for start in range(256 * first, len(line) - 575, 512)
        ]
        assert max(alone) > 0.9
        assert probabilities[first::2] == alone[1:]  # the first ones are of the history


def test_a_slowed_window_ends_with_the_sound_and_is_a_third_deeper() -> None:
    tone, deeper = (np.sin(2 * np.pi * hz * np.arange(-575, 1) / 16_000 + 1) for hz in (360, 240))
    assert _slowed(tone.astype(np.float32)) == pytest.approx(deeper, abs=0.01)


@pytest.mark.parametrize(
    ("first", "second", "windows"),
    [(0.96, 0.0, 1), (0.8, 0.55, 2), (0.3, 0.91, 4), (0.9, 0.05, 6), (0.8, 0.05, None)],
)
def test_a_voice_that_one_memory_doubts_is_noticed_later(
    first: float, second: float, windows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = _Windows(np.zeros(512, np.float32))
    doubts = [first, second] * 10
    monkeypatch.setattr(heard, "_probabilities", lambda samples: [doubts.pop(0)])
    begun = [heard.speech_begins(np.zeros(256, np.float32)) for _ in range(20)]
    assert (begun.index(True) + 1 if windows else any(begun)) == (windows or False)


def test_silence_is_not_given_to_the_network() -> None:
    detector = VoiceActivityDetector()
    assert detector.push(bytes(2 * 16_000), 16_000) == []
    assert detector._windows is None
    detector.push(noise(-30)[: RATE // 2].tobytes(), RATE)
    assert detector._windows is not None
    detector.push(bytes(2 * RATE // 10), RATE)
    assert detector._windows is None


def test_a_change_of_the_rate_begins_anew(speech: bytes) -> None:
    detector = VoiceActivityDetector()
    detector.push(at_rate(speech[: 2 * 2 * RATE], 8_000), 8_000)
    begun, ended = detector.push(speech[2 * 2 * RATE :], RATE)
    assert (begun.speaking, ended.speaking) == (True, False)
    assert 2.0 < begun.at_s < 2.4
