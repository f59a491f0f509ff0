"""First audio of a voice in an engine, without a phone: from the push of a ten-word clause to its sound.

The voices are the packaged one, those of the extra ``test-voices``, or any folder.
"""

import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from shared.voices.installed_voices import write_joe_folder, write_kokoro_folder
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cli.bench.trace import percentile
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk
from vivavoce.tts_engine.engine import Engine

CLAUSES = (
    "Your order has shipped and should arrive on Tuesday morning.",
    "The technician will be with you between nine and noon.",
    "Please hold the line while I transfer you to billing.",
    "I can see that your last payment arrived this morning.",
    "The store on Main Street is open until nine tonight.",
    "You can change the delivery address until nine this evening.",
    "We have sent a new password to your email address.",
    "Let me look up your account while we are talking.",
    "There are two seats left on the early train tomorrow.",
    "My colleague will call you back within the next hour.",
)
_AUDIBLE = 32768 * 10 ** (-50 / 20)


class InstalledVoice(StrEnum):
    """A voice that a package brings."""

    PACKAGED = "packaged"
    PIPER = "piper"
    KOKORO = "kokoro"


MAX_FIRST_AUDIO_MS = {InstalledVoice.PIPER: 120.0, InstalledVoice.KOKORO: 900.0}


@dataclass(frozen=True, slots=True)
class SpokenClause:
    """Times of one clause."""

    first_audio_s: float  # from the push of its text
    whole_s: float  # from the push to the last chunk
    speech_s: float


def measure(voice: InstalledVoice, bundle: Path | None, utterances: int) -> BenchReport:
    """Measure a voice, or the first one of a folder. Raises VoiceNotInstalled, BundleError."""
    with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder:
        spoken = asyncio.run(_speak(str(bundle) if bundle else folder_of(voice, Path(folder)), utterances))
    first_ms = [1000 * clause.first_audio_s for clause in spoken]
    target_ms = None if bundle else MAX_FIRST_AUDIO_MS.get(voice)
    return BenchReport(
        "first-audio",
        (
            BenchFigure("first audio of a 10-word clause, p50", percentile(first_ms, 50), "ms", target_ms),
            BenchFigure("first audio of a 10-word clause, p95", percentile(first_ms, 95), "ms"),
            BenchFigure(
                "time to render 1 s of speech",
                statistics.median(clause.whole_s / clause.speech_s for clause in spoken),
                "s",
            ),
        ),
        {"voice": bundle.name if bundle else voice, "utterances": utterances},
    )


def folder_of(voice: InstalledVoice, folder: Path) -> str:
    """The bundle of a voice, written to an empty folder. Raises VoiceNotInstalled."""
    match voice:
        case InstalledVoice.PACKAGED:
            return "default"
        case InstalledVoice.PIPER:
            return str(write_joe_folder(folder))
        case InstalledVoice.KOKORO:
            return str(write_kokoro_folder(folder))


async def _speak(bundle: str, utterances: int) -> list[SpokenClause]:
    async with await Engine.open(bundle) as engine:
        await _speak_clause(engine, CLAUSES[-1])
        return [await _speak_clause(engine, CLAUSES[number % len(CLAUSES)]) for number in range(utterances)]


async def _speak_clause(engine: Engine, text: str) -> SpokenClause:
    async with engine.stream(seed=1) as stream:
        pushed = time.monotonic()
        stream.push_text(text)
        stream.end_input()
        first_s, speech_s = None, 0.0
        async for chunk in stream:
            if first_s is None and (sound_s := _first_sound_s(chunk)) is not None:
                first_s = time.monotonic() - pushed + speech_s + sound_s
            speech_s += chunk.seconds
        whole_s = time.monotonic() - pushed
    assert first_s is not None  # a text with words has sound
    return SpokenClause(first_s, whole_s, speech_s)


def _first_sound_s(chunk: AudioChunk) -> float | None:
    """Seconds from the chunk's start to its first sample above -50 dBFS."""
    audible = np.flatnonzero(np.abs(np.frombuffer(chunk.pcm, "<i2").astype(np.int32)) > _AUDIBLE)
    return float(audible[0]) / SAMPLE_RATE if len(audible) else None
