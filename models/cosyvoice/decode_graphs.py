"""``decoding`` for a device: feed, sample and answer in one step that is recorded once and replayed.

What a session wants is written to a tray on the host, carried there in one go, embedded, computed and chosen
from. The device does not wait to be told what follows: it feeds each row what it has chosen, as nearly every
session would, and so comes to a few ids more, which are waited for once:

    host      inputs, places, random numbers |->                                        ->| a few ids a row
    device       embed | 24 layers | last output | head | choose | embed | 24 layers | ... | choose

The host takes of them what the session then really asks for (``foreseen``) and forgets the rest, which nobody
has been changed by: what it left in the memory is behind the row's length.

A step is recorded for a number of rows, the first of the memory, for one input a row or as many as an ask may
have, and for how far back is attended to; each is rounded up. Rows that ask nothing write to the scratch.

The ids are those of ``decoding.choose``: the same rule, the same random numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .bistream import Ask, Kind, Unit
from .decoding import Asked, Turn, all_asked, chooser_of
from .device_sampling import NONE, Wishes, after, choose_ids, no_wishes, write_wishes
from .devices import on_host
from .sampling import SamplingParameters
from .speech_lm import SpeechLm, SpeechLmState, plan_step, positions_and_places
from .step_graph import Pool, StepGraph, Tray, bucket, buckets, new_pool

_LEAST_ATTENDED = 256
_LEAST_HEARD = 16  # ids that repetition is judged by; 10 by upstream's rule


@dataclass(frozen=True, slots=True)
class Extent:
    """What a step is recorded for.

    rows: of the memory. columns: inputs of a row. attended: positions. heard: last ids of a row.
    """

    rows: int
    columns: int
    attended: int
    heard: int


@dataclass(frozen=True, slots=True)
class _Inputs:
    """codes, positions, places: (B, T) int64. last: (B,) int64, the column to answer from.

    asks: (B,) bool, whether the row does.
    """

    codes: Tensor
    positions: Tensor
    places: Tensor
    last: Tensor
    asks: Tensor
    wishes: Wishes


@dataclass(slots=True)
class _Foreseen:
    """What a row says next if it is asked as before. answers: ids, and whether they were drawn again."""

    turn: Turn
    forbidden: tuple[int, ...]
    last: int
    answers: list[tuple[int, bool]]

    def is_meant_by(self, ask: Ask) -> bool:
        return ask == Ask((Unit(Kind.SPEECH, self.last),), self.forbidden)


class DecodeGraphs:
    """Steps on a memory, where it lies.

    columns: inputs that an ask in a step may have. ahead: ids that a step comes to. It writes the memory's
    lengths, as its owner does.
    """

    def __init__(self, lm: SpeechLm, state: SpeechLmState, columns: int, ahead: int = 1) -> None:
        self._lm, self._state, self._columns, self.ahead = lm, state, columns, ahead
        self._foreseen: dict[int, _Foreseen] = {}
        self._steps: dict[Extent, _Step] = {}
        self._pool = new_pool(lm.device)

    @property
    def recorded(self) -> tuple[Extent, ...]:
        """What there are steps for."""
        return tuple(self._steps)

    @torch.inference_mode()
    def record(self) -> None:
        """Record a step for all that is usual, so that no session waits for it later."""
        for extent in self._usual():
            self._step(extent)

    @torch.inference_mode()
    def choose(self, turns: Mapping[int, Turn]) -> dict[int, int]:
        """What to answer every generation that asks, by row; the memory is after it.

        What comes after may be ``foreseen``. Raises ValueError where a row would outgrow its memory, has no
        id to choose from, or more inputs than a step takes. Then no generation, random number or length has
        changed: a row can be tried again.
        """
        asked = all_asked(turns.items())
        if not asked:
            return {}
        fed = torch.zeros_like(self._state.lengths)
        for each in asked:
            fed[each.row] = len(each.inputs)
        lengths = self._state.lengths + fed
        self._check(int(lengths.max()), int(fed.max()))
        answers = self._step(self._extent(asked, lengths)).run(asked, fed)
        chosen = {each.row: _answer(each, answers[0][each.row]) for each in asked}
        for each in asked:
            self._state.lengths[each.row] = lengths[each.row]
            self.forget(each.row)
            if each.ask.forced is None:
                _use(each.turn, redrawn=bool(answers[0][each.row][1]))
                self._foresee(each, chosen[each.row], [step[each.row] for step in answers[1:]])
        return chosen

    def foreseen(self, row: int, ask: Ask | None) -> int | None:
        """What to answer a row's next ask, if that was computed already; the memory is after it.

        None where it was not, or nothing is asked now.
        """
        foreseen = self._foreseen.get(row)
        if ask is None or foreseen is None:
            return None
        if not foreseen.answers or foreseen.answers[0][0] == NONE or not foreseen.is_meant_by(ask):
            self.forget(row)
            return None
        foreseen.last, redrawn = foreseen.answers.pop(0)
        self._state.lengths[row] += 1
        _use(foreseen.turn, redrawn=redrawn)
        return foreseen.last

    def forget(self, row: int) -> None:
        """Foresee nothing for a row: it is another's, or has been told otherwise."""
        self._foreseen.pop(row, None)

    def _foresee(self, asked: Asked, chosen: int, later: Sequence[Sequence[int]]) -> None:
        room = self._state.capacity - int(self._state.lengths[asked.row])
        answers = [(id, bool(redrawn)) for id, redrawn in later[:room]]
        self._foreseen[asked.row] = _Foreseen(asked.turn, asked.ask.forbidden, chosen, answers)

    def _check(self, longest: int, columns: int) -> None:
        if longest > self._state.capacity:
            raise ValueError(
                f"a row would hold {longest} ids; its memory was made for {self._state.capacity}"
            )
        if columns > self._columns:
            raise ValueError(f"an ask has {columns} inputs; a step takes {self._columns}")

    def _extent(self, asked: Sequence[Asked], lengths: Tensor) -> Extent:
        rows = bucket(1 + max(each.row for each in asked), len(lengths))
        return Extent(
            rows,
            1 if all(len(each.inputs) == 1 for each in asked) else self._columns,
            self._attended(max(int(lengths[each.row]) for each in asked)),
            bucket(max(_room(each.turn.parameters) for each in asked), 1 << 30, _LEAST_HEARD),
        )

    def _attended(self, longest: int) -> int:
        capacity = self._state.capacity
        return bucket(min(longest + self.ahead - 1, capacity), capacity, _LEAST_ATTENDED)

    def _usual(self) -> Iterator[Extent]:
        for rows in buckets(len(self._state.lengths)):
            for columns in (1, self._columns):
                for attended in buckets(self._state.capacity, _LEAST_ATTENDED):
                    yield Extent(rows, columns, attended, _LEAST_HEARD)

    def _step(self, extent: Extent) -> "_Step":
        if extent not in self._steps:
            self._steps[extent] = _Step(self._lm, self._state, extent, self.ahead, self._pool)
        return self._steps[extent]


class _Step:
    """One recorded step, and its tray."""

    def __init__(self, lm: SpeechLm, state: SpeechLmState, extent: Extent, ahead: int, pool: Pool) -> None:
        self._lm, self._state, self._extent, self._ahead = lm, state, extent, ahead
        config, shape = lm.config, (extent.rows, extent.columns)
        harmless = _Inputs(
            torch.zeros(shape, dtype=torch.int64),
            torch.zeros(shape, dtype=torch.int64),
            torch.full(shape, state.capacity),
            torch.zeros(extent.rows, dtype=torch.int64),
            torch.zeros(extent.rows, dtype=torch.bool),
            no_wishes(extent.rows, ahead, extent.heard, config.speech_rows - config.speech_codes),
        )
        self._tray = Tray(harmless, state.kv.device)
        self._graph = StepGraph(self._compute, state.kv.device, pool)

    def run(self, asked: Sequence[Asked], fed: Tensor) -> list[list[list[int]]]:
        """Id and whether it was drawn again, by place and row. fed: (slots,) how many inputs each row has."""
        rows, columns = self._extent.rows, self._extent.columns
        host = self._tray.host
        first = SpeechLmState(self._state.kv[:rows], self._state.lengths[:rows])
        for room, numbers in zip(
            (host.positions, host.places), positions_and_places(first, fed[:rows], columns), strict=True
        ):
            room.copy_(numbers)
        host.last.copy_((fed[:rows] - 1).clamp(min=0))
        host.asks.copy_(fed[:rows] > 0)
        codes = host.codes.numpy()
        for each in asked:
            codes[each.row, : len(each.inputs)] = [self._lm.code(unit) for unit in each.inputs]
            if each.ask.forced is None:
                write_wishes(host.wishes, each.row, chooser_of(each), each.turn.source.ahead(2 * self._ahead))
        self._tray.carry()
        return on_host(self._graph.replay()).tolist()

    def _compute(self) -> Tensor:
        given = self._tray.there
        rows = torch.arange(self._extent.rows, device=given.last.device)
        hidden = self._fed(given.codes, given.positions, given.places)[rows, given.last]
        position, wishes = given.positions[rows, given.last], given.wishes
        answers = [choose_ids(self._lm.logits(hidden), wishes)]
        for _ in range(self._ahead - 1):
            position, wishes = position + 1, after(wishes, answers[-1])
            place = torch.where(given.asks, position.clamp(max=self._state.capacity), self._state.capacity)
            codes = self._lm.codes_of_speech(answers[-1][:, :1])
            hidden = self._fed(codes, position[:, None], place[:, None])[:, 0]
            answers.append(choose_ids(self._lm.logits(hidden), wishes))
        return torch.stack(answers)

    def _fed(self, codes: Tensor, positions: Tensor, places: Tensor) -> Tensor:
        """What the network makes of inputs at places: (B, T, hidden)."""
        plan = plan_step(positions, places, self._extent.attended, self._lm.config)
        return self._lm.run(self._lm.embed(codes), self._state.kv[: self._extent.rows], plan)


def _room(parameters: SamplingParameters) -> int:
    """Ids that may have been heard too often at once."""
    return parameters.repetition_window or 1


def _answer(asked: Asked, answer: Sequence[int]) -> int:
    if asked.ask.forced is not None:
        return asked.ask.forced
    if answer[0] == NONE:
        raise ValueError("no id is left to choose from: all are forbidden, or the logits are no numbers")
    return answer[0]


def _use(turn: Turn, *, redrawn: bool) -> None:
    for _ in range(1 + redrawn):
        turn.source.random()
