"""One voice on ONNX Runtime's provider for processors and on another device, clause by clause in turns.

Where the voice rounds to 8 bits, or its vocoder adds up the phase of the pitch, samples differ although the
speech does not; the difference of spectra tells them apart.
"""

import asyncio
import functools
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benches.voices.first_audio import CLAUSES, InstalledVoice, folder_of
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cli.bench.trace import percentile
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.engine import Engine

_WINDOW, _HOP = 1024, 256
_FLOOR = 1e-3  # of a magnitude; what is below is not heard


@dataclass(frozen=True, slots=True)
class DeviceSpeech:
    """A clause spoken on a device."""

    samples: NDArray[np.float64]
    first_chunk_s: float
    whole_s: float


def measure(
    voice: InstalledVoice, bundle: Path | None, device: str, precision: str, utterances: int
) -> BenchReport:
    """Measure a voice, or the first one of a folder. Raises BadRequest without the device, BundleError."""
    with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder:
        name = str(bundle) if bundle else folder_of(voice, Path(folder))
        executor = "onnxruntime" if bundle and (bundle / "onnx").is_dir() else "auto"
        spoken = asyncio.run(_speak(name, device, precision, executor, utterances))
    figures = [
        figure
        for each, speech in zip(("cpu", device), spoken, strict=True)
        for figure in _times(each, speech)
    ]
    alike = [
        (one.samples, other.samples)
        for one, other in zip(*spoken, strict=True)
        if len(one.samples) == len(other.samples)
    ]
    figures.append(BenchFigure("utterances with as many samples on both", len(alike), ""))
    if alike:
        largest = max(float(np.abs(one - other).max()) for one, other in alike)
        spectra = float(
            np.mean([np.abs(spectrum_db(one) - spectrum_db(other)).mean() for one, other in alike])
        )
        figures.append(BenchFigure("largest difference of their samples", largest, ""))
        figures.append(BenchFigure("mean difference of their spectra", spectra, "dB"))
    return BenchReport(
        "devices",
        tuple(figures),
        {"voice": bundle.name if bundle else voice, "precision": precision, "utterances": utterances},
    )


def spectrum_db(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Levels (frames, 513) of at least 1024 samples, not below -60 dB."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_HOP]
    magnitudes = np.abs(np.fft.rfft(frames * np.hanning(_WINDOW)))
    return np.asarray(20 * np.log10(np.maximum(magnitudes, _FLOOR)))


def _times(device: str, spoken: list[DeviceSpeech]) -> list[BenchFigure]:
    first_ms = [1000 * one.first_chunk_s for one in spoken]
    costs = [one.whole_s * SAMPLE_RATE / len(one.samples) for one in spoken]
    return [
        BenchFigure(f"{device}: first chunk, p50", percentile(first_ms, 50), "ms"),
        BenchFigure(f"{device}: time to render 1 s of speech, p50", percentile(costs, 50), "s"),
    ]


async def _speak(
    bundle: str, device: str, precision: str, executor: str, utterances: int
) -> tuple[list[DeviceSpeech], list[DeviceSpeech]]:
    open_on = functools.partial(Engine.open, bundle, precision=precision, executor=executor)
    async with await open_on(device="cpu") as on_cpu, await open_on(device=device) as on_device:
        spoken: tuple[list[DeviceSpeech], list[DeviceSpeech]] = ([], [])
        for number in range(utterances):
            for engine, results in zip((on_cpu, on_device), spoken, strict=True):
                results.append(await _speak_clause(engine, CLAUSES[number % len(CLAUSES)]))
    return spoken


async def _speak_clause(engine: Engine, text: str) -> DeviceSpeech:
    pushed, parts, first_s = time.monotonic(), [], 0.0
    async with engine.stream(seed=1) as stream:
        stream.push_text(text)
        stream.end_input()
        async for chunk in stream:
            first_s = first_s or time.monotonic() - pushed
            parts.append(chunk.pcm)
    return DeviceSpeech(np.frombuffer(b"".join(parts), "<i2") / 32768, first_s, time.monotonic() - pushed)
