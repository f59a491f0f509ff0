"""Bench of the call's own voice in the caller's audio: how often it interrupts itself, and misses a caller.

Sentences of the packaged voice are played; they come back after 20 to 250 ms, 12 to 30 dB weaker, in u-law
and with some noise, once straight and once through the tail of a small room. A call interrupts itself if
speech is detected in that. Then a caller of -20 to -30 dBFS, in one of six voices, begins to speak over it at
random, and is noticed if speech is detected within 150 ms of the onset. The caller alone shows what the
detector does without any echo. Needs the extra [test-voices]; its processor time is that of a server with
OPENBLAS_NUM_THREADS=1 in the environment, which ``vivavoce`` sets.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.progress import track

from benches.caller_speech.callers import (
    LINE_NOISE_DBFS,
    NOTICED_S,
    PACKET,
    RATE,
    SENTENCE_SETS,
    CallerClip,
    Samples,
    callers,
    noise,
    speak,
    to_pcm,
    ulaw_line,
)
from vivavoce.adapters.echo_filter import ECHO_RATE, EchoFilter
from vivavoce.adapters.voice_activity import VoiceActivityDetector
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport


@dataclass(slots=True)
class _Score:
    interrupted: int = 0
    after_s: list[float] = field(default_factory=list)  # the onset, over the echo; inf: not at all
    alone_after_s: list[float] = field(default_factory=list)  # without the echo
    voices: list[str] = field(default_factory=list)
    processor_s: float = 0.0
    audio_s: float = 0.0


def measure(sentences: int, sentence_set: str) -> BenchReport:
    """Play that many sentences of a set in each of the two ways."""
    console = Console(stderr=True)
    console.print("The packaged voice speaks the sentences, and six callers theirs.")
    own_texts, caller_texts = SENTENCE_SETS[sentence_set]
    spoken, clips = asyncio.run(speak("default", own_texts)), callers(caller_texts)
    figures: list[BenchFigure] = []
    for room in (False, True):
        numbers = np.random.default_rng(1)
        score = _Score()
        for number in track(range(sentences), "Echoes", console=console):
            _play(spoken, clips[number % len(clips)], number, room, numbers, score)
        figures += _figures(score, "in a room" if room else "straight", sentences)
    return BenchReport("echo", tuple(figures), {"sentences": sentences, "set": sentence_set})


def _figures(score: _Score, way: str, sentences: int) -> list[BenchFigure]:
    noticed = np.array(score.after_s) <= NOTICED_S
    of = f"of {sentences}"
    missed = [voice for voice, is_noticed in zip(score.voices, noticed, strict=True) if not is_noticed]
    names = ", ".join(f"{voice} {missed.count(voice)}" for voice in sorted(set(missed))) or "none"
    median, late = 1_000 * np.percentile(score.after_s, [50, 95], method="lower")
    share = 1_000 * score.processor_s / score.audio_s
    return [
        BenchFigure(f"self-interruptions, {way}", score.interrupted, of, at_most=0),
        BenchFigure(
            f"callers noticed within 150 ms, {way}", int(noticed.sum()), of, at_least=0.98 * sentences
        ),
        BenchFigure(f"missed ({names}), {way}", len(missed), of),
        BenchFigure(f"noticed after, median, {way}", float(median), "ms"),
        BenchFigure(f"noticed after, 95 of 100, {way}", float(late), "ms"),
        BenchFigure(
            f"the same callers without echo, {way}",
            int((np.array(score.alone_after_s) <= NOTICED_S).sum()),
            of,
        ),
        BenchFigure(f"processor a second of call, {way}", share, "ms"),
    ]


def _play(
    spoken: Sequence[Samples],
    caller: CallerClip,
    number: int,
    room: bool,
    numbers: np.random.Generator,
    score: _Score,
) -> None:
    first, second = spoken[number % 10], spoken[(3 * number + 1) % 10]
    voice = np.concatenate([np.zeros(2_400), first, np.zeros(1_200), second, np.zeros(4_000)])
    hiss = noise(len(voice), LINE_NOISE_DBFS, numbers)
    db = numbers.uniform(-30, -12) if number % 4 else -12
    echo = echo_of(voice, db, numbers.uniform(20, 250), room, numbers)
    over, at = np.zeros(len(voice)), int(numbers.uniform(4_000, len(voice) - 16_000))
    samples = caller.at_level(numbers.uniform(-30, -20))[: len(voice) - at]
    over[at : at + len(samples)] = samples
    onset_s = (at + caller.onset) / RATE
    begun = time.process_time()
    score.interrupted += bool(speech_begun(voice, echo + hiss))
    score.processor_s += time.process_time() - begun
    score.audio_s += len(voice) / RATE
    score.voices.append(caller.voice)
    score.after_s.append(_after(onset_s, speech_begun(voice, echo + hiss + over)))
    score.alone_after_s.append(_after(onset_s, speech_begun(np.zeros(len(voice)), hiss + over)))


def _after(onset_s: float, begun: Sequence[float]) -> float:
    return next((when - onset_s for when in begun if when >= onset_s), float("inf"))


def speech_begun(voice: Samples, heard: Samples) -> list[float]:
    """Seconds at which the packet had arrived in which speech was detected."""
    echo, detector = EchoFilter(), VoiceActivityDetector()
    played, received = to_pcm(voice), ulaw_line(heard)
    begun = []
    for start in range(0, len(received), 2 * PACKET):
        left = echo.remove(received[start : start + 2 * PACKET], RATE)
        echo.play(played[start : start + 2 * PACKET], RATE)
        changes = detector.push(left, ECHO_RATE)
        begun += [(start / 2 + PACKET) / RATE for change in changes if change.speaking]
    return begun


def echo_of(voice: Samples, db: float, ms: float, room: bool, numbers: np.random.Generator) -> Samples:
    delay = round(ms * RATE / 1000)
    path = np.zeros(delay + 160)
    path[delay] = 1.0
    if room:
        path[delay:] += 0.35 * numbers.normal(size=160) * np.exp(-np.arange(160) / 25)
    path *= 10 ** (db / 20) / np.sqrt(np.sum(path**2))
    echo: Samples = np.convolve(voice, path)[: len(voice)]
    return echo
