"""Bench of CosyVoice on two cores, part by part: language model, flow, vocoder, first packet, memory.

An utterance is random ids after a prompt of 3 s, in the hops in which a listener gets it. Where a figure does
not say "by the clock", seconds are processor seconds of all threads over two cores: the time on an idle
machine. Targets and upstream's figures are for version 2 at the released size.

Source: upstream's figures are of FunAudioLLM/CosyVoice@ace7c47 with weights of the released size, float32, on
two cores of an AMD EPYC, by the same method.
"""

import asyncio
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from benches.cosyvoice.bench_process import measure_in_process, print_figures
from benches.cosyvoice.stopwatch import THREADS, MeasuredTime, Stopwatch, median_time
from shared.voices.cosyvoice_bundles import check_bundle
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights, is_released, without_targets
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from vivavoce.models.cosyvoice.config import (
    FRAMES_PER_S,
    FRAMES_PER_SPEECH_ID,
    MEL_BANDS,
    SPEECH_IDS_PER_S,
)
from vivavoce.models.cosyvoice.flow.flow import state_bytes_per_s
from vivavoce.models.cosyvoice.flow.hop_schedule import HopSchedule, SpeechIdChunk
from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY, FlowPolicy
from vivavoce.models.cosyvoice.flow.state import FlowChunk
from vivavoce.models.cosyvoice.flow.streaming_flow import StreamingFlow
from vivavoce.models.cosyvoice.networks import load_flow, load_lm, load_networks, load_vocoder
from vivavoce.models.cosyvoice.vocoder.layers import Vocoder
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.cosyvoice.checkpoints import bundle_errors
from vivavoce.tts_engine.engine import Engine

MODULE = "benches.cosyvoice.components"
WINDOW_S = 10
PROMPT_S = 3
USED_S = 3.0  # of speech, before memory is read

# About 4 s of speech.
TEXT = "Thank you for calling, how can I help you with your order today?"
SPOKEN_S = 4.0

Figures = Iterator[BenchFigure]


class ComponentPart(StrEnum):
    """A part that is measured in a process of its own."""

    LM = "lm"
    FLOW = "flow"
    WINDOW = "window"
    HIFT = "hift"
    FIRST_AUDIO = "first-audio"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class ComponentBenchSize:
    """Amount of work."""

    contexts: tuple[int, ...] = (120, 1000)  # ids before the timed tokens
    tokens: int = 20
    utterances_s: tuple[float, ...] = (10, 30)  # the vocoder takes the first, the window the last


def measure(parts: Sequence[str], weights: BenchWeights) -> BenchReport:
    """Measure some parts. Raises BundleError, BenchFailed."""
    figures: list[BenchFigure] = []
    with weights.folder() as folder:
        checked = check_bundle(folder)
        for part in parts:
            with Console(stderr=True).status(f"bench cosyvoice: {part}"):
                figures += measure_in_process(MODULE, folder, part)
    if is_released(checked) and checked.version == 2:
        figures += _upstream_figures(parts)
    else:
        figures = list(without_targets(figures))
    settings: dict[str, str | int | float | bool] = {
        "version": checked.version,
        "weights": str(weights),
        "precision": "float32",
        "threads": THREADS,
    }
    return BenchReport("cosyvoice", tuple(figures), settings)


def measure_part(
    folder: Path, part: ComponentPart, size: ComponentBenchSize = ComponentBenchSize()
) -> Figures:
    """Yield the figures of a part. Raises BundleError."""
    measured: Mapping[ComponentPart, Callable[[CosyVoiceBundle, ComponentBenchSize], Figures]] = {
        ComponentPart.LM: measure_lm,
        ComponentPart.FLOW: measure_flow,
        ComponentPart.WINDOW: measure_window,
        ComponentPart.HIFT: measure_vocoder,
        ComponentPart.FIRST_AUDIO: measure_first_audio,
        ComponentPart.MEMORY: measure_memory,
    }
    with bundle_errors():
        torch.set_num_threads(THREADS)
        yield from measured[part](open_bundle(folder), size)


def _upstream_figures(parts: Sequence[str]) -> Figures:
    upstream: Mapping[ComponentPart, Sequence[tuple[str, float, str]]] = {
        ComponentPart.LM: (
            ("LM decode, context 120", 76, "ms/token"),
            ("LM decode, context 120, by the clock", 172, "ms/token"),
            ("LM decode, context 1,000, by the clock", 190, "ms/token"),
            ("LM prefill, context 120", 0.9, "s"),
            ("LM prefill, context 1,000", 6.3, "s"),
        ),
        ComponentPart.FLOW: (
            ("flow, 10 s, total", 45.7, "s"),
            ("flow, 30 s, total", 376, "s"),
            ("flow, 30 s, last second against first", 7.5, "x"),
        ),
        ComponentPart.WINDOW: (),
        ComponentPart.HIFT: (("HiFT, 10 s, RTF", 0.28, ""),),
        ComponentPart.FIRST_AUDIO: (
            ("first packet, 4 s of text, by the clock", 15.0, "s"),
            ("RTF, end to end, by the clock", 8.7, ""),
        ),
        ComponentPart.MEMORY: (("peak RSS, three networks", 3.7, "GB"),),
    }
    for part in map(ComponentPart, parts):
        for name, value, unit in upstream[part]:
            yield BenchFigure(f"upstream: {name}", value, unit)


@torch.inference_mode()
def measure_lm(bundle: CosyVoiceBundle, size: ComponentBenchSize) -> Figures:
    """Feed random ids of each context, then time single tokens."""
    lm = load_lm(bundle)
    for context in size.contexts:
        ids = _random_ids(bundle, context)
        lm.step(lm.embed_speech(ids[:, :8]), lm.init_state(1, 8))  # warm-up
        state = lm.init_state(1, context + size.tokens)
        with Stopwatch() as prefill:
            _, state = lm.step(lm.embed_speech(ids), state)
        times = []
        for _ in range(size.tokens):
            with Stopwatch() as step:
                hidden, state = lm.step(lm.embed_speech(ids[:, :1]), state)
                lm.logits(hidden[:, -1])
            times.append(step.elapsed)
        token = median_time(times)
        name, at_most = f"LM decode, context {context:,}", 76 if context == 120 else None
        yield BenchFigure(name, 1000 * token.cpu_s, "ms/token", at_most)
        yield BenchFigure(f"{name}, by the clock", 1000 * token.wall_s, "ms/token")
        yield BenchFigure(f"LM prefill, context {context:,}", prefill.elapsed.cpu_s, "s")


def measure_flow(bundle: CosyVoiceBundle, size: ComponentBenchSize) -> Figures:
    """Render utterances with unlimited attention."""
    for seconds in size.utterances_s:
        run, _ = _time_flow(bundle, seconds)
        name = f"flow, {seconds:g} s"
        is_target = seconds == 30
        yield from run.summary(name, 80 if is_target else None, 2.7 if is_target else None)
        yield from run.chunk_figures(name)


def measure_window(bundle: CosyVoiceBundle, size: ComponentBenchSize) -> Figures:
    """Render the longest utterance with a bounded window, and compare its mel with the exact one."""
    seconds = size.utterances_s[-1]
    name = f"flow, {seconds:g} s, window {WINDOW_S} s"
    run, mel = _time_flow(bundle, seconds, FlowPolicy(window_frames=WINDOW_S * FRAMES_PER_S))
    is_target = seconds == 30
    yield from run.summary(name, 50 if is_target else None, 1.3 if is_target else None)
    _, exact = _time_flow(bundle, seconds)
    difference = mel - exact
    error_db = 10 * math.log10(float(difference.square().mean() / exact.var()) or 1e-30)
    yield BenchFigure(f"{name}, from exact, rms", error_db, "dB")
    yield BenchFigure(f"{name}, from exact, largest", float(difference.abs().max()), "of mel")


def measure_vocoder(bundle: CosyVoiceBundle, size: ComponentBenchSize) -> Figures:
    """Vocode a random mel chunk by chunk."""
    seconds, vocoder = size.utterances_s[0], load_vocoder(bundle)
    frames = round(seconds * FRAMES_PER_S)
    mel = torch.randn(1, MEL_BANDS, frames, generator=torch.Generator().manual_seed(0)) - 5
    _vocode(vocoder)(mel[:, :, : 2 * FRAMES_PER_S], False)  # warm-up
    vocode, times = _vocode(vocoder), []
    for hop in _hops(frames // FRAMES_PER_SPEECH_ID):
        with Stopwatch() as step:
            vocode(mel[:, :, hop.start * FRAMES_PER_SPEECH_ID : hop.stop * FRAMES_PER_SPEECH_ID], hop.final)
        times.append((_hop_s(hop), step.elapsed))
    run = _ChunkedRun(tuple(times))
    yield BenchFigure(f"HiFT, {seconds:g} s, RTF", run.total.cpu_s / seconds, "")
    yield from run.chunk_figures(f"HiFT, {seconds:g} s")


def measure_first_audio(bundle: CosyVoiceBundle, size: ComponentBenchSize) -> Figures:
    """Speak through the engine with a cloned voice that has spoken before."""
    return iter(asyncio.run(_speak(bundle.folder)))


def measure_memory(bundle: CosyVoiceBundle, size: ComponentBenchSize) -> Figures:
    """Load all three networks, speak with them, and read the peak memory of the process."""
    _speak_with_all_networks(bundle, USED_S)
    flow_bytes_per_s = state_bytes_per_s(bundle.network_config.flow, EXACT_POLICY)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    networks_gb = (peak - round(USED_S * flow_bytes_per_s)) / 1e9
    yield BenchFigure("peak RSS, three networks, without flow state", networks_gb, "GB", at_most=3.3)
    yield BenchFigure("flow state, exact", flow_bytes_per_s / 1e6, "MB/s of speech")


@dataclass(frozen=True, slots=True)
class _ChunkedRun:
    """Times of an utterance, chunk by chunk; the prompt is not among them, as a voice is prefilled once."""

    chunks: tuple[tuple[float, MeasuredTime], ...]  # seconds of speech, and the time they took

    @property
    def total(self) -> MeasuredTime:
        return MeasuredTime(
            sum(time.cpu_s for _, time in self.chunks), sum(time.wall_s for _, time in self.chunks)
        )

    @property
    def last_to_first_ratio(self) -> float:
        """Processor time a second of speech, in the last chunk over in the first."""
        first, last = (time.cpu_s / seconds for seconds, time in (self.chunks[0], self.chunks[-1]))
        return last / first

    def summary(self, name: str, max_total_s: float | None, max_ratio: float | None) -> Figures:
        yield BenchFigure(f"{name}, total", self.total.cpu_s, "s", max_total_s)
        yield BenchFigure(f"{name}, total by the clock", self.total.wall_s, "s")
        yield BenchFigure(f"{name}, last second against first", self.last_to_first_ratio, "x", max_ratio)

    def chunk_figures(self, name: str) -> Figures:
        for number, (seconds, elapsed) in enumerate(self.chunks, 1):
            yield BenchFigure(f"{name}, chunk {number} ({seconds:.3g} s)", elapsed.cpu_s, "s")


def _time_flow(
    bundle: CosyVoiceBundle, seconds: float, policy: FlowPolicy | None = None
) -> tuple[_ChunkedRun, Tensor]:
    """Render random ids chunk by chunk; returns the times and the mel (80, T)."""
    flow = load_flow(bundle, policy)
    prompt = _random_ids(bundle, PROMPT_S * SPEECH_IDS_PER_S)
    silence = torch.zeros(1, MEL_BANDS, prompt.shape[1] * FRAMES_PER_SPEECH_ID)
    voice, covered = flow.prefill(prompt, silence, _random_speaker(flow))
    count = round(seconds * SPEECH_IDS_PER_S)
    state = flow.copy_for_utterance(voice, frames=(covered + count) * FRAMES_PER_SPEECH_ID)
    ids = _random_ids(bundle, count)
    times, mels = [], []
    for hop in _hops(count):
        with Stopwatch() as step:
            mel, state = flow.step(_flow_chunk(ids, hop), state)
        times.append((_hop_s(hop), step.elapsed))
        mels.append(mel[0])
    return _ChunkedRun(tuple(times)), torch.cat(mels, 1)


async def _speak(folder: Path) -> list[BenchFigure]:
    async with await Engine.open(str(folder)) as engine:
        transcript = "You are a helpful assistant."
        voice = await asyncio.to_thread(engine.voices.enroll, _recording(), SAMPLE_RATE, transcript)
        await _time_stream(engine, voice.id, 0.1)
        first, whole_s, spoken_s = await _time_stream(engine, voice.id, SPOKEN_S)
    name = "first packet, 4 s of text"
    return [
        BenchFigure(name, first.cpu_s, "s", at_most=5),
        BenchFigure(f"{name}, by the clock", first.wall_s, "s", at_most=5),
        BenchFigure("RTF, end to end, by the clock", whole_s / spoken_s, ""),
    ]


async def _time_stream(engine: Engine, voice: str, seconds: float) -> tuple[MeasuredTime, float, float]:
    """Time to the first packet, wall-clock seconds to the last, and seconds spoken.

    Random weights never end the speech, so listening ends after ``seconds`` of it.
    """
    began, cpu, spoken_s = time.perf_counter(), time.process_time(), 0.0
    first: MeasuredTime | None = None
    async with engine.stream(voice=voice, seed=7) as stream:
        stream.push_text(TEXT)
        stream.end_input()
        async for chunk in stream:
            if first is None and chunk.seconds:
                first = MeasuredTime((time.process_time() - cpu) / THREADS, time.perf_counter() - began)
            spoken_s += chunk.seconds
            if spoken_s >= seconds:
                break
    assert first is not None
    return first, time.perf_counter() - began, spoken_s


def _recording() -> NDArray[np.float32]:
    """Three seconds of noise as loud as speech."""
    noise = np.random.default_rng(0).standard_normal(3 * SAMPLE_RATE)
    return (0.1 * noise).astype(np.float32)


@torch.inference_mode()
def _speak_with_all_networks(bundle: CosyVoiceBundle, seconds: float) -> None:
    networks = load_networks(bundle)
    ids = _random_ids(bundle, round(seconds * SPEECH_IDS_PER_S))
    inputs = networks.lm.embed_speech(ids)
    _, lm_state = networks.lm.step(inputs, networks.lm.init_state(1, 2 * ids.shape[1]))
    hidden, _ = networks.lm.step(inputs[:, :1], lm_state)
    networks.lm.logits(hidden)
    state, vocode = networks.flow.init_state(_random_speaker(networks.flow)), _vocode(networks.vocoder)
    for hop in _hops(ids.shape[1]):
        mel, state = networks.flow.step(_flow_chunk(ids, hop), state)
        vocode(mel, hop.final)


def _random_ids(bundle: CosyVoiceBundle, count: int) -> Tensor:
    codebook_size = bundle.network_config.lm.codebook_size
    return torch.randint(codebook_size, (1, count), generator=torch.Generator().manual_seed(count))


def _random_speaker(flow: StreamingFlow) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return flow.project_speaker(torch.randn(1, flow.config.speaker_width, generator=generator))


def _hops(count: int) -> Iterator[SpeechIdChunk]:
    schedule = HopSchedule()
    while hop := schedule.next(count, ended=True):
        yield hop


def _hop_s(hop: SpeechIdChunk) -> float:
    return (hop.stop - hop.start) / SPEECH_IDS_PER_S


def _flow_chunk(ids: Tensor, hop: SpeechIdChunk) -> FlowChunk:
    spoken = ids[:, hop.start : hop.stop]
    silence = torch.zeros(1, MEL_BANDS, spoken.shape[1] * FRAMES_PER_SPEECH_ID)
    return FlowChunk(spoken, ids[:, hop.stop : hop.lookahead_stop], silence)


def _vocode(vocoder: Vocoder) -> Callable[[Tensor, bool], Tensor]:
    """A function that vocodes an utterance chunk by chunk, given which chunk is the last."""
    state, generator = vocoder.init_state(1), torch.Generator().manual_seed(0)

    def vocode(mel: Tensor, last: bool) -> Tensor:
        nonlocal state
        samples = vocoder.noise_samples(mel.shape[2], state, last=last)
        noise = torch.rand(1, samples, vocoder.config.sine_count, generator=generator)
        if last:
            return vocoder.finish(mel, noise, state)
        wave, state = vocoder.step(mel, noise, state)
        return wave

    return vocode


if __name__ == "__main__":
    sys.exit(print_figures(measure_part(Path(sys.argv[1]), ComponentPart(sys.argv[2]))))
