"""Times captured steps on a device, by wall clock: an id of one session, and flow chunks of several sessions.

A step ends when its result is on the host, as it does for a session. Run by ``vivavoce bench device``.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..decoding.uniforms import seeded_uniforms
from ..devices.execution import Precision
from ..devices.torch_devices import to_device, to_host
from .checkpoint.bundle import CosyVoiceBundle
from .config import BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, MEL_BANDS
from .flow.flow import Flow
from .flow.flow_graphs import FlowGraphs, PagedVoice
from .flow.policy import FlowPolicy
from .flow.state import FlowChunk
from .lm.decode_graphs import DecodeGraphs
from .lm.decoding import DecodeTurn
from .lm.generation import Generation, LmInput, LmInputKind, RequestGenerator, SamplingRequest, SpecialIds
from .lm.speech_lm import SpeechLm
from .networks import load_flow, load_lm

_PROMPT_BLOCKS = 3  # 3 s
_IDS_PER_STEP = 4


@dataclass(frozen=True, slots=True)
class DeviceBenchmarkSize:
    """Amount of work."""

    context: int = 120  # ids before the timed ones
    tokens: int = 200
    rounds: int = 20  # of the flow
    chunks: int = 4  # sessions with a chunk of 1 s each


@dataclass(frozen=True, slots=True)
class DeviceTimings:
    """Median seconds."""

    size: DeviceBenchmarkSize
    token_s: float  # an id fed, sampled and brought to the host
    batched_s: float  # all chunks in one step
    sequential_s: float  # the same chunks one after another


def measure_device(
    bundle: CosyVoiceBundle, device: torch.device, precision: Precision, size: DeviceBenchmarkSize
) -> DeviceTimings:
    """Load language model and flow onto a device and time them. Raises InvalidBundleError, DeviceError."""
    policy = FlowPolicy(products=precision.of_card_flow)
    lm, flow = load_lm(bundle, precision, device), load_flow(bundle, policy, device)
    batched_s, sequential_s = measure_flow_steps(flow, chunks=size.chunks, rounds=size.rounds)
    token_s = measure_token_s(lm, context=size.context, tokens=size.tokens)
    return DeviceTimings(size, token_s, batched_s, sequential_s)


class EndlessGeneration(Generation):
    """One sound after another."""

    def _requests(self) -> RequestGenerator:
        inputs: tuple[LmInput, ...] = (LmInput(LmInputKind.SPEECH, 0),)
        while True:
            inputs = self._accept((yield SamplingRequest(inputs, self.ids.control_except())))


@torch.inference_mode()
def measure_token_s(lm: SpeechLm, *, context: int, tokens: int) -> float:
    """Median seconds of an id after ``context`` ids, in steps that sample several."""
    state = lm.init_state(1, context + tokens + 2 * _IDS_PER_STEP)
    state.lengths[0] = context
    steps = DecodeGraphs(lm, state, max_inputs=1, ids_per_step=_IDS_PER_STEP)
    generation = EndlessGeneration(SpecialIds(lm.config.version, lm.config.codebook_size))
    turns = {0: DecodeTurn(generation, seeded_uniforms(0))}

    def step() -> None:
        id: int | None = steps.choose(turns)[0]
        while id is not None:
            generation.answer(id)
            id = steps.decoded_ahead(0, generation.ask())

    step()  # captures the graph
    return _median_s(step, -(-tokens // _IDS_PER_STEP)) / _IDS_PER_STEP


@torch.inference_mode()
def measure_flow_steps(flow: Flow, *, chunks: int, rounds: int) -> tuple[float, float]:
    """Median seconds of chunks of 1 s after a prompt of 3 s: all in one step, and one after another."""
    graphs = FlowGraphs(flow, rows=chunks, slots=chunks, pages=_PROMPT_BLOCKS + chunks)
    voice = _store_voice(flow, graphs)
    chunk = _chunk(flow, chunks)
    single = FlowChunk(chunk.ids[:1], chunk.future[:1], chunk.prompt_mel[:1])

    def step(parts: Sequence[FlowChunk]) -> None:
        sequences = [graphs.open_sequence(voice) for _ in range(chunks)]
        width = chunks // len(parts)
        for index, part in enumerate(parts):
            mel: Tensor = graphs.step(part, sequences[index * width :][:width])
        to_host(mel)

    def step_batched() -> None:
        step([chunk])

    def step_sequential() -> None:
        step([single] * chunks)

    step_batched()  # captures the graphs
    step_sequential()
    return _median_s(step_batched, rounds), _median_s(step_sequential, rounds)


def _store_voice(flow: Flow, graphs: FlowGraphs) -> PagedVoice:
    count = _PROMPT_BLOCKS * BLOCK_IDS + LOOKAHEAD_IDS
    ids = to_device(torch.arange(count)[None] % flow.config.codebook_size, flow.device)
    speaker = flow.project_speaker(torch.ones(1, flow.config.speaker_width, device=flow.device))
    silence = torch.zeros(1, MEL_BANDS, FRAMES_PER_SPEECH_ID * count, device=flow.device)
    voice, _ = flow.prefill(ids, silence, speaker)
    return graphs.store_voice(voice)


def _chunk(flow: Flow, rows: int) -> FlowChunk:
    ids = torch.arange(rows * BLOCK_IDS).view(rows, BLOCK_IDS) % flow.config.codebook_size
    silence = torch.zeros(rows, MEL_BANDS, FRAMES_PER_SPEECH_ID * BLOCK_IDS, device=flow.device)
    return FlowChunk(ids, ids[:, :LOOKAHEAD_IDS], silence)


def _median_s(step: Callable[[], None], count: int) -> float:
    times = []
    for _ in range(count):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return statistics.median(times)
