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

from .bistream import Ask, Generation, Unit
from .devices import on_device, on_host
from .sampling import Chooser, Draws, SamplingParameters, draw
from .speech_lm import SpeechLm, SpeechLmState, embed, last_valid


@dataclass(frozen=True, slots=True)
class Turn:
    """A session's part in a step.

    source: its own random numbers. fed: inputs of this ask that the row remembers already.
    """

    generation: Generation
    source: Draws
    parameters: SamplingParameters = field(default_factory=SamplingParameters)
    fed: int = 0


def advance(lm: SpeechLm, state: SpeechLmState, turns: Sequence[Turn | None]) -> SpeechLmState:
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
    lm: SpeechLm, state: SpeechLmState, turns: Sequence[Turn | None]
) -> tuple[SpeechLmState, dict[int, int]]:
    """What to answer every generation that asks, by row, and the memory after.

    Raises as ``advance`` does, and ValueError where a row has no id to choose from. Then no generation,
    random number or length has changed: a row can be tried again.
    """
    asked = all_asked(enumerate(turns))
    if not asked:
        return state, {}
    inputs = {each.row: each.inputs for each in asked}
    x, valid = embed(lm, [inputs.get(row, ()) for row in range(len(turns))])
    hidden, state = lm.step(x, state, valid)
    return state, _chosen(lm, last_valid(hidden, valid), asked)


@dataclass(frozen=True, slots=True)
class Asked:
    """A row, whose turn it is, and what its generation asks."""

    row: int
    turn: Turn
    ask: Ask

    @property
    def inputs(self) -> tuple[Unit, ...]:
        """What the row has to be fed before it can answer."""
        return self.ask.inputs[self.turn.fed :]


def all_asked(turns: Iterable[tuple[int, Turn | None]]) -> list[Asked]:
    """Of those rows whose turn it is, the ones whose generations ask."""
    return [Asked(row, turn, ask) for row, turn in turns if turn and (ask := turn.generation.ask())]


def _chosen(lm: SpeechLm, hidden: torch.Tensor, asked: Sequence[Asked]) -> dict[int, int]:
    chosen = {each.row: each.ask.forced for each in asked if each.ask.forced is not None}
    sampled = [each for each in asked if each.ask.forced is None]
    if sampled:
        rows = on_device(torch.tensor([each.row for each in sampled]), hidden.device)
        logits = on_host(lm.logits(hidden[rows]).float()).numpy()
        drawn = draw(logits, [chooser_of(each) for each in sampled])
        chosen |= {each.row: one.id for each, one in zip(sampled, drawn, strict=True)}
    return chosen


def chooser_of(asked: Asked) -> Chooser:
    """How a row chooses."""
    turn = asked.turn
    return Chooser(turn.generation.decoded, turn.source, asked.ask.forbidden, turn.parameters)
