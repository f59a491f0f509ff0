"""Runs the language model for the sessions that want speech ids, and remembers what each has been fed.

A session has a row of the memory. What its voice says before any text is fed once a voice, kept, and copied
into the row of every sentence that begins:

    prompt      START t t t t t s s s ... s | what the text decides
                |<- kept, the same for all ->|

Policy, counters and text are in ``utterance``. One thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from ...models.cosyvoice.bistream import Generation, Prompt, Unit
from ...models.cosyvoice.decoding import Turn, advance
from ...models.cosyvoice.speech_lm import SpeechLm, SpeechLmState, embed


@dataclass(frozen=True, slots=True)
class _Opening:
    """What every sentence of a prompt begins with. kv: (1, layers, 2, kv_heads, units, head_width)."""

    units: tuple[Unit, ...]
    kv: Tensor


class LmRunner:
    """Rows of memory, and steps on some of them.

    start: makes the generation of a prompt. memory_ids: that a row remembers. openings: kept at most.
    """

    def __init__(
        self,
        lm: SpeechLm,
        start: Callable[[Prompt], Generation],
        *,
        rows: int,
        memory_ids: int,
        openings: int,
    ) -> None:
        self._lm = lm
        self._start = start
        self._state = lm.init_state(rows, memory_ids)
        self._most_openings = openings
        self._openings: OrderedDict[Prompt, _Opening] = OrderedDict()

    @torch.inference_mode()
    def begin(self, row: int, prompt: Prompt) -> int:
        """Empty a row and feed it the prompt's opening; how many inputs of the first ask that were."""
        opening = self._opening(prompt)
        self._state.kv[row, :, :, :, : len(opening.units)] = opening.kv[0]
        self._state.lengths[row] = len(opening.units)
        return len(opening.units)

    @torch.inference_mode()
    def advance(self, turns: Mapping[int, Turn]) -> None:
        """Answer what the generations ask, each in its row."""
        first, stop = min(turns), max(turns) + 1
        part = SpeechLmState(self._state.kv[first:stop], self._state.lengths[first:stop])
        part = advance(self._lm, part, [turns.get(row) for row in range(first, stop)])
        self._state.lengths[first:stop] = part.lengths

    def _opening(self, prompt: Prompt) -> _Opening:
        if prompt not in self._openings:
            self._openings[prompt] = self._heard(_common_units(self._start, prompt))
            if len(self._openings) > self._most_openings:
                self._openings.popitem(last=False)
        self._openings.move_to_end(prompt)
        return self._openings[prompt]

    def _heard(self, units: tuple[Unit, ...]) -> _Opening:
        x, valid = embed(self._lm, [units])
        _, state = self._lm.step(x, self._lm.init_state(1, len(units)), valid)
        return _Opening(units, state.kv[:, :, :, :, : len(units)].clone())


def _common_units(start: Callable[[Prompt], Generation], prompt: Prompt) -> tuple[Unit, ...]:
    """What is fed before the first text id: where utterances of different text begin to differ.

    A prompt may be spoken before any text is needed; the last of its inputs is left to be asked with.
    """
    one, other = (_first_inputs(start(prompt), text_id) for text_id in (0, 1))
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one[:-1], other, strict=False))
    return tuple(unit for unit, _ in pairs)


def _first_inputs(generation: Generation, text_id: int) -> tuple[Unit, ...]:
    generation.push_text((text_id,))
    generation.end_text()
    ask = generation.ask()
    assert ask is not None
    return ask.inputs
