"""Bench of the answer detector: how often persons, machines and faxes are taken for something else.

Greetings of the packaged voice, at three pitches and through u-law with noise, begin 0.2 to 2 s after the
answer. Persons say nothing more; machines go on for 4 s and more, and beep, or do not. Faxes send their tone.
All of it is the same voice: other people's pauses and lengths are those that the sentences below have.
"""

import asyncio
import audioop
from collections import Counter
from typing import Final

import numpy as np

from benches.caller_speech.callers import to_pcm, to_samples
from vivavoce.adapters.answer_detector import AnswerDetector, Answerer
from vivavoce.adapters.audio.codecs import ulaw_decode, ulaw_encode
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.engine import Engine

_RATE: Final = 8_000
_BLOCK: Final = 320
_ONSET_DBFS: Final = -35.0
_PITCHES: Final = (0.875, 1.0, 1.225)
_BEEPS_HZ: Final = (440, 800, 1_000, 1_100, 1_400, 2_100)
_PERSONS: Final = (
    "Hello?",
    "Yes?",
    "Miller.",
    "Hello, this is Anna Miller.",
    "Hi, who is this?",
    "Good morning, Miller and Sons.",
    "Anna speaking, hello?",
    "Miller residence, good evening.",
    "City hospital, ward four, nurse Kelly.",
    "Thanks for calling Bright Dental, how can I help you?",
)
_MACHINES: Final = (
    "Hi, you have reached Anna Miller. I cannot come to the phone right now. Please leave a message.",
    "The person you are calling is not available. Please leave your message after the tone.",
    "Hello, this is Tom. I am probably at work, so leave your name and number, and I will call you back.",
    "Thank you for calling Miller and Sons. Our office is closed. We are open from nine to five.",
    "Your call has been forwarded to an automated voice messaging system. At the tone, record your message.",
    "You have reached the mailbox of five five five, zero one nine nine. Please speak after the beep.",
)

Samples = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def measure(rounds: int) -> BenchReport:
    """Try each greeting at each pitch so many times, at other moments and in other noise."""
    rng = np.random.default_rng(1)
    persons, machines = asyncio.run(_speak(_PERSONS)), asyncio.run(_speak(_MACHINES))
    found: dict[str, Counter[str]] = {kind: Counter() for kind in ("person", "machine", "fax", "silence")}
    early = 0
    for _ in range(rounds):
        for voice in persons:
            found["person"][_first(_heard([voice], rng))] += 1
        for number, voice in enumerate(machines):
            beep = _tone(_BEEPS_HZ[number % 6], 0.3 + 0.1 * (number % 3)) if number % 4 else _tone(0, 0.1)
            results = _heard([voice, _tone(0, 0.5), beep], rng)
            found["machine"][_first(results)] += 1
            ends = [at_s for answerer, at_s in results if answerer is Answerer.GREETED]
            early += any(at_s < 0.2 + len(voice) / _RATE for at_s in ends)
        for number in range(len(machines)):
            hertz = rng.uniform(1_065, 1_135) if number % 2 else rng.uniform(2_085, 2_115)
            found["fax"][_first(_heard([_tone(hertz, 0.5 if number % 2 else 2.6)], rng))] += 1
            found["silence"][_first(_heard([], rng))] += 1
    figures = []
    for kind, counts in found.items():
        wrong = counts.total() - counts[kind]
        as_what = ", ".join(f"{name} {count}" for name, count in counts.items() if name != kind)
        figures.append(BenchFigure(f"{kind}: wrong {as_what}".strip(), wrong, f"of {counts.total()}"))
    figures.append(BenchFigure("greetings said to be over before they were", early, "calls"))
    return BenchReport("answer", tuple(figures), {"rounds": rounds})


async def _speak(texts: tuple[str, ...]) -> list[Samples]:
    voices = []
    async with await Engine.open() as engine:
        for seed, text in enumerate(texts):
            async with engine.stream(seed=seed) as stream:
                stream.push_text(text)
                stream.end_input()
                pcm = b"".join([chunk.pcm async for chunk in stream])
            spoken = to_samples(audioop.ratecv(pcm, 2, 1, 24_000, _RATE, None)[0])
            voices += [at_pitch(spoken, pitch) for pitch in _PITCHES]
    return voices


def _heard(parts: list[Samples], rng: np.random.Generator) -> list[tuple[Answerer, float]]:
    """Return what is detected in a call of 30 s."""
    call = np.zeros(30 * _RATE)
    at = round(rng.uniform(0.2, 2.0) * _RATE)
    gain = 10 ** (rng.uniform(-15, 0) / 20)
    for part in parts:
        call[at : at + len(part)] += gain * part
        at += len(part)
    call += rng.normal(size=len(call)) * 10 ** (rng.uniform(-70, -50) / 20)
    pcm = ulaw_decode(ulaw_encode(to_pcm(call)))
    detector = AnswerDetector()
    blocks = (pcm[start : start + _BLOCK] for start in range(0, len(pcm), _BLOCK))
    return [(result.answerer, result.at_s) for block in blocks for result in detector.push(block, _RATE)]


def _first(results: list[tuple[Answerer, float]]) -> str:
    return results[0][0].value if results else "nothing"


def _tone(hertz: float, seconds: float) -> Samples:
    tone: Samples = 0.2 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * _RATE)) / _RATE)
    return tone


def at_pitch(voice: Samples, factor: float) -> Samples:
    """The voice from its onset on, faster and higher by a factor."""
    pcm = audioop.ratecv(to_pcm(voice), 2, 1, round(_RATE * factor), _RATE, None)[0]
    return _from_onset(to_samples(pcm))


def _from_onset(voice: Samples) -> Samples:
    """The voice from its first 10 ms above -35 dBFS on."""
    level = np.sqrt(np.convolve(voice**2, np.full(80, 1 / 80), "valid"))
    return voice[int(np.argmax(level > 10 ** (_ONSET_DBFS / 20))) :]
