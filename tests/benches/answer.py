"""Bench of the answer detector: how often persons, machines and faxes are taken for something else.

Greetings of five voices (the packaged one, Piper's joe, one of Kokoro, two of espeak-ng) begin 0.2 to 2 s
after the answer, over u-law, on a quiet line and on a noisy one. Persons say nothing more. Machines beep, or
do not. Faxes send their tone. What the detector cannot know, persons of a long sentence and machines of a
short one, is counted apart. Needs the extra [test-voices] and espeak-ng.
"""

import asyncio
import audioop
import io
import subprocess
import tempfile
import wave
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benches.caller_speech.callers import RATE, Samples, noise, onset, speak, to_samples, ulaw_line
from shared.voices.installed_voices import write_joe_folder, write_kokoro_folder
from vivavoce.adapters.answer_detector import AnswerDetector
from vivavoce.adapters.answerer import Answerer
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_CALL_S: Final = 24
_BLOCK: Final = 320  # bytes
_PAUSE: Final = " | "  # between two sentences, of 0.4 to 0.9 s
_KOKORO: Final = "jm_kumo"
_ESPEAK: Final = ("en-us", "en-gb+f3")
_BEEPS_HZ: Final = (0, 440, 800, 1_000, 1_100, 1_400, 2_100)  # 0: none
_LINES_DBFS: Final = {"quiet line": (-70, -55), "noisy line": (-50, -40)}
_GREETINGS: Final = {
    "person": (
        "Hello?",
        "Yes?",
        "Miller.",
        "Hello, this is Anna Miller.",
        "Hi, who is this?",
        "Good morning, Miller and Sons.",
        "Miller residence, good evening.",
        "City hospital, ward four, nurse Kelly.",
        "Hello? | Hello?",
        "Yeah, hang on. | Okay, hello?",
    ),
    "person, long sentence": (
        "Good afternoon, Bright Dental, this is Kelly speaking, what can I do for you?",
        "Thank you for calling Miller and Sons, my name is Tom, how may I help you today?",
    ),
    "machine": (
        "Hi, you have reached Anna Miller. | I cannot come to the phone right now. Please leave a message.",
        "The person you are calling is not available. Please leave your message after the tone.",
        "Hello. | This is Tom. | I am at work, so leave your name and number, and I will call you back.",
        "Thank you for calling Miller and Sons. Our office is closed. | We are open from nine to five.",
        "You have reached the mailbox of five five five, zero one nine nine. Please speak after the beep.",
    ),
    "machine, short sentence": (
        "Hi, it's Anna, leave a message.",
        "This is Tom. | You know what to do.",
    ),
}


@dataclass(frozen=True, slots=True)
class _Greeting:
    voice: str
    kind: str
    sentences: tuple[Samples, ...]  # between pauses


def measure(rounds: int) -> BenchReport:
    """Try each greeting on each line so many times, at other moments and levels."""
    greetings, numbers = _speak_all(), np.random.default_rng(1)
    figures = []
    for line, (lowest, highest) in _LINES_DBFS.items():
        results: dict[str, list[tuple[str, str]]] = {}
        early = 0
        for greeting in greetings * rounds:
            hiss = float(numbers.uniform(lowest, highest))
            parts = _with_pauses(greeting.sentences, numbers)
            if greeting.kind.startswith("machine"):
                beep = _tone(float(numbers.choice(_BEEPS_HZ)), numbers.uniform(0.2, 0.6))
                found, begun_s = _heard([*parts, np.zeros(RATE // 2), beep], hiss, numbers)
            else:
                found, begun_s = _heard(parts, hiss, numbers)
            spoken_s = begun_s + sum(map(len, parts)) / RATE
            results.setdefault(greeting.kind, []).append((greeting.voice, _first(found)))
            ends = [at_s for answerer, at_s in found if answerer is Answerer.GREETED]
            early += any(at_s < spoken_s for at_s in ends)
        for number in range(24 * rounds):
            hertz = numbers.uniform(1_065, 1_135) if number % 2 else numbers.uniform(2_085, 2_115)
            fax = _tone(hertz, 0.5 if number % 2 else 2.6)
            hiss = float(numbers.uniform(lowest, highest))
            for kind, parts in (("fax", [fax]), ("silence", [])):
                results.setdefault(kind, []).append(("tone", _first(_heard(parts, hiss, numbers)[0])))
        figures += [_figure(kind, line, found) for kind, found in results.items()]
        figures.append(BenchFigure(f"greetings said to be over before they were, {line}", early, "calls"))
    return BenchReport("answer", tuple(figures), {"rounds": rounds})


def _figure(kind: str, line: str, results: Sequence[tuple[str, str]]) -> BenchFigure:
    wrong = [(voice, taken) for voice, taken in results if taken != kind.partition(",")[0]]
    names = Counter(f"{voice} {taken}" for voice, taken in wrong)
    of_whom = ", ".join(f"{name} {count}" for name, count in sorted(names.items())) or "none"
    return BenchFigure(f"{kind}, wrong ({of_whom}), {line}", len(wrong), f"of {len(results)}")


def _speak_all() -> list[_Greeting]:
    """Raises VoiceNotInstalled."""
    texts = [(kind, text) for kind, of_kind in _GREETINGS.items() for text in of_kind]
    sentences = [sentence for _, text in texts for sentence in text.split(_PAUSE)]
    greetings = []
    with tempfile.TemporaryDirectory() as piper, tempfile.TemporaryDirectory() as kokoro:
        joe, five = str(write_joe_folder(Path(piper))), str(write_kokoro_folder(Path(kokoro)))
        spoken = {
            "packaged": asyncio.run(speak("default", sentences)),
            "joe": asyncio.run(speak(joe, sentences)),
            _KOKORO: asyncio.run(speak(five, sentences, _KOKORO)),
            **{voice: [_espeak(voice, sentence) for sentence in sentences] for voice in _ESPEAK},
        }
    for voice, samples in spoken.items():
        waiting = iter([_audible(one) for one in samples])
        for kind, text in texts:
            count = text.count(_PAUSE) + 1
            greetings.append(_Greeting(voice, kind, tuple(next(waiting) for _ in range(count))))
    return greetings


def _espeak(voice: str, text: str) -> Samples:
    """A sentence of espeak-ng at 8 kHz."""
    command = ["espeak-ng", "-v", voice, "--stdout", text]
    spoken = subprocess.run(command, check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(spoken)) as file:
        rate, pcm = file.getframerate(), file.readframes(len(spoken))
    return to_samples(audioop.ratecv(pcm, 2, 1, rate, RATE, None)[0])


def _audible(samples: Samples) -> Samples:
    """A sentence without the silence around it."""
    return samples[onset(samples) : len(samples) - onset(samples[::-1])]


def _with_pauses(sentences: Sequence[Samples], numbers: np.random.Generator) -> list[Samples]:
    parts = [sentences[0]]
    for sentence in sentences[1:]:
        parts += [np.zeros(round(numbers.uniform(0.4, 0.9) * RATE)), sentence]
    return parts


def _heard(
    parts: Sequence[Samples], hiss_dbfs: float, numbers: np.random.Generator
) -> tuple[list[tuple[Answerer, float]], float]:
    """Return what is detected in a call, and when its greeting begins (s)."""
    call = noise(_CALL_S * RATE, hiss_dbfs, numbers)
    begun_s = float(numbers.uniform(0.2, 2.0))
    at, gain = round(begun_s * RATE), 10 ** (numbers.uniform(-15, 0) / 20)
    for part in parts:
        call[at : at + len(part)] += gain * part
        at += len(part)
    pcm, detector = ulaw_line(call), AnswerDetector()
    blocks = (pcm[start : start + _BLOCK] for start in range(0, len(pcm), _BLOCK))
    results = [result for block in blocks for result in detector.push(block, RATE)]
    return [(result.answerer, result.at_s) for result in results], begun_s


def _first(results: Sequence[tuple[Answerer, float]]) -> str:
    return results[0][0].value if results else "nothing"


def _tone(hertz: float, seconds: float) -> Samples:
    tone: Samples = 0.2 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)
    return tone
