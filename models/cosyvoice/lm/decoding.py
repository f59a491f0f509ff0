"""One step of the language model for every session that has something to ask: feed, sample, answer.

    turns = [Turn(generation, seeded(7)), None, Turn(...)]    a turn a row of the state; None: it is free
    state = advance(lm, state, turns)                         each asking generation is answered once

Which sessions there are, when they end and which row is whose is the caller's. A session's ids depend on its
own text, voice, seed and parameters, never on its company.

Source: the loop of FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:506-549, turned inside out for a batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from ..devices import to_device, to_host
from .generation import Generation, LmInput, SamplingRequest
from .sampling import PeekableUniforms, SamplingContext, SamplingParameters, sample_ids
from .speech_lm import SpeechLm, SpeechLmState, embed_inputs, last_valid_hidden


@dataclass(frozen=True, slots=True)
class DecodeTurn:
    """A session's part in a step.

    source: its own random numbers. fed: inputs of this ask that the row remembers already.
    """

    generation: Generation
    draws: PeekableUniforms
    parameters: SamplingParameters = field(default_factory=SamplingParameters)
    inputs_fed: int = 0


def advance(lm: SpeechLm, state: SpeechLmState, turns: Sequence[DecodeTurn | None]) -> SpeechLmState:
    """Answer every generation that asks, in one step; the state unchanged where none does.

    Raises ValueError where a row would outgrow its memory; nothing is answered then.
    """
    state, chosen = choose(lm, state, turns)
    for row, id in chosen.items():
        turn = turns[row]
        assert turn is not None
        turn.generation.answer(id)
    return state


@torch.inference_mode()
def choose(
    lm: SpeechLm, state: SpeechLmState, turns: Sequence[DecodeTurn | None]
) -> tuple[SpeechLmState, dict[int, int]]:
    """What to answer every generation that asks, by row, and the memory after.

    Raises as ``advance`` does, and ValueError where a row has no id to choose from. Then no generation,
    random number or length has changed: a row can be tried again.
    """
    requests = collect_requests(enumerate(turns))
    if not requests:
        return state, {}
    inputs = {each.row: each.inputs for each in requests}
    x, valid = embed_inputs(lm, [inputs.get(row, ()) for row in range(len(turns))])
    hidden, state = lm.step(x, state, valid)
    return state, _sample_and_force(lm, last_valid_hidden(hidden, valid), requests)


@dataclass(frozen=True, slots=True)
class RowRequest:
    """A row, whose turn it is, and what its generation asks."""

    row: int
    turn: DecodeTurn
    request: SamplingRequest

    @property
    def inputs(self) -> tuple[LmInput, ...]:
        """What the row has to be fed before it can answer."""
        return self.request.inputs[self.turn.inputs_fed :]


def collect_requests(turns: Iterable[tuple[int, DecodeTurn | None]]) -> list[RowRequest]:
    """Of those rows whose turn it is, the ones whose generations ask."""
    return [
        RowRequest(row, turn, request) for row, turn in turns if turn and (request := turn.generation.ask())
    ]


def _sample_and_force(lm: SpeechLm, hidden: torch.Tensor, requests: Sequence[RowRequest]) -> dict[int, int]:
    chosen = {each.row: each.request.forced for each in requests if each.request.forced is not None}
    sampled = [each for each in requests if each.request.forced is None]
    if sampled:
        rows = to_device(torch.tensor([each.row for each in sampled]), hidden.device)
        logits = to_host(lm.logits(hidden[rows]).float()).numpy()
        sampled_ids = sample_ids(logits, [sampling_context(each) for each in sampled])
        chosen |= {each.row: one.id for each, one in zip(sampled, sampled_ids, strict=True)}
    return chosen


def sampling_context(requests: RowRequest) -> SamplingContext:
    """How a row chooses."""
    turn = requests.turn
    return SamplingContext(turn.generation.decoded, turn.draws, requests.request.forbidden, turn.parameters)
