"""Times recorded steps on a device: one language-model id of one session, and batched chunks of the flow.

The clock runs until the result is on the host, as it does for a session. Measurements only: no targets, no
tables.
"""

import statistics
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .devices import to_device, to_host
from .flow.encoder import FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS
from .flow.flow import MEL_BANDS, Flow
from .flow.flow_graphs import FlowGraphs, PagedVoice
from .flow.state import BLOCK_IDS, FlowChunk
from .lm.decode_graphs import DecodeGraphs
from .lm.decoding import DecodeTurn
from .lm.generation import Generation, LmInput, LmInputKind, SamplingRequest, SpecialIds
from .lm.sampling import seeded_uniforms
from .lm.speech_lm import SpeechLm

CPU_TIME_CORES = 2  # processor time is divided by this, the cores of the reference machine
_PROMPT_BLOCKS = 3  # of 1 s
_IDS_PER_STEP = 4  # decoded ahead in one recorded step


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """Duration of a block of code."""

    cpu_s: float  # processor seconds of all threads, divided by CPU_TIME_CORES
    wall_s: float


class Stopwatch:
    """Context manager that measures its block.

    Attributes:
        elapsed: the duration, once the block has ended.
    """

    def __enter__(self) -> "Stopwatch":
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.elapsed = MeasuredTime(
            (time.process_time() - self._cpu) / CPU_TIME_CORES, time.perf_counter() - self._wall
        )


def median_time(costs: Sequence[MeasuredTime]) -> MeasuredTime:
    """The medians of processor time and of wall time, each by itself."""
    return MeasuredTime(
        statistics.median(cost.cpu_s for cost in costs), statistics.median(cost.wall_s for cost in costs)
    )


@dataclass(frozen=True, slots=True)
class FlowStepTimes:
    """Seconds that some equal chunks take."""

    batched_s: float  # all in one step
    sequential_s: float  # one step after the other


class _EndlessGeneration(Generation):
    """A generation that never ends: every id is fed back."""

    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
        inputs: tuple[LmInput, ...] = (LmInput(LmInputKind.SPEECH, 0),)
        while True:
            inputs = self._accept((yield SamplingRequest(inputs, self.ids.control_except())))


@torch.inference_mode()
def measure_token_s(lm: SpeechLm, *, context: int, tokens: int) -> float:
    """Median seconds for one id after ``context`` ids: fed, sampled and copied to the host."""
    state = lm.init_state(1, context + tokens + 2 * _IDS_PER_STEP)
    state.lengths[0] = context
    steps = DecodeGraphs(lm, state, max_inputs=1, ids_per_step=_IDS_PER_STEP)
    generation = _EndlessGeneration(SpecialIds(lm.config.version, lm.config.codebook_size))
    turns = {0: DecodeTurn(generation, seeded_uniforms(0))}

    def step() -> None:
        id: int | None = steps.choose(turns)[0]
        while id is not None:
            generation.answer(id)
            id = steps.decoded_ahead(0, generation.ask())

    step()  # records
    return _median_s(step, -(-tokens // _IDS_PER_STEP)) / _IDS_PER_STEP


@torch.inference_mode()
def measure_flow_steps(flow: Flow, *, chunks: int, rounds: int) -> FlowStepTimes:
    """Median times of one chunk of 1 s for each of ``chunks`` sessions, after a prompt of 3 s."""
    graphs = FlowGraphs(flow, rows=chunks, slots=chunks, pages=_PROMPT_BLOCKS + chunks)
    voice = _random_voice(flow, graphs)
    chunk = _chunk(flow, chunks)
    one = FlowChunk(chunk.ids[:1], chunk.future[:1], chunk.prompt_mel[:1])

    def step(parts: Sequence[FlowChunk]) -> None:
        handles = [graphs.open_sequence(voice) for _ in range(chunks)]
        width = chunks // len(parts)
        for index, part in enumerate(parts):
            mel: Tensor = graphs.step(part, handles[index * width :][:width])
        to_host(mel)

    def batched() -> None:
        step([chunk])

    def sequential() -> None:
        step([one] * chunks)

    batched()  # records
    sequential()
    return FlowStepTimes(_median_s(batched, rounds), _median_s(sequential, rounds))


def _random_voice(flow: Flow, graphs: FlowGraphs) -> PagedVoice:
    count = _PROMPT_BLOCKS * BLOCK_IDS + LOOKAHEAD_IDS
    ids = to_device(torch.arange(count)[None] % flow.config.speech_ids, flow.device)
    speaker = flow.project_speaker(torch.ones(1, flow.config.speaker_width, device=flow.device))
    return graphs.store_voice(
        flow.prefill(
            ids, torch.zeros(1, MEL_BANDS, FRAMES_PER_SPEECH_ID * count, device=flow.device), speaker
        )[0]
    )


def _chunk(flow: Flow, rows: int) -> FlowChunk:
    ids = torch.arange(rows * BLOCK_IDS).view(rows, BLOCK_IDS) % flow.config.speech_ids
    silence = torch.zeros(rows, MEL_BANDS, FRAMES_PER_SPEECH_ID * BLOCK_IDS, device=flow.device)
    return FlowChunk(ids, ids[:, :LOOKAHEAD_IDS], silence)


def _median_s(step: Callable[[], None], count: int) -> float:
    costs = []
    for _ in range(count):
        with Stopwatch() as watch:
            step()
        costs.append(watch.elapsed)
    return median_time(costs).wall_s
