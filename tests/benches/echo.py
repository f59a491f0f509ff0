"""Bench of the call's own voice in the caller's audio: how often it interrupts itself, and misses a caller.

Sentences of the packaged voice are played; they come back after 20 to 250 ms, 12 to 30 dB weaker, in u-law
and with some noise, once straight and once through the tail of a small room. A call interrupts itself if
speech is detected in that. Then a caller, Piper's joe, begins to speak over it at random, and is noticed if
speech is detected within 150 ms of the first 10 ms above -35 dBFS. The caller alone shows what the detector
does without any echo. Needs the extra [test-voices].
"""

import asyncio
import audioop
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from shared.voices.installed_voices import write_joe_folder
from vivavoce.adapters.audio.codecs import ulaw_decode, ulaw_encode
from vivavoce.adapters.echo_filter import ECHO_RATE, EchoFilter
from vivavoce.adapters.voice_activity import VoiceActivityDetector
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.engine import Engine

_PACKET: Final = 160
_NOTICED_S: Final = 0.15
_NOISE_DBFS: Final = -62.0
_ONSET_DBFS: Final = -35.0
_SENTENCES: Final = (
    "Good morning, this is the office of the city, how can I help you today?",
    "Your appointment is on Tuesday at half past three.",
    "Please tell me the number of your contract.",
    "I am sorry, I did not understand that.",
    "We have three rooms left for that night, the cheapest is eighty euros.",
    "The parcel was delivered yesterday to your neighbour.",
    "Would you like to speak with a colleague of mine?",
    "Please wait a moment, I am looking that up for you.",
    "Thank you for calling, and have a nice day.",
    "The next train to Hamburg leaves at ten past nine from platform four.",
)

Samples = NDArray[np.float64]


@dataclass(slots=True)
class _Score:
    interrupted: int = 0
    noticed: int = 0
    noticed_alone: int = 0


def measure(sentences: int) -> BenchReport:
    """Play that many sentences in each of the two ways."""
    console = Console(stderr=True)
    console.print("The packaged voice speaks the sentences.")
    spoken = asyncio.run(_speak("default"))
    console.print("The callers speak theirs.")
    with tempfile.TemporaryDirectory() as folder:
        callers = list(map(from_onset, asyncio.run(_speak(str(write_joe_folder(Path(folder)))))))
    figures = []
    for room in (False, True):
        numbers = np.random.default_rng(1)
        score = _Score()
        for number in track(range(sentences), "Echoes", console=console):
            _play(spoken, callers, number, room, numbers, score)
        way = "in a room" if room else "straight"
        figures += [
            BenchFigure(f"self-interruptions, {way}", score.interrupted, f"of {sentences}", at_most=0),
            BenchFigure(
                f"callers noticed within 150 ms, {way}",
                score.noticed,
                f"of {sentences}",
                at_least=0.98 * sentences,
            ),
            BenchFigure(f"the same callers without echo, {way}", score.noticed_alone, f"of {sentences}"),
        ]
    return BenchReport("echo", tuple(figures), {"sentences": sentences})


async def _speak(bundle: str) -> list[Samples]:
    spoken = []
    async with await Engine.open(bundle) as engine:
        for seed, text in enumerate(_SENTENCES):
            async with engine.stream(seed=seed) as stream:
                stream.push_text(text)
                stream.end_input()
                pcm = b"".join([chunk.pcm async for chunk in stream])
            spoken.append(to_samples(audioop.ratecv(pcm, 2, 1, 24_000, ECHO_RATE, None)[0]))
    return spoken


def _play(
    spoken: Sequence[Samples],
    callers: Sequence[Samples],
    number: int,
    room: bool,
    numbers: np.random.Generator,
    score: _Score,
) -> None:
    first, second = spoken[number % 10], spoken[(3 * number + 1) % 10]
    voice = np.concatenate([np.zeros(2_400), first, np.zeros(1_200), second, np.zeros(4_000)])
    noise = numbers.normal(size=len(voice)) * 10 ** (_NOISE_DBFS / 20)
    echo = _echo(
        voice, numbers.uniform(-30, -12) if number % 4 else -12, numbers.uniform(20, 250), room, numbers
    )
    score.interrupted += bool(_begun(voice, echo + noise))
    caller = callers[(7 * number) % 10]
    at = int(numbers.uniform(4_000, len(voice) - 16_000))
    over = np.zeros(len(voice))
    over[at : at + len(caller)] = caller[: len(voice) - at]
    score.noticed += _is_noticed(_begun(voice, echo + noise + over), at)
    score.noticed_alone += _is_noticed(_begun(np.zeros(len(voice)), noise + over), at)


def _is_noticed(begun: Sequence[float], at: int) -> bool:
    return any(0 <= when - at / ECHO_RATE <= _NOTICED_S for when in begun)


def _begun(voice: Samples, heard: Samples) -> list[float]:
    """Seconds at which speech was detected."""
    echo, detector = EchoFilter(), VoiceActivityDetector()
    played, received = to_pcm(voice), ulaw_decode(ulaw_encode(to_pcm(heard)))
    begun = []
    for start in range(0, len(received), 2 * _PACKET):
        left = echo.remove(received[start : start + 2 * _PACKET], ECHO_RATE)
        echo.play(played[start : start + 2 * _PACKET], ECHO_RATE)
        changes = detector.push(left, ECHO_RATE)
        begun += [(start / 2 + _PACKET) / ECHO_RATE for change in changes if change.speaking]
    return begun


def _echo(voice: Samples, db: float, ms: float, room: bool, numbers: np.random.Generator) -> Samples:
    delay = round(ms * ECHO_RATE / 1000)
    path = np.zeros(delay + 160)
    path[delay] = 1.0
    if room:
        path[delay:] += 0.35 * numbers.normal(size=160) * np.exp(-np.arange(160) / 25)
    path *= 10 ** (db / 20) / np.sqrt(np.sum(path**2))
    echo: Samples = np.convolve(voice, path)[: len(voice)]
    return echo


def from_onset(voice: Samples) -> Samples:
    """The voice from its first 10 ms above -35 dBFS on."""
    level = np.sqrt(np.convolve(voice**2, np.full(80, 1 / 80), "valid"))
    return voice[int(np.argmax(level > 10 ** (_ONSET_DBFS / 20))) :]


def to_samples(pcm: bytes) -> Samples:
    """Return s16le as samples from -1 to 1."""
    return np.frombuffer(pcm, "<i2") / 32_768


def to_pcm(samples: Samples) -> bytes:
    """Return samples from -1 to 1 as s16le."""
    return np.clip(np.rint(32_768 * samples), -32_768, 32_767).astype("<i2").tobytes()
