"""Runs the language model for the sessions that want speech ids, and remembers what each has been fed.

A session has a row of the memory. What its voice says before any text is fed once a voice, kept, and copied
into the row of every sentence that begins:

    prompt      START t t t t t s s s ... s | what the text decides
                |<- kept, the same for all ->|

Long inputs are fed by themselves and in parts, so that rows which only want their next id wait for one part
and are not padded to its length:

    row 0       p p p p . . p p p p . . a . . a .       p  a part of a long input
    row 1       . . . . a a . . . . a a . a a . a       a  an ask of all rows that are so far, in one step

On a CPU a step takes the rows that have a turn, on another device the first rows of the memory as recorded,
and comes to a few ids of each (``decode_graphs``). Policy, counters and text are in ``utterance``. One
thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

from ...models.cosyvoice.lm.decode_graphs import DecodeGraphs
from ...models.cosyvoice.lm.decoding import DecodeTurn, choose
from ...models.cosyvoice.lm.generation import Generation, LmInput, LmPrompt, SamplingRequest
from ...models.cosyvoice.lm.speech_lm import SpeechLm, SpeechLmState, embed_inputs

# Inputs of an ask that goes into a step with others: the last sound and a block of text.
MAX_BATCHED_INPUTS = 8


@dataclass(slots=True)
class PromptPrefix:
    """What every sentence of a prompt begins with, and how many of its units have been fed to its one row.

    Whoever waits for one holds it, so that it is heard to its end whatever else is asked for meanwhile.
    """

    units: tuple[LmInput, ...]
    state: SpeechLmState
    prefilled_units: int = 0

    @property
    def is_prefilled(self) -> bool:
        """Whether nothing is left to feed."""
        return self.prefilled_units == len(self.units)


class LmRunner:
    """Rows of memory, and steps on some of them.

    start: makes the generation of a prompt. memory_ids: that a row remembers. openings: kept at most.
    prefill_chunk: inputs fed at once. ahead: ids that a step comes to where steps are recorded.
    """

    def __init__(
        self,
        lm: SpeechLm,
        new_generation: Callable[[LmPrompt], Generation],
        *,
        rows: int,
        context_ids: int,
        max_prompt_prefixes: int,
        prefill_chunk: int,
        ids_per_step: int,
    ) -> None:
        self._lm = lm
        self._new_generation = new_generation
        self._state = lm.init_state(rows, context_ids)
        self._graphs: DecodeGraphs | None = None
        if lm.device.type != "cpu":
            self._graphs = DecodeGraphs(lm, self._state, MAX_BATCHED_INPUTS, ids_per_step)
        if self._graphs and lm.device.type == "cuda":
            self._graphs.record()
        self._max_prompt_prefixes = max_prompt_prefixes
        self._prefill_chunk = prefill_chunk
        self._prompt_prefixes: OrderedDict[LmPrompt, PromptPrefix] = OrderedDict()

    @property
    def ids_per_step(self) -> int:
        """Ids that ``choose`` comes to, of which all but the first are ``foreseen``."""
        return self._graphs.ids_per_step if self._graphs else 1

    def prompt_prefix(self, prompt: LmPrompt) -> PromptPrefix:
        """A prompt's, perhaps not heard yet."""
        if prompt not in self._prompt_prefixes:
            units = _common_prefix(self._new_generation, prompt)
            self._prompt_prefixes[prompt] = PromptPrefix(units, self._lm.init_state(1, len(units)))
            if len(self._prompt_prefixes) > self._max_prompt_prefixes:
                self._prompt_prefixes.popitem(last=False)
        self._prompt_prefixes.move_to_end(prompt)
        return self._prompt_prefixes[prompt]

    def prefill(self, prefix: PromptPrefix) -> None:
        """Feed the next part of an opening, once for all that have it."""
        units_part = prefix.units[prefix.prefilled_units :][: self._prefill_chunk]
        prefix.state = self._prefilled(prefix.state, units_part)
        prefix.prefilled_units += len(units_part)

    @torch.inference_mode()
    def copy_prefix(self, row: int, prefix: PromptPrefix) -> int:
        """Empty a row and copy what was heard; how many inputs of the first ask that is."""
        self._state.kv[row, :, :, :, : prefix.prefilled_units] = prefix.state.kv[
            0, :, :, :, : prefix.prefilled_units
        ]
        self._state.lengths[row] = prefix.prefilled_units
        return prefix.prefilled_units

    def prefill_row(self, row: int, units: Sequence[LmInput]) -> int:
        """Feed a row the next part of inputs that are too long for a step with others; how many it was."""
        units_part = units[: min(self._prefill_chunk, len(units) - 1)]
        after = self._prefilled(self._row_range(row, row + 1), units_part)
        self._state.lengths[row] = after.lengths[0]
        return len(units_part)

    def clear_row(self, row: int) -> None:
        """Empty a row; none is attended to for longer than those in use."""
        self._state.lengths[row] = 0
        if self._graphs is not None:
            self._graphs.discard_decoded_ahead(row)

    def choose(self, turns: Mapping[int, DecodeTurn]) -> dict[int, int]:
        """What to answer each row's generation; where this raises, nothing has changed."""
        if self._graphs is not None:
            return self._graphs.choose(turns)
        first, stop = min(turns), max(turns) + 1
        units_part, chosen = choose(
            self._lm, self._row_range(first, stop), [turns.get(row) for row in range(first, stop)]
        )
        # A row between them may be emptied meanwhile, by a caller who closes its session.
        for row in turns:
            self._state.lengths[row] = units_part.lengths[row - first]
        return {first + row: id for row, id in chosen.items()}

    def decoded_ahead(self, row: int, ask: SamplingRequest | None) -> int | None:
        """What to answer a row's next ask, where ``choose`` came to that already."""
        return self._graphs.decoded_ahead(row, ask) if self._graphs else None

    def _row_range(self, first: int, stop: int) -> SpeechLmState:
        """Neighbours, where they lie."""
        return SpeechLmState(self._state.kv[first:stop], self._state.lengths[first:stop])

    @torch.inference_mode()
    def _prefilled(self, state: SpeechLmState, units: Sequence[LmInput]) -> SpeechLmState:
        x, valid = embed_inputs(self._lm, [units])
        return self._lm.step(x, state, valid)[1]


def _common_prefix(new_generation: Callable[[LmPrompt], Generation], prompt: LmPrompt) -> tuple[LmInput, ...]:
    """What is fed before the first text id: where utterances of different text begin to differ.

    A prompt may be spoken before any text is needed; the last of its inputs is left to be asked with.
    """
    one, other = (_first_inputs(new_generation(prompt), text_id) for text_id in (0, 1))
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one[:-1], other, strict=False))
    return tuple(unit for unit, _ in pairs)


def _first_inputs(generation: Generation, text_id: int) -> tuple[LmInput, ...]:
    generation.push_text((text_id,))
    generation.end_text()
    ask = generation.ask()
    assert ask is not None
    return ask.inputs
