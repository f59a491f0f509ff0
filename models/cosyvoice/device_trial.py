"""What recorded steps cost on a device, by the clock: a token of one session, chunks of the flow together.

The clock runs until the result is on the host, as it does for a session. No targets, no tables.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .bistream import Ask, Generation, Kind, SpeechIds, Unit
from .decode_graphs import DecodeGraphs
from .decoding import Turn
from .devices import on_device, on_host
from .flow import BLOCK_IDS, MEL, Flow, FlowChunk
from .flow_encoder import LOOKAHEAD, RATIO
from .flow_graphs import FlowGraphs, PagedVoice
from .sampling import seeded
from .speech_lm import SpeechLm
from .timings import Watch, median

_PROMPT_BLOCKS = 3
_AHEAD = 4


@dataclass(frozen=True, slots=True)
class FlowPace:
    """Seconds of some equal chunks in one step, and one after another."""

    together_s: float
    apart_s: float


class _Endless(Generation):
    """One sound after the other."""

    def _ask_all(self) -> Generator[Ask | None, int, None]:
        inputs: tuple[Unit, ...] = (Unit(Kind.SPEECH, 0),)
        while True:
            inputs = self._accept((yield Ask(inputs, self.ids.control_but())))


@torch.inference_mode()
def token_s(lm: SpeechLm, *, context: int, tokens: int) -> float:
    """Median seconds of an id, fed, sampled and brought to the host with the next ones, behind so many."""
    state = lm.init_state(1, context + tokens + 2 * _AHEAD)
    state.lengths[0] = context
    steps = DecodeGraphs(lm, state, columns=1, ahead=_AHEAD)
    generation = _Endless(SpeechIds(lm.config.version, lm.config.speech_codes))
    turns = {0: Turn(generation, seeded(0))}

    def step() -> None:
        id: int | None = steps.choose(turns)[0]
        while id is not None:
            generation.answer(id)
            id = steps.foreseen(0, generation.ask())

    step()  # is recorded
    return _median_s(step, -(-tokens // _AHEAD)) / _AHEAD


@torch.inference_mode()
def flow_pace(flow: Flow, *, chunks: int, rounds: int) -> FlowPace:
    """Chunks of 1 s of as many sessions, behind a prompt of 3 s; medians."""
    graphs = FlowGraphs(flow, rows=chunks, slots=chunks, pages=_PROMPT_BLOCKS + chunks)
    voice = _voice(flow, graphs)
    chunk = _chunk(flow, chunks)
    one = FlowChunk(chunk.ids[:1], chunk.future[:1], chunk.prompt_mel[:1])

    def step(parts: Sequence[FlowChunk]) -> None:
        seats = [graphs.open(voice) for _ in range(chunks)]
        width = chunks // len(parts)
        for place, part in enumerate(parts):
            mel: Tensor = graphs.step(part, seats[place * width :][:width])
        on_host(mel)

    def together() -> None:
        step([chunk])

    def apart() -> None:
        step([one] * chunks)

    together()  # are recorded
    apart()
    return FlowPace(_median_s(together, rounds), _median_s(apart, rounds))


def _voice(flow: Flow, graphs: FlowGraphs) -> PagedVoice:
    count = _PROMPT_BLOCKS * BLOCK_IDS + LOOKAHEAD
    ids = on_device(torch.arange(count)[None] % flow.config.speech_ids, flow.device)
    speaker = flow.speaker(torch.ones(1, flow.config.speaker_width, device=flow.device))
    return graphs.keep(flow.prefill(ids, torch.zeros(1, MEL, RATIO * count, device=flow.device), speaker)[0])


def _chunk(flow: Flow, rows: int) -> FlowChunk:
    ids = torch.arange(rows * BLOCK_IDS).view(rows, BLOCK_IDS) % flow.config.speech_ids
    silence = torch.zeros(rows, MEL, RATIO * BLOCK_IDS, device=flow.device)
    return FlowChunk(ids, ids[:, :LOOKAHEAD], silence)


def _median_s(step: Callable[[], None], count: int) -> float:
    costs = []
    for _ in range(count):
        with Watch() as watch:
            step()
        costs.append(watch.cost)
    return median(costs).wall_s
