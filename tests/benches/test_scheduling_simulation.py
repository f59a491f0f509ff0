"""The scheduling simulation: invariants under load, and values calculated by hand."""

from dataclasses import replace

import pytest

from benches import card_schedule
from benches.schedule import ROWS, measure
from shared.engine.scheduling_simulation import (
    SessionChooser,
    SimulatedListener,
    SimulatedLoad,
    TextStall,
    first_come,
    round_robin,
    simulate,
)
from shared.engine.simulated_backend import SimulatedBackend, StepCostModel
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, Stage
from vivavoce.tts_engine.reading.normalizer import SpokenWord
from vivavoce.tts_engine.scheduler import SchedulerPolicy, schedule
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment

POLICY = SchedulerPolicy(max_streams=10_000)


def simulate_load(
    load: SimulatedLoad, choose: SessionChooser = schedule, slots: int = 10_000
) -> list[SimulatedListener]:
    backend = SimulatedBackend(StepCostModel(), rows=ROWS, slots=slots)
    listeners = simulate(load, backend, choose, POLICY)
    assert not backend._open
    return listeners


@pytest.mark.parametrize("choose", [schedule, first_come, round_robin()])
def test_every_listener_gets_all_audio(choose: SessionChooser) -> None:
    listeners = simulate_load(SimulatedLoad(rate=15, requests=200), choose)
    assert len(listeners) == 200
    assert {listener.session.samples for listener in listeners} == {5 * 24_000}
    assert all(listener.first_s is not None and listener.first_s > 0 for listener in listeners)


def test_a_single_listener_waits_for_its_ids_and_one_chunk() -> None:
    (alone,) = simulate_load(SimulatedLoad(rate=1, requests=1))
    # 28 ids, 15 of them decoded while the second block of text is written, and a chunk of one row.
    assert alone.first_s == pytest.approx(13 * 0.00205 + 0.016, abs=0.003)
    assert not alone.underruns


def test_a_simulation_is_deterministic() -> None:
    first, second = (simulate_load(SimulatedLoad(rate=20, requests=100, seed=3)) for _ in range(2))
    assert [each.first_s for each in first] == [each.first_s for each in second]


def test_new_listeners_wait_less_than_half_as_long_as_in_a_queue() -> None:
    load = SimulatedLoad(rate=20, requests=400)
    deadline, queue = (
        sorted(each.first_s or 0 for each in simulate_load(load, order)) for order in (schedule, first_come)
    )
    assert deadline[380] < queue[380] / 2


def test_waiting_requests_are_admitted_when_slots_are_free() -> None:
    assert len(simulate_load(SimulatedLoad(rate=50, requests=60), slots=2)) == 60


def test_overload_causes_underruns() -> None:
    assert any(listener.underruns for listener in simulate_load(SimulatedLoad(rate=50, requests=300)))


def test_waiting_for_text_is_not_an_underrun() -> None:
    # 5 s of speech from 20 s of text
    (slow,) = simulate_load(SimulatedLoad(rate=1, requests=1, words_per_s=1.0))
    assert not slow.underruns
    (resumed_s,) = slow.resumed_s  # between the first chunk and the last word
    assert resumed_s < 0.2


@pytest.mark.slow
def test_stalled_text_does_not_delay_other_listeners() -> None:
    stall = TextStall(every=10, after_words=12, seconds=60.0)
    stalled = simulate_load(SimulatedLoad(rate=15, requests=200, stall=stall))
    smooth = simulate_load(SimulatedLoad(rate=15, requests=200))
    others = [
        (each, without_stalls)
        for each, without_stalls in zip(stalled, smooth, strict=True)
        if each.stall is None
    ]
    assert len(others) == 180
    assert not any(each.underruns for each, _ in others)
    waits, waits_without_stalls = (
        sorted(each.first_s or 0.0 for each in group) for group in zip(*others, strict=True)
    )
    assert waits[171] < 1.1 * waits_without_stalls[171]
    assert max(each.runs_dry_at - each.arrives_at for each, _ in others) < 10


@pytest.mark.slow
def test_a_stalled_listener_gets_audio_as_soon_as_its_text_arrives() -> None:
    stall = TextStall(every=10, after_words=12, seconds=60.0)
    stalled = [
        each for each in simulate_load(SimulatedLoad(rate=15, requests=200, stall=stall)) if each.stall
    ]
    assert len(stalled) == 20
    for each in stalled:
        assert not each.underruns
        assert each.session.samples == 5 * 24_000
        assert each.runs_dry_at - each.arrives_at > 60
        (resumed_s,) = each.resumed_s
        assert resumed_s < 0.3


def test_text_allows_ids_block_by_block_and_all_at_its_end() -> None:
    backend = SimulatedBackend(StepCostModel(), rows=ROWS, slots=1)
    slot = backend.open_slot(SlotRequest("silence", 1.0, 0))

    def add_segment(words: int, ending: BoundaryKind) -> int:
        segment = Segment(tuple(SpokenWord("x", "", 0, 1) for _ in range(words)), 0, 1, ending)
        (rendered,) = backend.step(0, [SlotTurn(slot, segment)])
        steps = 0
        while not isinstance(rendered, Exception) and not rendered.segment_done:
            (rendered,) = backend.step(0, [SlotTurn(slot, None)])
            steps += 1
        return steps

    add_segment(4, BoundaryKind.CLAUSE)
    assert backend._open[slot].ids == 0
    add_segment(1, BoundaryKind.CLAUSE)
    assert (backend._open[slot].ids, backend.stage(slot)) == (15, Stage.DECODE)
    add_segment(3, BoundaryKind.SENTENCE)
    assert (backend._open[slot].ids, backend._open[slot].chunks) == (50, 2)


def test_a_step_sleeps_for_its_cost() -> None:
    slept: list[float] = []
    backend = SimulatedBackend(StepCostModel(decode_s=1.0), rows=ROWS, slots=2, sleep=slept.append)
    slots = [backend.open_slot(SlotRequest("silence", 1.0, 0)) for _ in range(2)]
    segment = Segment((SpokenWord("x", "", 0, 1),), 0, 1, BoundaryKind.SENTENCE)
    backend.step(0, [SlotTurn(slot, segment) for slot in slots])
    assert slept == [pytest.approx(1.0001)]


@pytest.mark.slow
def test_the_bench_compares_three_orders_and_sets_targets_for_the_deadline_order() -> None:
    report = measure(requests=150)
    with_targets = [figure for figure in report.figures if figure.reached is not None]
    assert [figure.reached for figure in with_targets] == [True, True]
    assert all("deadline" in figure.name for figure in with_targets)
    assert len(report.figures) == 1 + 3 * 3 * 5


def test_rates_can_be_chosen() -> None:
    report = measure([3.0], requests=40)
    assert {figure.name.split(",")[0] for figure in report.figures[1:]} == {"3/s"}


@pytest.fixture(scope="module")
def on_a_card() -> dict[str, float]:
    return {figure.name: figure.value for figure in card_schedule.measure(32, requests=200).figures}


def test_with_the_assumed_costs_of_a_card_32_streams_are_heard_soon_and_without_gaps(
    on_a_card: dict[str, float],
) -> None:
    assert on_a_card["first audio p50, assumed costs"] <= 46
    assert on_a_card["first audio p95, assumed costs"] <= 60
    assert on_a_card["underruns, assumed costs"] == on_a_card["underruns, measured costs"] == 0


def test_a_stream_that_joins_the_next_euler_steps_waits_less_than_for_whole_chunks() -> None:
    whole = replace(card_schedule.MEASURED, euler_steps=card_schedule.EULER_STEPS)
    p95 = [
        sorted(
            (each.session.first_audio_at or 0) - each.arrived_at
            for each in card_schedule.simulate(costs, 32, requests=200, seed=0)
        )[190]
        for costs in (card_schedule.MEASURED, whole)
    ]
    assert p95[0] < p95[1] - 0.005


def test_a_card_with_one_stream_takes_the_sum_of_its_steps() -> None:
    costs = card_schedule.MEASURED
    (alone,) = card_schedule.simulate(costs, 1, requests=1, seed=0)
    decoded = 5 * (costs.turn_s + 4 * (costs.token_s + costs.token_row_s)) + costs.prefill_s
    rendered = (
        5 * costs.turn_s + 10 * (costs.euler_s + costs.euler_row_s) + costs.vocoder_s + costs.vocoder_row_s
    )
    assert (alone.session.first_audio_at or 0) - alone.arrived_at == pytest.approx(decoded + rendered)
