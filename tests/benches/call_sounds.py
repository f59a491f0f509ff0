"""Processor time of calls with ambience and a thinking sound, beside calls without.

Half of the calls speak at a time; the others hear the thinking sound. The processes are those of ``vivavoce
bench call``.
"""

import json
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import pytest

from vivavoce.adapters.playback.background import Awaited, BackgroundLoops, BackgroundSounds
from vivavoce.gateway.cli.bench.call import DIAL_INTERVAL_S, SETTLE_S, LoadResult, LoadSetup, run_load
from vivavoce.gateway.cli.bench.call_server import SpeechPattern
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_RATE = 24_000
_PACKETS = 20_000
_MAX_RATIO = 1.15


def measure(calls: int, seconds: float) -> BenchReport:
    """Compare the two, and time the mixing of one packet of 20 ms at 8 kHz alone."""
    without = _run(calls, seconds)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, level_db in (("ambience", -20), ("thinking", -15)):
            _write_noise(file := Path(folder, f"{name}.wav"))
            table = json.dumps({"file": str(file), "level_db": level_db})
            patch.setenv(f"VIVAVOCE_SOUNDS_{name.upper()}", table)
        sounding = _run(calls, seconds)
    gaps = sum(call.underruns for call in sounding.record.calls)
    figures = (
        BenchFigure("processor without sounds", 100 * without.cpu_share, "% of a core"),
        BenchFigure("processor with sounds", 100 * sounding.cpu_share, "% of a core"),
        BenchFigure(
            "with sounds against without", sounding.cpu_share / without.cpu_share, "", at_most=_MAX_RATIO
        ),
        BenchFigure("gaps with sounds", gaps, "", at_most=0),
        BenchFigure("mixing a silent packet", _mixing_us(has_speech=False, thinks=False), "us"),
        BenchFigure("mixing a thinking sound too", _mixing_us(has_speech=False, thinks=True), "us"),
        BenchFigure("mixing a packet of speech", _mixing_us(has_speech=True, thinks=False), "us"),
    )
    return BenchReport("call-sounds", figures, {"calls": calls, "seconds": seconds})


def _run(calls: int, seconds: float) -> LoadResult:
    setup = LoadSetup(SpeechPattern.RANDOM, calls // 2, calls, calls * DIAL_INTERVAL_S, seconds + SETTLE_S)
    return run_load(setup)


def _noise(seconds: float) -> bytes:
    return np.random.default_rng(0).integers(-8_000, 8_000, round(seconds * _RATE)).astype("<i2").tobytes()


def _write_noise(file: Path) -> None:
    with wave.open(str(file), "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(_RATE)
        wav.writeframes(_noise(20))


def _mixing_us(*, has_speech: bool, thinks: bool) -> float:
    sounds = BackgroundSounds(_noise(20), _noise(20), thinking_after_s=0.0)
    mixer = BackgroundLoops(sounds).mixer(8_000)
    assert mixer is not None
    mixer.set_awaited(Awaited.PROGRAM if thinks else Awaited.CALLER)
    packet = np.full(160, 1_000 * has_speech, "<i2").tobytes()
    begin_s = time.process_time()
    for _ in range(_PACKETS):
        mixer.mix(packet)
    return 1e6 * (time.process_time() - begin_s) / _PACKETS
