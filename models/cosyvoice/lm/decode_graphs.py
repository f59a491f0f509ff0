"""Decoding steps on a GPU, captured once as CUDA graphs and replayed.

The host writes the requests of a step to a staging buffer, which is copied to the device at once. The device
feeds, samples, and goes on by itself: it feeds each row the id it has just sampled, as nearly every session
would, so that one transfer back brings several ids a row:

    host      inputs, positions, random numbers |->                                     ->| a few ids a row
    device       embed | 24 layers | last output | head | choose | embed | 24 layers | ... | choose

The host then answers a session's next requests from these ids as long as they are the expected ones
(``decoded_ahead``), and drops the rest. Dropping needs no repair: what was written to the memory lies behind
the row's length.

A step is captured for a number of rows, a number of inputs a row and a number of attended positions, each
rounded up to a bucket. Kernels read what a row has, so that with them it is captured for the whole memory.
Rows without a request write to the scratch position.

The rule and the random numbers are those of ``decoding.choose``, so the ids are equal, except where logits
differ by rounding.

Source: CUDA graphs with padded batch buckets, as in nano-vllm@bb823b3e06 engine/model_runner.py:202-257.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...decoding.kv_memory import (
    SpeechLmState,
    input_and_write_positions,
    plan_kv_step,
    plan_kv_step_for_kernels,
)
from ...devices.planned_captures import PlannedCapture
from ...devices.torch_devices import to_host
from ...networks.cuda_graphs import (
    CapturedSteps,
    GraphMemoryPool,
    StagingBuffer,
    StepGraph,
    bucket,
    bucket_ranges,
    buckets,
)
from .decoding import DecodeTurn, RowRequest, collect_requests
from .device_sampling import (
    NO_ID,
    ChosenIds,
    InputPlaces,
    SamplingInputs,
    choose_and_place,
    default_sampling_inputs,
    write_sampling_inputs,
)
from .generation import LmInput, LmInputKind, SamplingRequest
from .sampling import SamplingParameters
from .speech_lm import SpeechLm

_MIN_ATTENDED = 256  # smallest bucket of attended positions
_MAX_RECORDED_ATTENDED = 2048  # largest one that is planned; a longer sentence captures its own
_ROW_GROWTH = 4  # from a bucket of rows to the next: a step of 4 takes hardly longer than one of 2
_MIN_RECENT_IDS = 16  # smallest bucket of ids that the repetition rule looks at; upstream's window is 10
_MAX_RECENT_IDS = 1 << 30


@dataclass(frozen=True, slots=True)
class DecodeGraphKey:
    """Sizes for which a step is captured."""

    rows: int  # the first rows of the memory
    columns: int  # inputs of a row
    attended_positions: int
    recent_ids: int  # of a row, for the repetition rule


@dataclass(frozen=True, slots=True)
class _DecodeInputs:
    """Inputs of a captured step, on the host or on the device."""

    indices: Tensor  # (B, T) int64, of ``SpeechLm.input_index``
    positions: Tensor  # (B, T) int64
    write_positions: Tensor  # (B, T) int64
    last: Tensor  # (B,) int64, the column to sample from
    is_active: Tensor  # (B,) bool, whether the row has a request
    sampling: SamplingInputs


@dataclass(slots=True)
class _DecodedAhead:
    """Ids that a row samples next if its next requests are the expected ones."""

    turn: DecodeTurn
    forbidden: tuple[int, ...]
    last_id: int
    answers: list[tuple[int, bool]]  # the id, and whether it was drawn a second time

    def matches(self, request: SamplingRequest) -> bool:
        """Whether the request feeds the last id and forbids what the step forbade."""
        return request == SamplingRequest((LmInput(LmInputKind.SPEECH, self.last_id),), self.forbidden)


class DecodeGraphs:
    """Captured steps on one memory, which they update in place together with its lengths.

    ``max_inputs`` bounds the inputs of a request, ``ids_per_step`` is the number of ids that a step samples.
    """

    def __init__(self, lm: SpeechLm, state: SpeechLmState, max_inputs: int, ids_per_step: int = 1) -> None:
        self._lm, self._state, self._max_inputs, self.ids_per_step = lm, state, max_inputs, ids_per_step
        self._min_attended = state.capacity if lm.has_fused_kernels else _MIN_ATTENDED
        self._rows_decoded_ahead: dict[int, _DecodedAhead] = {}
        self._steps: CapturedSteps[DecodeGraphKey, _CapturedStep] = CapturedSteps(
            lm.device,
            lambda key, pool: _CapturedStep(lm, state, key, ids_per_step, pool),
            # The next id hardly uses a card and is waited for; a step of the flow fills it.
            priority=-1,
        )

    @property
    def recorded(self) -> tuple[DecodeGraphKey, ...]:
        """Sizes for which steps have been captured."""
        return self._steps.keys

    def defer_captures(
        self, plan_later: Callable[[PlannedCapture], None] | None = None
    ) -> list[PlannedCapture]:
        """Plan the captures of the common steps, which run without a graph until then.

        plan_later: plans those of other sizes when they are first needed; without it they are captured then.
        """
        if plan_later is not None:
            self._steps.defer_new(lambda key: plan_later(self._defer(key)))
        return [self._defer(key) for key in self._common_keys()]

    @torch.inference_mode()
    def choose(self, turns: Mapping[int, DecodeTurn]) -> dict[int, int]:
        """Sample an id for every generation that has a request, by row.

        Ids after it are kept for ``decoded_ahead``. Raises ValueError if a row would outgrow its memory, has
        no id to choose from, or more inputs than a step takes. Then no generation, random number or length
        has changed, so the row can be tried again.
        """
        requests = collect_requests(turns.items())
        if not requests:
            return {}
        input_counts = torch.zeros_like(self._state.lengths)
        for each in requests:
            input_counts[each.row] = len(each.inputs)
        lengths = self._state.lengths + input_counts
        self._check(int(lengths.max()), int(input_counts.max()))
        answers = self._steps.get(self._key_for(requests, lengths)).run(requests, input_counts)
        chosen = {each.row: _chosen_id(answers[0][each.row]) for each in requests}
        for each in requests:
            self._state.lengths[each.row] = lengths[each.row]
            self.discard_decoded_ahead(each.row)
            _consume_draws(each.turn, redrawn=bool(answers[0][each.row][1]))
            self._keep_decoded_ahead(each, chosen[each.row], [step[each.row] for step in answers[1:]])
        return chosen

    def decoded_ahead(self, row: int, request: SamplingRequest | None) -> int | None:
        """The id for a row's next request if the last step has sampled it already, else None.

        None too if there is no request. The row's length then counts the fed id.
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
        """Drop the ids decoded ahead of a row, when it changes its session or its inputs."""
        self._rows_decoded_ahead.pop(row, None)

    def _keep_decoded_ahead(self, request: RowRequest, chosen: int, later: Sequence[Sequence[int]]) -> None:
        room = self._state.capacity - int(self._state.lengths[request.row])
        answers = [(id, bool(redrawn)) for id, redrawn in later[:room]]
        self._rows_decoded_ahead[request.row] = _DecodedAhead(
            request.turn, request.request.forbidden, chosen, answers
        )

    def _check(self, max_length: int, columns: int) -> None:
        if max_length > self._state.capacity:
            raise ValueError(
                f"a row would hold {max_length} ids; its memory was made for {self._state.capacity}"
            )
        if columns > self._max_inputs:
            raise ValueError(f"a request has {columns} inputs; a step takes {self._max_inputs}")

    def _key_for(self, requests: Sequence[RowRequest], lengths: Tensor) -> DecodeGraphKey:
        recent_ids = max(_recent_id_count(each.turn.parameters) for each in requests)
        return DecodeGraphKey(
            bucket(1 + max(each.row for each in requests), len(lengths), growth=_ROW_GROWTH),
            1 if all(len(each.inputs) == 1 for each in requests) else self._max_inputs,
            self._attended_bucket(max(int(lengths[each.row]) for each in requests)),
            bucket(recent_ids, _MAX_RECENT_IDS, _MIN_RECENT_IDS),
        )

    def _attended_bucket(self, max_length: int) -> int:
        capacity = self._state.capacity
        return bucket(min(max_length + self.ids_per_step - 1, capacity), capacity, self._min_attended)

    def _defer(self, key: DecodeGraphKey) -> PlannedCapture:
        # Nearly all ids of a lone stream; only a block of text has several inputs.
        is_first = (key.rows, key.columns, key.attended_positions) == (1, 1, self._min_attended)
        name = f"the step of the language model of {key.rows} rows and {key.columns} inputs"
        min_rows = {rows: fewest for fewest, rows in self._row_ranges()}
        return PlannedCapture(name, min_rows[key.rows], is_first, self._steps.defer(key))

    def _row_ranges(self) -> list[tuple[int, int]]:
        return bucket_ranges(len(self._state.lengths), growth=_ROW_GROWTH)

    def _common_keys(self) -> Iterator[DecodeGraphKey]:
        max_attended = max(self._min_attended, min(self._state.capacity, _MAX_RECORDED_ATTENDED))
        for _, rows in self._row_ranges():
            for attended in buckets(max_attended, self._min_attended):
                for columns in dict.fromkeys((1, self._max_inputs)):
                    yield DecodeGraphKey(rows, columns, attended, _MIN_RECENT_IDS)


class _CapturedStep:
    """One captured step and its staging buffer."""

    def __init__(
        self,
        lm: SpeechLm,
        state: SpeechLmState,
        key: DecodeGraphKey,
        ids_per_step: int,
        pool: GraphMemoryPool | None,
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
        """Sampled ids and whether each was drawn a second time, by step and row.

        ``input_counts`` is (slots,), the number of inputs of each row.
        """
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
            indices[each.row, : len(each.inputs)] = [self._lm.input_index(one) for one in each.inputs]
            uniforms = each.turn.draws.peek(2 * self._ids_per_step)
            write_sampling_inputs(host.sampling, each.row, each.sampling_context, uniforms)
        self._staging.upload()
        return to_host(self._graph.replay()).tolist()

    def _compute(self) -> Tensor:
        inputs = self._staging.on_device_tensors
        rows = torch.arange(self._key.rows, device=inputs.last.device)
        hidden = self._run_lm(inputs.indices, inputs.positions, inputs.write_positions)[rows, inputs.last]
        # (B, hidden) and (B,): of each row the last input.
        chosen = self._choose(hidden, inputs.positions[rows, inputs.last], inputs.sampling)
        answers = [chosen.answers]
        for _ in range(self._ids_per_step - 1):
            hidden = self._run_lm(chosen.indices, chosen.positions, chosen.write_positions)[:, 0]
            chosen = self._choose(hidden, chosen.positions[:, 0], chosen.sampling)
            answers.append(chosen.answers)
        return torch.stack(answers)

    def _choose(self, hidden: Tensor, positions: Tensor, sampling: SamplingInputs) -> ChosenIds:
        is_active = self._staging.on_device_tensors.is_active
        places = InputPlaces(positions, is_active, self._state.capacity, self._lm.config.text_vocab_size)
        return choose_and_place(self._lm.logits(hidden), sampling, places)

    def _run_lm(self, indices: Tensor, positions: Tensor, write_positions: Tensor) -> Tensor:
        """Hidden states of the inputs: (B, T, hidden)."""
        config, attended = self._lm.config, self._key.attended_positions
        attention = (
            plan_kv_step_for_kernels(write_positions, attended)
            if self._lm.has_fused_kernels
            else plan_kv_step(positions, write_positions, attended, config.queries_per_key)
        )
        x, plan = self._lm.embed_and_plan(indices, positions, attention)
        return self._lm.run_layers(x, self._state.kv[: self._key.rows], plan)


def _recent_id_count(parameters: SamplingParameters) -> int:
    """Number of ids that the repetition rule looks at, at least one."""
    return parameters.repetition_window or 1


def _chosen_id(answer: Sequence[int]) -> int:
    if answer[0] == NO_ID:
        raise ValueError("no id is left to choose from: all are forbidden, or the logits are not numbers")
    return answer[0]


def _consume_draws(turn: DecodeTurn, *, redrawn: bool) -> None:
    for _ in range(1 + redrawn):
        turn.draws.random()
