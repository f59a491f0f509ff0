"""Steps of a small family of networks: counting instead of decoding, constant samples instead of speech."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from vivavoce.tts_engine.backends.base import SlotTurn, Stage, StepResult
from vivavoce.tts_engine.segmenter import Segment, Segmenter
from vivavoce.tts_engine.voice_kit.fault_isolation import FaultIsolation
from vivavoce.tts_engine.voice_kit.policy import DecodingPolicy
from vivavoce.tts_engine.voice_kit.session_renderer import Samples, SessionRenderer, row_count

CHUNK_IDS = 6
POLICY = DecodingPolicy(slots=3, ids_per_decode_step=2)


class CountingSession:
    """A long input in ``parts``, then ids until a chunk has six of them."""

    def __init__(self, parts: int = 1) -> None:
        self.parts, self.ids, self.freed = parts, 0, False
        self.begun: list[tuple[Segment, float]] = []

    @property
    def is_chunk_ready(self) -> bool:
        return self.ids >= CHUNK_IDS

    def begin(self, segment: Segment, pause_s: float) -> None:
        self.begun.append((segment, pause_s))

    def empty_result(self) -> StepResult:
        return StepResult(np.zeros(0, np.float32), (), False)

    def render_result(self, samples: Samples) -> StepResult:
        self.ids = 0
        return StepResult(samples, (), True)


class CountingRenderer(SessionRenderer[CountingSession]):
    """Records the rows of each call."""

    def __init__(self, policy: DecodingPolicy = POLICY) -> None:
        super().__init__(policy, nullcontext)
        self.calls: list[str] = []
        self.error: Exception | None = None

    def _begin_decoding(self, row: int, session: CountingSession) -> bool:
        return session.parts > 0

    def _prefill_part(self, row: int, session: CountingSession) -> None:
        self.calls.append(f"prefill {row}")
        session.parts -= 1

    def _decode_turn(self, row: int, session: CountingSession) -> int | None:
        return None if session.parts or session.is_chunk_ready else session.ids

    def _decode_rows(self, turns: Mapping[int, int]) -> dict[int, int]:
        self.calls.append(f"decode {sorted(turns)}")
        if self.error:
            raise self.error
        return {row: ids + 1 for row, ids in turns.items()}

    def _take_decoded(self, row: int, session: CountingSession, decoded: int) -> None:
        session.ids = decoded

    def _begin_rendering(self, session: CountingSession, turn: SlotTurn) -> float:
        return session.ids / 10

    def _render_rows(self, inputs: Mapping[int, float], isolation: FaultIsolation) -> dict[int, Samples]:
        return isolation.run_batch(
            inputs, lambda rows: {row: np.full(4, level, np.float32) for row, level in rows.items()}
        )

    def _clear_row(self, row: int) -> None:
        self.calls.append(f"clear {row}")

    def _free_render_memory(self, session: CountingSession) -> None:
        session.freed = True


def turns(*slots: int) -> list[SlotTurn]:
    return [SlotTurn(slot, None) for slot in slots]


def test_a_long_input_is_prefilled_in_parts_while_other_rows_decode() -> None:
    renderer = CountingRenderer()
    slots = [renderer.open_session(CountingSession(parts)) for parts in (0, 2, 1)]
    for _ in range(3):
        renderer.step(0, turns(*slots))
    assert renderer.calls == [
        *("prefill 1", "decode [0]", "decode [0]"),
        *("prefill 1", "decode [0, 1]", "decode [0, 1]"),
        *("prefill 2", "decode [0, 1, 2]", "decode [0, 1, 2]"),
    ]
    assert [renderer.stage(slot) for slot in slots] == [Stage.RENDER, Stage.DECODE, Stage.DECODE]


def test_a_segment_begins_with_its_first_turn_and_its_chunk_is_rendered() -> None:
    renderer, session = CountingRenderer(), CountingSession(0)
    slot = renderer.open_session(session)
    segmenter = Segmenter()
    [segment] = [*segmenter.push("It is me."), *segmenter.flush()]
    renderer.step(0, [SlotTurn(slot, segment, 0.25)])
    while renderer.stage(slot) is Stage.DECODE:
        [result] = renderer.step(0, turns(slot))
        assert isinstance(result, StepResult) and not len(result.samples)
    [result] = renderer.step(0, turns(slot))
    assert isinstance(result, StepResult) and result.samples.tolist() == pytest.approx([0.6] * 4)
    assert session.begun == [(segment, 0.25)]


def test_a_closed_session_leaves_the_lowest_row_to_the_next() -> None:
    renderer = CountingRenderer()
    first, second, third = (renderer.open_session(CountingSession(0)) for _ in range(3))
    renderer.step(0, turns(second, first))
    renderer.close_slot(third)  # has no row
    renderer.close_slot(second)
    assert renderer.calls[-1] == "clear 0"
    assert renderer.open_slots == 1
    renderer.step(0, turns(renderer.open_session(CountingSession(0))))
    assert renderer.calls[-1] == "decode [0]"


def test_sessions_are_admitted_as_memory_allows_and_none_to_a_lost_device() -> None:
    renderer = CountingRenderer()
    sessions = [CountingSession(0) for _ in range(3)]
    slots = [renderer.open_session(session) for session in sessions]
    renderer.error = MemoryError()
    assert all(isinstance(result, Exception) for result in renderer.step(0, turns(*slots)))
    assert all(session.freed for session in sessions)
    assert (renderer.memory_slots, renderer.slots) == (1, 3)
    for slot in slots:
        renderer.close_slot(slot)
    assert renderer.memory_slots == 3
    renderer.error = RuntimeError("CUDA error: an illegal memory access")
    renderer.step(0, turns(renderer.open_session(CountingSession(0))))
    assert renderer.memory_slots == 0


def test_stages_that_overlap_have_a_worker_each_and_rows_for_cancelled_sessions() -> None:
    apart = replace(POLICY, overlap=True)
    assert CountingRenderer().workers == (frozenset(Stage),)
    assert CountingRenderer(apart).workers == (frozenset({Stage.DECODE}), frozenset({Stage.RENDER}))
    assert [row_count(POLICY), row_count(apart), row_count(apart, render_workers=2)] == [3, 5, 7]
