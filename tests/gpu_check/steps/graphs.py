"""Steps of language model, flow and vocoder: timed, captured as CUDA graphs, and equal to those without.

bench device    a token of one session, chunks of several
captured        how many graphs of each kind, in what time; the reason if a capture fails
equal           ids, mel and samples of graphs against steps without; ids and mel at once on two streams
                against alone
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from gpu_check.findings import CheckOptions, Finding
from torch import Tensor

from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from vivavoce.models.cosyvoice.config import BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, MEL_BANDS
from vivavoce.models.cosyvoice.device_benchmark import (
    DeviceBenchmarkSize,
    EndlessGeneration,
    measure_device,
)
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.flow.flow_graphs import FlowGraphs
from vivavoce.models.cosyvoice.flow.policy import HALF_PRECISION_POLICY
from vivavoce.models.cosyvoice.flow.state import FlowChunk, FlowState
from vivavoce.models.cosyvoice.lm.decode_graphs import DecodeGraphs
from vivavoce.models.cosyvoice.lm.decode_turn import DecodeTurn
from vivavoce.models.cosyvoice.lm.decoding import choose
from vivavoce.models.cosyvoice.lm.generation import SpecialIds
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm
from vivavoce.models.cosyvoice.networks import load_flow, load_lm, load_vocoder
from vivavoce.models.cosyvoice.vocoder.layers import Vocoder, step_together
from vivavoce.models.cosyvoice.vocoder.vocoder_graphs import VocoderGraphs
from vivavoce.models.decoding.uniforms import seeded_uniforms
from vivavoce.models.devices.execution import Precision
from vivavoce.models.devices.planned_captures import PlannedCapture
from vivavoce.models.devices.torch_devices import separate_stream, to_device
from vivavoce.models.networks import kernel_support

_ROWS = 4
_ROUNDS_AT_ONCE = 3
_VOCODER_FRAMES = (28, 50, 100, 100)  # mel frames of the chunks of a sentence
_PROMPT_IDS = 3 * BLOCK_IDS + LOOKAHEAD_IDS

Result = TypeVar("Result")


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the figures of one card."""
    device, bundle = options.torch_device, open_bundle(options.bundle)
    quick_size = DeviceBenchmarkSize(context=20, tokens=8, rounds=1, chunks=2)
    size = quick_size if options.is_quick else DeviceBenchmarkSize()
    for precision in (Precision.FP32, Precision.BF16):
        timings = measure_device(bundle, device, precision, size)
        yield Finding(f"a token in {precision}, context {size.context}", 1000 * timings.token_s, "ms")
    yield Finding(f"flow, {size.chunks} chunks in one step", 1000 * timings.batched_s, "ms")
    yield Finding(f"flow, {size.chunks} one after another", 1000 * timings.sequential_s, "ms")
    if device.type == "cuda":
        timings = measure_device(bundle, device, Precision.FP32_FP16, size)
        name = f"flow in {Precision.FP32_FP16}"
        yield Finding(f"{name}, {size.chunks} chunks in one step", 1000 * timings.batched_s, "ms")
        yield Finding(f"{name}, {size.chunks} one after another", 1000 * timings.sequential_s, "ms")
        yield Finding(f"mel in {Precision.FP32_FP16} from fp32, largest", _one_product_error(bundle, device))
    lm, flow = load_lm(bundle, device=device), load_flow(bundle, HALF_PRECISION_POLICY, device)
    ids, blocks = (12, 2) if options.is_quick else (50, 8)
    decode = DecodingCheck(lm, ids)
    render = FlowCheck(flow, blocks)
    yield from _captured(decode.graphs.defer_captures(), "language model")
    yield from _captured(render.graphs.defer_captures(2), "flow")
    ids_alone, mel_alone = decode.with_graphs(), render.with_graphs()
    yield Finding(
        "ids of graphs that differ from those without", _different(ids_alone, decode.without_graphs())
    )
    yield Finding(
        "mel of graphs from that without, largest", largest_distance(mel_alone, render.without_graphs())
    )
    with without_fused_kernels():
        mel_of_torch = render.without_graphs()
    yield Finding("mel of fused kernels from torch's, largest", largest_distance(mel_alone, mel_of_torch))
    yield from _hidden_findings(lm, Precision.FP32)
    yield from _hidden_findings(load_lm(bundle, Precision.BF16, device), Precision.BF16)
    at_once = _at_once(decode.with_graphs, render.with_graphs, device)
    for found_ids, found_mel in at_once:
        yield Finding("ids at once that differ from alone", _different(found_ids, ids_alone))
        yield Finding("mel at once from alone, largest", largest_distance(found_mel, mel_alone))
    yield from _vocoder_findings(load_vocoder(bundle, device), device)


def without_fused_kernels() -> AbstractContextManager[object]:
    """A context in which torch computes all."""
    return patch.object(kernel_support, "runs_triton", return_value=False)


@torch.inference_mode()
def _hidden_findings(lm: SpeechLm, precision: Precision) -> Iterator[Finding]:
    """Of the language model, whose ids in 16 bits would soon differ."""
    found = _hidden(lm)
    with without_fused_kernels():
        expected = _hidden(lm)
    difference, size = largest_distance(found, expected), float(expected.abs().max())
    name = f"hidden states in {precision} of fused kernels from torch's, largest, relative"
    yield Finding(name, difference / size)


def _hidden(lm: SpeechLm) -> Tensor:
    """Hidden states of several rows, (B, T, hidden) on the host: of many ids in a step, then of one a row."""
    ids = torch.arange(_ROWS * 9, device=lm.device).view(_ROWS, 9) % lm.config.codebook_size
    many, state = lm.step(lm.embed_speech(ids[:, :8]), lm.init_state(_ROWS, 16))
    return torch.cat([many, lm.step(lm.embed_speech(ids[:, 8:]), state)[0]], 1).cpu()


def _one_product_error(bundle: CosyVoiceBundle, device: torch.device) -> float:
    """What one product of float16 changes in the mel of several sessions, largest."""
    mels = []
    for products in (Precision.FP32, Precision.FP16):
        flow = load_flow(bundle, replace(HALF_PRECISION_POLICY, products=products), device)
        mels.append(FlowCheck(flow, 2).with_graphs())
    return largest_distance(*mels)


@torch.inference_mode()
def _vocoder_findings(vocoder: Vocoder, device: torch.device) -> Iterator[Finding]:
    graphs = VocoderGraphs(vocoder, device, _ROWS)
    yield from _captured(graphs.planned_captures(_VOCODER_FRAMES), "vocoder")
    found, found_s = _vocoded(vocoder, device, graphs.step)
    expected, expected_s = _vocoded(vocoder, device, lambda *chunk: step_together(vocoder, *chunk))
    yield Finding("samples of graphs from those without, largest", largest_distance(found, expected))
    with without_fused_kernels():
        of_torch, _ = _vocoded(vocoder, device, lambda *chunk: step_together(vocoder, *chunk))
    yield Finding("samples of fused kernels from torch's, largest", largest_distance(expected, of_torch))
    yield Finding(f"vocoder, a step of {_ROWS} with graphs", 1000 * found_s, "ms")
    yield Finding(f"vocoder, a step of {_ROWS} without", 1000 * expected_s, "ms")


def _vocoded(
    vocoder: Vocoder,
    device: torch.device,
    step: Callable[[Tensor, Tensor, list[Any]], tuple[Tensor, list[Any]]],
) -> tuple[Tensor, float]:
    """Samples of several streams, (B, N) on the host, and the seconds that the last step took."""
    generator = torch.Generator().manual_seed(0)
    states = [vocoder.init_state(1) for _ in range(_ROWS)]
    pieces, step_s = [], 0.0
    for frames in _VOCODER_FRAMES:
        samples = vocoder.noise_samples(frames, states[0], last=False)
        mel = torch.randn(_ROWS, MEL_BANDS, frames, generator=generator)
        noise = torch.rand(_ROWS, samples, vocoder.config.sine_count, generator=generator)
        on_device = mel.to(device), noise.to(device)
        began = time.perf_counter()
        piece, states = step(*on_device, states)
        pieces.append(piece.cpu())
        step_s = time.perf_counter() - began
    return torch.cat(pieces, 1), step_s


def _captured(planned: Sequence[PlannedCapture], name: str) -> Iterator[Finding]:
    began, taken_s = time.perf_counter(), []
    for each in planned:
        capture_began = time.perf_counter()
        try:
            each.capture()
        except RuntimeError as error:
            yield Finding(f"{each.name}, its capture failed", str(error).splitlines()[0][:300])
        else:
            taken_s.append(time.perf_counter() - capture_began)
    yield Finding(f"{name}, graphs", len(taken_s))
    yield Finding(f"{name}, recorded in", time.perf_counter() - began, "s")
    yield Finding(f"{name}, longest capture", max(taken_s, default=0.0), "s")


class DecodingCheck:
    """The ids of several sessions, with graphs and without."""

    def __init__(self, lm: SpeechLm, count: int, rows: int = _ROWS) -> None:
        self._lm, self._count, self._rows = lm, count, rows
        self._state = lm.init_state(rows, 2 * count + 16)
        self.graphs = DecodeGraphs(lm, self._state, max_inputs=1, ids_per_step=4)

    def with_graphs(self) -> list[list[int]]:
        """Ids by session."""
        self._state.lengths.zero_()
        turns = self._new_turns()
        ids: list[list[int]] = [[] for _ in range(self._rows)]
        while len(ids[0]) < self._count:
            for row, chosen in self.graphs.choose(turns).items():
                id: int | None = chosen
                while id is not None:
                    ids[row].append(id)
                    turns[row].generation.answer(id)
                    id = self.graphs.decoded_ahead(row, turns[row].generation.ask())
        return [row[: self._count] for row in ids]

    def without_graphs(self) -> list[list[int]]:
        """Ids by session."""
        state, turns = self._lm.init_state(self._rows, self._count + 16), self._new_turns()
        ids: list[list[int]] = [[] for _ in range(self._rows)]
        for _ in range(self._count):
            state, chosen = choose(self._lm, state, [turns[row] for row in range(self._rows)])
            for row, id in chosen.items():
                ids[row].append(id)
                turns[row].generation.answer(id)
        return ids

    def _new_turns(self) -> dict[int, DecodeTurn]:
        config = self._lm.config
        return {
            row: DecodeTurn(
                EndlessGeneration(SpecialIds(config.version, config.codebook_size)), seeded_uniforms(row)
            )
            for row in range(self._rows)
        }


class FlowCheck:
    """The mel of several sessions, with graphs and without."""

    def __init__(self, flow: Flow, blocks: int, rows: int = _ROWS) -> None:
        self._flow, self._blocks, self._rows = flow, blocks, rows
        pages = _PROMPT_IDS // BLOCK_IDS + rows * blocks
        self.graphs = FlowGraphs(flow, rows=rows, slots=rows, pages=pages)
        self._voice = self.graphs.store_voice(self._prefilled())

    @torch.inference_mode()
    def with_graphs(self) -> Tensor:
        """(B, 80, T) on the host."""
        handles = [self.graphs.open_sequence(self._voice) for _ in range(self._rows)]
        mels = [
            self.graphs.step(_chunk(self._flow, block, self._rows), handles).cpu()
            for block in range(self._blocks)
        ]
        return torch.cat(mels, 2)

    @torch.inference_mode()
    def without_graphs(self) -> Tensor:
        """(B, 80, T) on the host."""
        rows = []
        for row in range(self._rows):
            state, mels = self._flow.copy_for_utterance(self._prefilled()), []
            for block in range(self._blocks):
                chunk = _chunk(self._flow, block, self._rows)
                ids, future = (to_device(part, self._flow.device) for part in (chunk.ids, chunk.future))
                own = FlowChunk(ids[row : row + 1], future[row : row + 1], chunk.prompt_mel[row : row + 1])
                mel, state = self._flow.step(own, state)
                mels.append(mel.cpu())
            rows.append(torch.cat(mels, 2))
        return torch.cat(rows)

    def _prefilled(self) -> FlowState:
        flow = self._flow
        ids = to_device(torch.arange(_PROMPT_IDS)[None] % flow.config.codebook_size, flow.device)
        speaker = flow.project_speaker(torch.ones(1, flow.config.speaker_width, device=flow.device))
        silence = torch.zeros(1, MEL_BANDS, FRAMES_PER_SPEECH_ID * _PROMPT_IDS, device=flow.device)
        return flow.prefill(ids, silence, speaker)[0]


def _chunk(flow: Flow, block: int, rows: int) -> FlowChunk:
    count = rows * BLOCK_IDS
    ids = (torch.arange(block * count, (block + 1) * count) % flow.config.codebook_size).view(rows, -1)
    silence = torch.zeros(rows, MEL_BANDS, FRAMES_PER_SPEECH_ID * BLOCK_IDS, device=flow.device)
    return FlowChunk(ids, ids[:, :LOOKAHEAD_IDS], silence)


def _at_once(
    decode: Callable[[], list[list[int]]], render: Callable[[], Tensor], device: torch.device
) -> list[tuple[list[list[int]], Tensor]]:
    """Results of both, computed by two threads on two streams at the same time, several times."""
    ids: list[list[list[int]]] = []
    mels: list[Tensor] = []

    def repeat(work: Callable[[], Result], results: list[Result]) -> None:
        with separate_stream(device):
            results += [work() for _ in range(_ROUNDS_AT_ONCE)]

    threads = [
        threading.Thread(target=repeat, args=(decode, ids)),
        threading.Thread(target=repeat, args=(render, mels)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(zip(ids, mels, strict=True))


def _different(found: list[list[int]], expected: list[list[int]]) -> float:
    pairs = zip(chain(*found), chain(*expected), strict=True)
    return sum(one != other for one, other in pairs)


def largest_distance(found: Tensor, expected: Tensor) -> float:
    """Between the elements of two tensors."""
    return float((found - expected).abs().max())
