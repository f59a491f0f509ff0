"""Bench of speech detection alone: when callers are noticed, what else is taken for speech, what it costs.

Six voices (Piper's joe, five of Kokoro) speak 16 sentences each at three levels, over u-law and A-law, on a
quiet line, a noisy one and in an office. Sounds that are no speech last two minutes each. Needs the extra
[test-voices].
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from rich.console import Console

from benches.caller_speech.callers import (
    LINE_NOISE_DBFS,
    NOTICED_S,
    OWN_SENTENCES,
    PACKET,
    RATE,
    CallerClip,
    Samples,
    alaw_line,
    callers,
    noise,
    speak,
    ulaw_line,
)
from benches.caller_speech.sounds import office, sounds
from vivavoce.adapters.voice_activity import VoiceActivityDetector
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_LEVELS_DBFS: Final = (-20.0, -27.0, -35.0)
_BEFORE_SAMPLES: Final = 8_000
_AFTER_SAMPLES: Final = 6_400

Line = Callable[[Samples], bytes]


def measure(seconds: float) -> BenchReport:
    """Measure with that much of each sound at each level."""
    Console(stderr=True).print("The packaged voice speaks, and six callers.")
    talkers, clips = asyncio.run(speak("default", OWN_SENTENCES)), callers()
    numbers = np.random.default_rng(7)
    figures = [
        figure
        for place, background in (
            ("quiet line", lambda samples: noise(samples, LINE_NOISE_DBFS, numbers)),
            ("noisy line", lambda samples: noise(samples, -48, numbers)),
            ("office", lambda samples: office(samples, talkers, -48, numbers)),
        )
        for dbfs in _LEVELS_DBFS
        for figure in _noticed(clips, dbfs, place, background, numbers)
    ]
    return BenchReport(
        "speech-detection", (*figures, *_false_starts(seconds, talkers, numbers)), {"seconds": seconds}
    )


def _noticed(
    clips: Sequence[CallerClip],
    dbfs: float,
    place: str,
    background: Callable[[int], Samples],
    numbers: np.random.Generator,
) -> list[BenchFigure]:
    after_s: dict[str, list[float]] = {}
    for number, clip in enumerate(clips):
        at = _BEFORE_SAMPLES + int(numbers.integers(0, 512))
        call = np.concatenate([np.zeros(at), clip.at_level(dbfs)])[: at + clip.onset + _AFTER_SAMPLES]
        line = alaw_line if number % 2 else ulaw_line
        begun, _ = detected(line(call + background(len(call))))
        onset_s = (at + clip.onset) / RATE
        after_s.setdefault(clip.voice, []).append(
            next((when - onset_s for when in begun if when >= onset_s), float("inf"))
        )
    everyone = np.concatenate(list(after_s.values()))
    counts = ", ".join(f"{voice} {_in_time(times)}" for voice, times in sorted(after_s.items()))
    median, late = 1_000 * np.percentile(everyone, [50, 95], method="lower")
    where = f"{place}, {dbfs:.0f} dBFS"
    return [
        BenchFigure(f"noticed in 150 ms, {where} ({counts})", _in_time(everyone), f"of {len(everyone)}"),
        BenchFigure(f"noticed after, median, {where}", float(median), "ms"),
        BenchFigure(f"noticed after, 95 of 100, {where}", float(late), "ms"),
    ]


def _in_time(after_s: Sequence[float] | Samples) -> int:
    return int((np.array(after_s) <= NOTICED_S).sum())


def _false_starts(
    seconds: float, talkers: Sequence[Samples], numbers: np.random.Generator
) -> list[BenchFigure]:
    figures = []
    for name, made in sounds(seconds, talkers, numbers).items():
        begun = processor_s = 0.0
        for sound in made:
            times, spent_s = detected(ulaw_line(sound))
            begun, processor_s = begun + len(times), processor_s + spent_s
        minutes = len(made) * seconds / 60
        figures += [
            BenchFigure(f"false starts, {name}", begun, f"in {minutes:.0f} min"),
            BenchFigure(f"processor a second, {name}", 1_000 * processor_s / (60 * minutes), "ms"),
        ]
    return figures


def detected(pcm: bytes) -> tuple[list[float], float]:
    """Return the seconds at which speech was noticed, with the packet that told, and the processor time."""
    detector, begun = VoiceActivityDetector(), []
    started = time.process_time()
    for start in range(0, len(pcm), 2 * PACKET):
        changes = detector.push(pcm[start : start + 2 * PACKET], RATE)
        begun += [(start / 2 + PACKET) / RATE for change in changes if change.speaking]
    return begun, time.process_time() - started
