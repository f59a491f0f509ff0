"""What answered: by the lengths of speech and silence, and by tones. ``benches answer`` has real voices."""

import audioop

import numpy as np
import pytest

from vivavoce.adapters.answer_detector import AnswerDetector
from vivavoce.adapters.answerer import Answerer
from vivavoce.adapters.audio.formats.g711 import ulaw_decode, ulaw_encode

RATE = 8_000


def silence(seconds: float, dbfs: float = -64.0) -> bytes:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 32_768 * 10 ** (dbfs / 20), round(seconds * RATE))
    return np.rint(noise).astype("<i2").tobytes()


def tone(hertz: float, seconds: float, level: float = 0.2) -> bytes:
    phases = 2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE
    return np.rint(32_767 * level * np.sin(phases)).astype("<i2").tobytes()


def speech(seconds: float) -> bytes:
    """Harmonics of a voice whose pitch moves, in syllables of a quarter of a second."""
    at = np.arange(round(seconds * RATE)) / RATE
    pitch = 130 + 30 * np.sin(2 * np.pi * 1.3 * at)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(k * phase) / (1 + abs(k - 4) / 2) for k in range(1, 20))
    voice *= 0.25 + 0.75 * np.abs(np.sin(2 * np.pi * 2 * at))
    return np.rint(3_000 * voice).astype("<i2").tobytes()


def heard(*parts: bytes, rate: int = RATE) -> list[tuple[str, float]]:
    detector, results = AnswerDetector(), []
    pcm = ulaw_decode(ulaw_encode(b"".join(parts)))
    if rate != RATE:
        pcm = audioop.ratecv(pcm, 2, 1, RATE, rate, None)[0]
    size = 2 * rate // 50
    for start in range(0, len(pcm), size):
        results += detector.push(pcm[start : start + size], rate)
    return [(result.answerer.value, result.at_s) for result in results]


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_a_short_greeting_is_a_persons(rate: int) -> None:
    ((answerer, at_s),) = heard(silence(0.8), speech(0.7), silence(3), speech(9), rate=rate)
    assert answerer == "person" and 2.4 < at_s < 2.8


def test_a_long_greeting_is_a_machines_and_ends_with_its_beep() -> None:
    results = heard(silence(0.5), speech(6), silence(0.4), tone(1_000, 0.4), silence(5))
    assert [name for name, _ in results] == ["machine", "greeting_ended"]
    assert 3.7 < results[0][1] < 4.2 and 7.0 < results[1][1] < 7.4


def test_a_greeting_without_a_beep_ends_with_silence() -> None:
    results = heard(speech(6), silence(4))
    assert [name for name, _ in results] == ["machine", "greeting_ended"]
    assert 8.3 < results[1][1] < 8.8


@pytest.mark.parametrize("hertz", [1_100.0, 1_070.0, 1_130.0, 2_100.0])
def test_the_tones_of_a_fax_are_known_before_anything_is_said(hertz: float) -> None:
    ((answerer, at_s),) = heard(silence(1.0), tone(hertz, 0.7), silence(3))
    assert answerer == "fax" and at_s < 1.8


def test_nothing_is_silence_after_five_seconds() -> None:
    assert heard(silence(8)) == [("silence", 5.0)]


@pytest.mark.parametrize("dbfs", [-50.0, -42.0, -38.0])
def test_the_noise_of_a_line_is_neither_speech_nor_hides_it(dbfs: float) -> None:
    assert heard(silence(8, dbfs)) == [("silence", 5.0)]
    for before_s in (0.0, 1.0):
        ((answerer, at_s),) = heard(silence(before_s, dbfs), speech(0.7), silence(3, dbfs))
        assert answerer == "person" and 1.6 < at_s - before_s < 2.0


def test_a_click_is_no_speech_and_a_ringing_tone_no_fax() -> None:
    assert [
        name for name, _ in heard(silence(1), tone(425, 1.0), silence(0.5), tone(700, 0.06), silence(7))
    ] == ["silence"]


def test_a_greeting_that_never_ends_is_left_after_a_minute() -> None:
    assert [name for name, _ in heard(speech(70))] == ["machine", Answerer.GREETED.value]
