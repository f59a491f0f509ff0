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

from ...models.cosyvoice.bistream import Ask, Generation, Prompt, Unit
from ...models.cosyvoice.decode_graphs import DecodeGraphs
from ...models.cosyvoice.decoding import Turn, choose
from ...models.cosyvoice.speech_lm import SpeechLm, SpeechLmState, embed

# Inputs of an ask that goes into a step with others: the last sound and a block of text.
MOST_TOGETHER = 8


@dataclass(slots=True)
class Opening:
    """What every sentence of a prompt begins with, and how many of its units have been fed to its one row.

    Whoever waits for one holds it, so that it is heard to its end whatever else is asked for meanwhile.
    """

    units: tuple[Unit, ...]
    state: SpeechLmState
    fed: int = 0

    @property
    def is_heard(self) -> bool:
        """Whether nothing is left to feed."""
        return self.fed == len(self.units)


class LmRunner:
    """Rows of memory, and steps on some of them.

    start: makes the generation of a prompt. memory_ids: that a row remembers. openings: kept at most.
    prefill_chunk: inputs fed at once. ahead: ids that a step comes to where steps are recorded.
    """

    def __init__(
        self,
        lm: SpeechLm,
        start: Callable[[Prompt], Generation],
        *,
        rows: int,
        memory_ids: int,
        openings: int,
        prefill_chunk: int,
        ahead: int,
    ) -> None:
        self._lm = lm
        self._start = start
        self._state = lm.init_state(rows, memory_ids)
        self._graphs: DecodeGraphs | None = None
        if lm.device.type != "cpu":
            self._graphs = DecodeGraphs(lm, self._state, MOST_TOGETHER, ahead)
        if self._graphs and lm.device.type == "cuda":
            self._graphs.record()
        self._most_openings = openings
        self._prefill_chunk = prefill_chunk
        self._openings: OrderedDict[Prompt, Opening] = OrderedDict()

    @property
    def ahead(self) -> int:
        """Ids that ``choose`` comes to, of which all but the first are ``foreseen``."""
        return self._graphs.ahead if self._graphs else 1

    def opening(self, prompt: Prompt) -> Opening:
        """A prompt's, perhaps not heard yet."""
        if prompt not in self._openings:
            units = _common_units(self._start, prompt)
            self._openings[prompt] = Opening(units, self._lm.init_state(1, len(units)))
            if len(self._openings) > self._most_openings:
                self._openings.popitem(last=False)
        self._openings.move_to_end(prompt)
        return self._openings[prompt]

    def hear(self, opening: Opening) -> None:
        """Feed the next part of an opening, once for all that have it."""
        part = opening.units[opening.fed :][: self._prefill_chunk]
        opening.state = self._fed(opening.state, part)
        opening.fed += len(part)

    @torch.inference_mode()
    def begin(self, row: int, opening: Opening) -> int:
        """Empty a row and copy what was heard; how many inputs of the first ask that is."""
        self._state.kv[row, :, :, :, : opening.fed] = opening.state.kv[0, :, :, :, : opening.fed]
        self._state.lengths[row] = opening.fed
        return opening.fed

    def feed(self, row: int, units: Sequence[Unit]) -> int:
        """Feed a row the next part of inputs that are too long for a step with others; how many it was."""
        part = units[: min(self._prefill_chunk, len(units) - 1)]
        after = self._fed(self._rows(row, row + 1), part)
        self._state.lengths[row] = after.lengths[0]
        return len(part)

    def end(self, row: int) -> None:
        """Empty a row; none is attended to for longer than those in use."""
        self._state.lengths[row] = 0
        if self._graphs is not None:
            self._graphs.forget(row)

    def choose(self, turns: Mapping[int, Turn]) -> dict[int, int]:
        """What to answer each row's generation; where this raises, nothing has changed."""
        if self._graphs is not None:
            return self._graphs.choose(turns)
        first, stop = min(turns), max(turns) + 1
        part, chosen = choose(
            self._lm, self._rows(first, stop), [turns.get(row) for row in range(first, stop)]
        )
        # A row between them may be emptied meanwhile, by a caller who closes its session.
        for row in turns:
            self._state.lengths[row] = part.lengths[row - first]
        return {first + row: id for row, id in chosen.items()}

    def foreseen(self, row: int, ask: Ask | None) -> int | None:
        """What to answer a row's next ask, where ``choose`` came to that already."""
        return self._graphs.foreseen(row, ask) if self._graphs else None

    def _rows(self, first: int, stop: int) -> SpeechLmState:
        """Neighbours, where they lie."""
        return SpeechLmState(self._state.kv[first:stop], self._state.lengths[first:stop])

    @torch.inference_mode()
    def _fed(self, state: SpeechLmState, units: Sequence[Unit]) -> SpeechLmState:
        x, valid = embed(self._lm, [units])
        return self._lm.step(x, state, valid)[1]


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
