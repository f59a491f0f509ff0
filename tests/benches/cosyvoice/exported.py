"""Bench of an exported bundle in ONNX Runtime without torch: memory part by part, and the first packet.

Runs in a process in which torch cannot be imported. Memory is what the process has in RAM, with the pages of
mapped files that it has read. A voice of 3 s speaks twice; the first packet is that of the second time.
"""

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.modules["torch"] = None  # type: ignore[assignment]  # so its import fails, as if it were not installed

import numpy as np  # noqa: E402

from benches.cosyvoice.bench_process import print_figures  # noqa: E402
from vivavoce.gateway.cli.bench.report import BenchFigure  # noqa: E402
from vivavoce.tts_engine.chunk import SAMPLE_RATE  # noqa: E402
from vivavoce.tts_engine.cosyvoice.checkpoints import bundle_errors  # noqa: E402
from vivavoce.tts_engine.cosyvoice.policy import policy_for  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402

TEXT = "Thank you for calling, how can I help you with your order today?"  # about 4 s of speech
SPOKEN_S = 4.0
VOICE_S = 3


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """Seconds by the clock of one stream, and of its speech."""

    first_packet_s: float
    whole_s: float
    spoken_s: float


def measure_exported(folder: Path, precision: str) -> Iterator[BenchFigure]:
    """Yield the figures of a bundle whose graphs are exported in a precision. Raises BundleError."""
    from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
    from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY
    from vivavoce.models.cosyvoice.onnx_runtime.networks import load_array_flow, load_array_lm
    from vivavoce.models.cosyvoice.onnx_runtime.vocoder import ArrayVocoder
    from vivavoce.models.devices.execution import Precision

    before = resident_bytes()
    yield BenchFigure("memory, interpreter and packages", before / 1e6, "MB")
    with bundle_errors():
        bundle = open_bundle(folder)
        parts: dict[str, Callable[[], object]] = {
            "language model": lambda: load_array_lm(bundle, Precision(precision)),
            "flow": lambda: load_array_flow(bundle, EXACT_POLICY, Precision(precision)),
            "vocoder": lambda: ArrayVocoder.load(bundle),
        }
        for name, load in parts.items():
            started, before = time.perf_counter(), resident_bytes()
            network = load()
            yield BenchFigure(f"memory, {name} loaded", (resident_bytes() - before) / 1e6, "MB")
            yield BenchFigure(f"load, {name}", time.perf_counter() - started, "s")
            del network
    yield from asyncio.run(_speak(folder, precision))


async def _speak(folder: Path, precision: str) -> list[BenchFigure]:
    policy = policy_for(precision, "auto", "onnxruntime")
    async with await Engine.open(str(folder), precision=policy.precision, executor=policy.executor) as engine:
        figures = [BenchFigure("memory, engine open", resident_bytes() / 1e6, "MB")]
        noise = 0.1 * np.random.default_rng(0).standard_normal(VOICE_S * SAMPLE_RATE)
        voice = await asyncio.to_thread(engine.voices.enroll, noise.astype(np.float32), SAMPLE_RATE, "Hello.")
        figures.append(BenchFigure("memory, voice enrolled", resident_bytes() / 1e6, "MB"))
        first_use = await _time_stream(engine, voice.id, 0.1)
        figures += [
            BenchFigure("first packet, voice's first use", first_use.first_packet_s, "s"),
            BenchFigure("memory, after it", resident_bytes() / 1e6, "MB"),
        ]
        times = await _time_stream(engine, voice.id, SPOKEN_S)
        return [
            *figures,
            BenchFigure("first packet, 4 s of text", times.first_packet_s, "s", at_most=2.0),
            BenchFigure("RTF, end to end", times.whole_s / times.spoken_s, "", at_most=2.0),
            BenchFigure("memory, after speaking", resident_bytes() / 1e6, "MB", at_most=1300),
            BenchFigure("memory, at its highest", resident_bytes("VmHWM") / 1e6, "MB"),
        ]


async def _time_stream(engine: Engine, voice: str, seconds: float) -> StreamTimes:
    """Speak; random weights never end the speech, so listening ends after ``seconds`` of it."""
    began, spoken_s, first = time.perf_counter(), 0.0, None
    async with engine.stream(voice=voice, seed=7) as stream:
        stream.push_text(TEXT)
        stream.end_input()
        async for chunk in stream:
            if first is None and chunk.seconds:
                first = time.perf_counter() - began
            spoken_s += chunk.seconds
            if spoken_s >= seconds:
                break
    assert first is not None
    return StreamTimes(first, time.perf_counter() - began, spoken_s)


def resident_bytes(field: str = "VmRSS") -> int:
    """Memory of this process in RAM now, or at its highest (``VmHWM``), under Linux."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    sys.exit(print_figures(measure_exported(Path(sys.argv[1]), sys.argv[2])))
