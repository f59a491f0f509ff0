"""One step of the language model for every session that has something to ask: feed, sample, answer.

    turns = [Turn(generation, seeded(7)), None, Turn(...)]      a turn a row of the state; None: the row is
    free state = advance(lm, state, turns)                           each asking generation is answered once

Which sessions there are, when they end and which row is whose is the caller's. A session's ids depend on its
own text, voice, seed and parameters, never on its company.

Source: the loop of FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:506-549, turned inside out for a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from .bistream import Ask, Generation
from .sampling import Chooser, SamplingParameters, UniformSource, draw
from .speech_lm import SpeechLm, SpeechLmState, embed, last_valid


@dataclass(frozen=True, slots=True)
class Turn:
    """A session's part in a step.

    source: its own random numbers. fed: inputs of this ask that the row remembers already.
    """

    generation: Generation
    source: UniformSource
    parameters: SamplingParameters = field(default_factory=SamplingParameters)
    fed: int = 0


@torch.inference_mode()
def advance(lm: SpeechLm, state: SpeechLmState, turns: Sequence[Turn | None]) -> SpeechLmState:
    """Answer every generation that asks, in one step; the state unchanged where none does.

    Raises ValueError where a row would outgrow its memory; nothing is answered then.
    """
    asked = [
        _Asked(row, turn, ask) for row, turn in enumerate(turns) if turn and (ask := turn.generation.ask())
    ]
    if not asked:
        return state
    inputs = {each.row: each.ask.inputs[each.turn.fed :] for each in asked}
    x, valid = embed(lm, [inputs.get(row, ()) for row in range(len(turns))])
    hidden, state = lm.step(x, state, valid)
    _answer(lm, last_valid(hidden, valid), asked)
    return state


@dataclass(frozen=True, slots=True)
class _Asked:
    row: int
    turn: Turn
    ask: Ask


def _answer(lm: SpeechLm, hidden: torch.Tensor, asked: Sequence[_Asked]) -> None:
    sampled = [each for each in asked if each.ask.forced is None]
    if sampled:
        logits = lm.logits(hidden[[each.row for each in sampled]]).float().cpu().numpy()
        drawn = draw(logits, [_chooser(each) for each in sampled])
        for each, chosen in zip(sampled, drawn, strict=True):
            each.turn.generation.answer(chosen.id)
    for each in asked:
        if each.ask.forced is not None:
            each.turn.generation.answer(each.ask.forced)


def _chooser(asked: _Asked) -> Chooser:
    turn = asked.turn
    return Chooser(turn.generation.decoded, turn.source, asked.ask.forbidden, turn.parameters)
