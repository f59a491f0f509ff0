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

from ..cuda_graphs import GraphMemoryPool, StagingBuffer, StepGraph, bucket, buckets, new_graph_pool
from ..devices import to_host
from .decoding import DecodeTurn, RowRequest, collect_requests, sampling_context
from .device_sampling import (
    NO_ID,
    SamplingInputs,
    after_choice,
    choose_ids,
    default_sampling_inputs,
    write_sampling_inputs,
)
from .generation import LmInput, LmInputKind, SamplingRequest
from .sampling import SamplingParameters
from .speech_lm import SpeechLm, SpeechLmState, input_and_write_positions, make_lm_step_plan

_MIN_ATTENDED = 256
_MIN_RECENT_IDS = 16  # ids that repetition is judged by; 10 by upstream's rule


@dataclass(frozen=True, slots=True)
class DecodeGraphKey:
    """What a step is recorded for.

    rows: of the memory. columns: inputs of a row. attended: positions. heard: last ids of a row.
    """

    rows: int
    columns: int
    attended_positions: int
    recent_ids: int


@dataclass(frozen=True, slots=True)
class _DecodeInputs:
    """codes, positions, places: (B, T) int64. last: (B,) int64, the column to answer from.

    asks: (B,) bool, whether the row does.
    """

    indices: Tensor
    positions: Tensor
    write_positions: Tensor
    last: Tensor
    is_active: Tensor
    sampling: SamplingInputs


@dataclass(slots=True)
class _DecodedAhead:
    """What a row says next if it is asked as before. answers: ids, and whether they were drawn again."""

    turn: DecodeTurn
    forbidden: tuple[int, ...]
    last_id: int
    answers: list[tuple[int, bool]]

    def matches(self, request: SamplingRequest) -> bool:
        return request == SamplingRequest((LmInput(LmInputKind.SPEECH, self.last_id),), self.forbidden)


class DecodeGraphs:
    """Steps on a memory, where it lies.

    columns: inputs that an ask in a step may have. ahead: ids that a step comes to. It writes the memory's
    lengths, as its owner does.
    """

    def __init__(self, lm: SpeechLm, state: SpeechLmState, max_inputs: int, ids_per_step: int = 1) -> None:
        self._lm, self._state, self._columns, self.ids_per_step = lm, state, max_inputs, ids_per_step
        self._rows_decoded_ahead: dict[int, _DecodedAhead] = {}
        self._steps: dict[DecodeGraphKey, _RecordedDecodeStep] = {}
        self._pool = new_graph_pool(lm.device)

    @property
    def recorded(self) -> tuple[DecodeGraphKey, ...]:
        """What there are steps for."""
        return tuple(self._steps)

    @torch.inference_mode()
    def record(self) -> None:
        """Record a step for all that is usual, so that no session waits for it later."""
        for key in self._common_keys():
            self._recorded_step(key)

    @torch.inference_mode()
    def choose(self, turns: Mapping[int, DecodeTurn]) -> dict[int, int]:
        """What to answer every generation that asks, by row; the memory is after it.

        What comes after may be ``foreseen``. Raises ValueError where a row would outgrow its memory, has no
        id to choose from, or more inputs than a step takes. Then no generation, random number or length has
        changed: a row can be tried again.
        """
        requests = collect_requests(turns.items())
        if not requests:
            return {}
        input_counts = torch.zeros_like(self._state.lengths)
        for each in requests:
            input_counts[each.row] = len(each.inputs)
        lengths = self._state.lengths + input_counts
        self._check(int(lengths.max()), int(input_counts.max()))
        answers = self._recorded_step(self._key_for(requests, lengths)).run(requests, input_counts)
        chosen = {each.row: _chosen_id(each, answers[0][each.row]) for each in requests}
        for each in requests:
            self._state.lengths[each.row] = lengths[each.row]
            self.discard_decoded_ahead(each.row)
            if each.request.forced is None:
                _consume_draws(each.turn, redrawn=bool(answers[0][each.row][1]))
                self._keep_decoded_ahead(each, chosen[each.row], [step[each.row] for step in answers[1:]])
        return chosen

    def decoded_ahead(self, row: int, request: SamplingRequest | None) -> int | None:
        """What to answer a row's next ask, if that was computed already; the memory is after it.

        None where it was not, or nothing is asked now.
        """
        decoded_ahead = self._rows_decoded_ahead.get(row)
        if request is None or decoded_ahead is None:
            return None
        if (
            not decoded_ahead.answers
            or decoded_ahead.answers[0][0] == NO_ID
            or not decoded_ahead.matches(request)
        ):
            self.discard_decoded_ahead(row)
            return None
        decoded_ahead.last_id, redrawn = decoded_ahead.answers.pop(0)
        self._state.lengths[row] += 1
        _consume_draws(decoded_ahead.turn, redrawn=redrawn)
        return decoded_ahead.last_id

    def discard_decoded_ahead(self, row: int) -> None:
        """Foresee nothing for a row: it is another's, or has been told otherwise."""
        self._rows_decoded_ahead.pop(row, None)

    def _keep_decoded_ahead(self, requests: RowRequest, chosen: int, later: Sequence[Sequence[int]]) -> None:
        buffer = self._state.capacity - int(self._state.lengths[requests.row])
        answers = [(id, bool(redrawn)) for id, redrawn in later[:buffer]]
        self._rows_decoded_ahead[requests.row] = _DecodedAhead(
            requests.turn, requests.request.forbidden, chosen, answers
        )

    def _check(self, max_length: int, columns: int) -> None:
        if max_length > self._state.capacity:
            raise ValueError(
                f"a row would hold {max_length} ids; its memory was made for {self._state.capacity}"
            )
        if columns > self._columns:
            raise ValueError(f"an ask has {columns} inputs; a step takes {self._columns}")

    def _key_for(self, requests: Sequence[RowRequest], lengths: Tensor) -> DecodeGraphKey:
        rows = bucket(1 + max(each.row for each in requests), len(lengths))
        return DecodeGraphKey(
            rows,
            1 if all(len(each.inputs) == 1 for each in requests) else self._columns,
            self._attended_bucket(max(int(lengths[each.row]) for each in requests)),
            bucket(
                max(_recent_id_count(each.turn.parameters) for each in requests), 1 << 30, _MIN_RECENT_IDS
            ),
        )

    def _attended_bucket(self, max_length: int) -> int:
        capacity = self._state.capacity
        return bucket(min(max_length + self.ids_per_step - 1, capacity), capacity, _MIN_ATTENDED)

    def _common_keys(self) -> Iterator[DecodeGraphKey]:
        for rows in buckets(len(self._state.lengths)):
            for columns in (1, self._columns):
                for attended in buckets(self._state.capacity, _MIN_ATTENDED):
                    yield DecodeGraphKey(rows, columns, attended, _MIN_RECENT_IDS)

    def _recorded_step(self, key: DecodeGraphKey) -> "_RecordedDecodeStep":
        if key not in self._steps:
            self._steps[key] = _RecordedDecodeStep(self._lm, self._state, key, self.ids_per_step, self._pool)
        return self._steps[key]


class _RecordedDecodeStep:
    """One recorded step, and its tray."""

    def __init__(
        self,
        lm: SpeechLm,
        state: SpeechLmState,
        key: DecodeGraphKey,
        ids_per_step: int,
        pool: GraphMemoryPool,
    ) -> None:
        self._lm, self._state, self._key, self._ids_per_step = lm, state, key, ids_per_step
        config, shape = lm.config, (key.rows, key.columns)
        idle_inputs = _DecodeInputs(
            torch.zeros(shape, dtype=torch.int64),
            torch.zeros(shape, dtype=torch.int64),
            torch.full(shape, state.capacity),
            torch.zeros(key.rows, dtype=torch.int64),
            torch.zeros(key.rows, dtype=torch.bool),
            default_sampling_inputs(
                key.rows, ids_per_step, key.recent_ids, config.speech_vocab_size - config.codebook_size
            ),
        )
        self._staging = StagingBuffer(idle_inputs, state.kv.device)
        self._graph = StepGraph(self._compute, state.kv.device, pool)

    def run(self, requests: Sequence[RowRequest], input_counts: Tensor) -> list[list[list[int]]]:
        """Id and whether it was drawn again, by place and row. fed: (slots,) how many inputs each row has."""
        rows, columns = self._key.rows, self._key.columns
        host = self._staging.host
        first = SpeechLmState(self._state.kv[:rows], self._state.lengths[:rows])
        for buffer, numbers in zip(
            (host.positions, host.write_positions),
            input_and_write_positions(first, input_counts[:rows], columns),
            strict=True,
        ):
            buffer.copy_(numbers)
        host.last.copy_((input_counts[:rows] - 1).clamp(min=0))
        host.is_active.copy_(input_counts[:rows] > 0)
        indices = host.indices.numpy()
        for each in requests:
            indices[each.row, : len(each.inputs)] = [self._lm.input_index(unit) for unit in each.inputs]
            if each.request.forced is None:
                write_sampling_inputs(
                    host.sampling,
                    each.row,
                    sampling_context(each),
                    each.turn.draws.peek(2 * self._ids_per_step),
                )
        self._staging.upload()
        return to_host(self._graph.replay()).tolist()

    def _compute(self) -> Tensor:
        inputs = self._staging.on_device_tensors
        rows = torch.arange(self._key.rows, device=inputs.last.device)
        hidden = self._run_lm(inputs.indices, inputs.positions, inputs.write_positions)[rows, inputs.last]
        position, sampling = inputs.positions[rows, inputs.last], inputs.sampling
        answers = [choose_ids(self._lm.logits(hidden), sampling)]
        for _ in range(self._ids_per_step - 1):
            position, sampling = position + 1, after_choice(sampling, answers[-1])
            write_position = torch.where(
                inputs.is_active, position.clamp(max=self._state.capacity), self._state.capacity
            )
            indices = self._lm.speech_input_indices(answers[-1][:, :1])
            hidden = self._run_lm(indices, position[:, None], write_position[:, None])[:, 0]
            answers.append(choose_ids(self._lm.logits(hidden), sampling))
        return torch.stack(answers)

    def _run_lm(self, indices: Tensor, positions: Tensor, places: Tensor) -> Tensor:
        """What the network makes of inputs at places: (B, T, hidden)."""
        plan = make_lm_step_plan(positions, places, self._key.attended_positions, self._lm.config)
        return self._lm.run_layers(self._lm.embed(indices), self._state.kv[: self._key.rows], plan)


def _recent_id_count(parameters: SamplingParameters) -> int:
    """Ids that may have been heard too often at once."""
    return parameters.repetition_window or 1


def _chosen_id(requests: RowRequest, answer: Sequence[int]) -> int:
    if requests.request.forced is not None:
        return requests.request.forced
    if answer[0] == NO_ID:
        raise ValueError("no id is left to choose from: all are forbidden, or the logits are no numbers")
    return answer[0]


def _consume_draws(turn: DecodeTurn, *, redrawn: bool) -> None:
    for _ in range(1 + redrawn):
        turn.draws.random()
