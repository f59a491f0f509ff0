"""Scheduling on a virtual clock: what must hold whatever the load, and sums done by hand."""

import pytest

from benches.schedule import ROWS, measure
from shared.scheduling_simulation import (
    SessionChooser,
    SimulatedListener,
    SimulatedLoad,
    TextStall,
    first_come,
    round_robin,
    simulate,
)
from shared.simulated_backend import SimulatedBackend, StepCostModel
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, Stage
from vivavoce.tts_engine.reading.normalizer import SpokenWord
from vivavoce.tts_engine.scheduler import SchedulerPolicy, schedule
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment

POLICY = SchedulerPolicy(max_streams=10_000)


def served(
    load: SimulatedLoad, choose: SessionChooser = schedule, slots: int = 10_000
) -> list[SimulatedListener]:
    backend = SimulatedBackend(StepCostModel(), rows=ROWS, slots=slots)
    listeners = simulate(load, backend, choose, POLICY)
    assert not backend._open
    return listeners


@pytest.mark.parametrize("choose", [schedule, first_come, round_robin()])
def test_everyone_hears_everything(choose: SessionChooser) -> None:
    listeners = served(SimulatedLoad(rate=15, requests=200), choose)
    assert len(listeners) == 200
    assert {listener.session.samples for listener in listeners} == {5 * 24_000}
    assert all(listener.first_s is not None and listener.first_s > 0 for listener in listeners)


def test_one_alone_waits_for_its_ids_and_one_piece() -> None:
    (alone,) = served(SimulatedLoad(rate=1, requests=1))
    # 28 ids, of which 15 are said while the second block of text is written, and a piece of one row.
    assert alone.first_s == pytest.approx(13 * 0.00205 + 0.016, abs=0.003)
    assert not alone.underruns


def test_the_same_load_is_served_the_same_way_again() -> None:
    first, second = (served(SimulatedLoad(rate=20, requests=100, seed=3)) for _ in range(2))
    assert [each.first_s for each in first] == [each.first_s for each in second]


def test_newcomers_need_not_wait_for_the_others_to_finish() -> None:
    load = SimulatedLoad(rate=20, requests=400)
    ours, queue = (
        sorted(each.first_s or 0 for each in served(load, order)) for order in (schedule, first_come)
    )
    assert ours[380] < queue[380] / 2


def test_a_house_without_room_lets_in_as_others_leave() -> None:
    assert len(served(SimulatedLoad(rate=50, requests=60), slots=2)) == 60


def test_beyond_what_can_be_computed_listeners_run_dry() -> None:
    assert any(listener.underruns for listener in served(SimulatedLoad(rate=50, requests=300)))


def test_a_slow_language_model_is_no_fault_of_the_house() -> None:
    (slow,) = served(SimulatedLoad(rate=1, requests=1, words_per_s=1.0))  # 5 s of speech from 20 s of writing
    assert not slow.underruns
    (resumed_s,) = slow.resumed_s  # after the first piece, until the last word
    assert resumed_s < 0.2


def test_text_that_stalls_for_a_minute_keeps_nobody_else_waiting() -> None:
    stall = TextStall(every=10, after_words=12, seconds=60.0)
    stalled = served(SimulatedLoad(rate=15, requests=200, stall=stall))
    smooth = served(SimulatedLoad(rate=15, requests=200))
    others = [(one, as_ever) for one, as_ever in zip(stalled, smooth, strict=True) if one.stall is None]
    assert len(others) == 180
    assert not any(one.underruns for one, _ in others)
    waits, waits_as_ever = (
        sorted(each.first_s or 0.0 for each in group) for group in zip(*others, strict=True)
    )
    assert waits[171] < 1.1 * waits_as_ever[171]
    assert max(one.runs_dry_at - one.arrives_at for one, _ in others) < 10


def test_who_stalled_speaks_as_soon_as_the_text_comes_and_was_not_let_down() -> None:
    stall = TextStall(every=10, after_words=12, seconds=60.0)
    stalled = [one for one in served(SimulatedLoad(rate=15, requests=200, stall=stall)) if one.stall]
    assert len(stalled) == 20
    for one in stalled:
        assert not one.underruns
        assert one.session.samples == 5 * 24_000
        assert one.runs_dry_at - one.arrives_at > 60
        (resumed_s,) = one.resumed_s
        assert resumed_s < 0.3


def test_text_allows_ids_block_by_block_and_all_when_it_ends() -> None:
    backend = SimulatedBackend(StepCostModel(), rows=ROWS, slots=1)
    slot = backend.open_slot(SlotRequest("silence", 1.0, 0))

    def give(words: int, ending: BoundaryKind) -> int:
        segment = Segment(tuple(SpokenWord("x", "", 0, 1) for _ in range(words)), 0, 1, ending)
        (rendered,) = backend.step(0, [SlotTurn(slot, segment)])
        steps = 0
        while not isinstance(rendered, Exception) and not rendered.segment_done:
            (rendered,) = backend.step(0, [SlotTurn(slot, None)])
            steps += 1
        return steps

    give(4, BoundaryKind.CLAUSE)
    assert backend._open[slot].ids == 0
    give(1, BoundaryKind.CLAUSE)
    assert (backend._open[slot].ids, backend.stage(slot)) == (15, Stage.DECODE)
    give(3, BoundaryKind.SENTENCE)
    assert (backend._open[slot].ids, backend._open[slot].pieces) == (50, 2)


def test_a_step_that_is_to_take_time_does() -> None:
    slept: list[float] = []
    backend = SimulatedBackend(StepCostModel(decode_s=1.0), rows=ROWS, slots=2, sleep=slept.append)
    slots = [backend.open_slot(SlotRequest("silence", 1.0, 0)) for _ in range(2)]
    segment = Segment((SpokenWord("x", "", 0, 1),), 0, 1, BoundaryKind.SENTENCE)
    backend.step(0, [SlotTurn(slot, segment) for slot in slots])
    assert slept == [pytest.approx(1.0001)]


def test_the_bench_compares_three_orders_and_judges_ours() -> None:
    report = measure(requests=300)
    judged = [figure for figure in report.figures if figure.reached is not None]
    assert [figure.reached for figure in judged] == [True, True]
    assert all("ours" in figure.name for figure in judged)
    assert len(report.figures) == 1 + 3 * 3 * 5


def test_rates_can_be_chosen() -> None:
    report = measure([3.0], requests=40)
    assert {figure.name.split(",")[0] for figure in report.figures[1:]} == {"3/s"}
