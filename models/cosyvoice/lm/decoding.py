"""One step of the language model for all sessions that have a request: feed, then sample.

    turns = [DecodeTurn(generation, seeded_uniforms(7)), None, ...]    one turn a row of the state; None: free
    state, chosen = choose(lm, state, turns)                           one id for each generation that asked
    turns[row].generation.answer(chosen[row])

The caller decides which session has which row. The ids of a session depend on its own text, voice, seed and
parameters, never on the other rows.

Source: the loop of FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:506-549, turned inside out for a batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from ..devices import to_device, to_host
from .generation import Generation, LmInput, SamplingRequest
from .sampling import PeekableUniforms, SamplingContext, SamplingParameters, sample_ids
from .speech_lm import LmNetwork, SpeechLmState, embed_inputs, last_valid_hidden


@dataclass(frozen=True, slots=True)
class DecodeTurn:
    """A session's part in a step."""

    generation: Generation
    draws: PeekableUniforms  # random numbers of the session
    parameters: SamplingParameters = field(default_factory=SamplingParameters)
    inputs_fed: int = 0  # inputs of the pending request that the row's memory holds already


@dataclass(frozen=True, slots=True)
class RowRequest:
    """The pending request of a row's generation."""

    row: int
    turn: DecodeTurn
    request: SamplingRequest

    @property
    def inputs(self) -> tuple[LmInput, ...]:
        """Inputs that the row still has to be fed."""
        return self.request.inputs[self.turn.inputs_fed :]

    @property
    def sampling_context(self) -> SamplingContext:
        """The row's inputs to the sampling rule."""
        turn = self.turn
        return SamplingContext(turn.generation.decoded, turn.draws, self.request.forbidden, turn.parameters)


@torch.inference_mode()
def choose(
    lm: LmNetwork, state: SpeechLmState, turns: Sequence[DecodeTurn | None]
) -> tuple[SpeechLmState, dict[int, int]]:
    """Sample an id for every generation that has a request; returns the new state and the ids by row.

    Raises ValueError if a row would outgrow its memory or has no id to choose from. Then no generation,
    random number or length has changed, so the row can be tried again.
    """
    requests = collect_requests(enumerate(turns))
    if not requests:
        return state, {}
    inputs = {each.row: each.inputs for each in requests}
    x, valid = embed_inputs(lm, [inputs.get(row, ()) for row in range(len(turns))])
    hidden, state = lm.step(x, state, valid)
    return state, _sample(lm, last_valid_hidden(hidden, valid), requests)


def collect_requests(turns: Iterable[tuple[int, DecodeTurn | None]]) -> list[RowRequest]:
    """The pending requests of the rows that have a turn."""
    return [
        RowRequest(row, turn, request) for row, turn in turns if turn and (request := turn.generation.ask())
    ]


def _sample(lm: LmNetwork, hidden: torch.Tensor, requests: Sequence[RowRequest]) -> dict[int, int]:
    rows = to_device(torch.tensor([each.row for each in requests]), hidden.device)
    logits = to_host(lm.logits(hidden[rows]).float()).numpy()
    sampled = sample_ids(logits, [each.sampling_context for each in requests])
    return {each.row: one.id for each, one in zip(requests, sampled, strict=True)}
