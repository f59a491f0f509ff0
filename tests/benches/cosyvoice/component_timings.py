"""What a CosyVoice bundle costs on this machine, part by part, as named figures. No targets, no tables.

Each part loads what it measures; memory is that of the whole process, so that a part has one to itself.
"""

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vivavoce.tts_engine.bundles import bundle_errors
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.cosyvoice.device_timings import Measurement
from vivavoce.tts_engine.engine import Engine

if TYPE_CHECKING:
    from benches.cosyvoice.network_timing import MelTiming
    from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle

# About 4 s of speech.
TEXT = "Thank you for calling, how can I help you with your order today?"
SPOKEN_S = 4.0
WINDOW_S = 10
_USED_S = 3.0


class MeasuredPart(StrEnum):
    """What can be measured by itself."""

    LM = "lm"
    FLOW = "flow"
    WINDOW = "window"
    HIFT = "hift"
    FIRST_AUDIO = "first-audio"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class MeasurementSize:
    """How much is run. contexts: of the language model. utterances_s: through the flow; the last one is what
    the bounded window is tried on.
    """

    contexts: tuple[int, ...] = (120, 1000)
    tokens: int = 20
    utterances_s: tuple[float, ...] = (10, 30)


def measure_part(
    folder: Path, part: MeasuredPart, extent: MeasurementSize = MeasurementSize()
) -> Iterator[Measurement]:
    """The figures of a part; raises BundleError, MissingExtra."""
    measured: dict[MeasuredPart, Callable[[CosyVoiceBundle, MeasurementSize], Iterator[Measurement]]] = {
        MeasuredPart.LM: _lm,
        MeasuredPart.FLOW: _flow,
        MeasuredPart.WINDOW: _window,
        MeasuredPart.HIFT: _hift,
        MeasuredPart.FIRST_AUDIO: _first_audio,
        MeasuredPart.MEMORY: _memory,
    }
    with bundle_errors():
        from benches.cosyvoice.network_timing import limit_torch_threads
        from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle

        limit_torch_threads()
        yield from measured[part](open_bundle(folder), extent)


def _lm(bundle: "CosyVoiceBundle", extent: MeasurementSize) -> Iterator[Measurement]:
    from benches.cosyvoice.network_timing import time_lm

    for run in time_lm(bundle, extent.contexts, extent.tokens):
        place = f"context {run.context:,}"
        yield Measurement(f"LM decode, {place}", 1000 * run.token.cpu_s, "ms/token")
        yield Measurement(f"LM decode, {place}, by the clock", 1000 * run.token.wall_s, "ms/token")
        yield Measurement(f"LM prefill, {place}", run.prefill.cpu_s, "s")


def _flow(bundle: "CosyVoiceBundle", extent: MeasurementSize) -> Iterator[Measurement]:
    from benches.cosyvoice.network_timing import time_flow

    for seconds in extent.utterances_s:
        run = time_flow(bundle, seconds)
        yield from _run_figures(f"flow, {seconds:g} s", run)
        yield from _chunk_figures(f"flow, {seconds:g} s", run)


def _window(bundle: "CosyVoiceBundle", extent: MeasurementSize) -> Iterator[Measurement]:
    from benches.cosyvoice.network_timing import max_mel_difference, mel_error_db, time_flow
    from vivavoce.models.cosyvoice.flow.state import FRAMES_PER_S, FlowPolicy

    seconds = extent.utterances_s[-1]
    name = f"flow, {seconds:g} s, window {WINDOW_S} s"
    bounded = time_flow(bundle, seconds, FlowPolicy(window_frames=WINDOW_S * FRAMES_PER_S))
    yield from _run_figures(name, bounded)
    exact = time_flow(bundle, seconds)
    yield Measurement(f"{name}, from exact, rms", mel_error_db(bounded.mel, exact.mel), "dB")
    yield Measurement(f"{name}, from exact, largest", max_mel_difference(bounded.mel, exact.mel), "of mel")


def _hift(bundle: "CosyVoiceBundle", extent: MeasurementSize) -> Iterator[Measurement]:
    from benches.cosyvoice.network_timing import time_vocoder

    seconds = extent.utterances_s[0]
    run = time_vocoder(bundle, seconds)
    yield Measurement(f"HiFT, {seconds:g} s, RTF", run.total.cpu_s / seconds, "")
    yield from _chunk_figures(f"HiFT, {seconds:g} s", run)


def _run_figures(name: str, run: "MelTiming") -> Iterator[Measurement]:
    yield Measurement(f"{name}, total", run.total.cpu_s, "s")
    yield Measurement(f"{name}, total by the clock", run.total.wall_s, "s")
    yield Measurement(f"{name}, last second against first", run.last_to_first_ratio, "x")


def _chunk_figures(name: str, run: "MelTiming") -> Iterator[Measurement]:
    for number, chunk in enumerate(run.chunks, 1):
        yield Measurement(f"{name}, chunk {number} ({chunk.seconds:.3g} s)", chunk.elapsed.cpu_s, "s")


def _memory(bundle: "CosyVoiceBundle", _extent: MeasurementSize) -> Iterator[Measurement]:
    from benches.cosyvoice.network_timing import flow_state_bytes_per_s, speak_with_all_networks

    state = speak_with_all_networks(bundle, _USED_S)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    yield Measurement("peak RSS, three networks, without flow state", (peak - state) / 1e9, "GB")
    yield Measurement("flow state, exact", flow_state_bytes_per_s(bundle) / 1e6, "MB/s of speech")


def _first_audio(bundle: "CosyVoiceBundle", _extent: MeasurementSize) -> Iterator[Measurement]:
    return iter(asyncio.run(_speak(bundle.folder)))


async def _speak(folder: Path) -> list[Measurement]:
    """First audio and pace of a cloned voice that has spoken before, as in a conversation."""
    async with await Engine.open(str(folder)) as engine:
        voice = await asyncio.to_thread(
            engine.voices.enroll, _recording(), SAMPLE_RATE, "You are a helpful assistant."
        )
        await _time_stream(engine, voice.id, 0.1)
        first, first_cpu, whole, spoken = await _time_stream(engine, voice.id, SPOKEN_S)
    return [
        Measurement("first packet, 4 s of text", first_cpu, "s"),
        Measurement("first packet, 4 s of text, by the clock", first, "s"),
        Measurement("RTF, end to end, by the clock", whole / spoken, ""),
    ]


async def _time_stream(engine: Engine, voice: str, seconds: float) -> tuple[float, float, float, float]:
    """Seconds to the first packet by the clock and of processor time, to all packets; seconds spoken.

    Random weights never end of themselves: listening ends when so much has been heard.
    """
    began, cpu, spoken = time.perf_counter(), time.process_time(), 0.0
    first: tuple[float, float] | None = None
    async with engine.stream(voice=voice, seed=7) as stream:
        stream.push_text(TEXT)
        stream.end_input()
        async for chunk in stream:
            if first is None and chunk.seconds:
                first = (time.perf_counter() - began, (time.process_time() - cpu) / 2)
            spoken += chunk.seconds
            if spoken >= seconds:
                break
    assert first is not None
    return *first, time.perf_counter() - began, spoken


def _recording() -> NDArray[np.float32]:
    """Three seconds of something that is no silence, as loud as speech."""
    noise = np.random.default_rng(0).standard_normal(3 * SAMPLE_RATE)
    return (0.1 * noise).astype(np.float32)
