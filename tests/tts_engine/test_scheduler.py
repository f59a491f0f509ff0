"""Tests of the scheduling order and of admission, without threads or clocks."""

import pytest

from vivavoce.tts_engine.backends.base import ALL_STAGES, Stage, Stages
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.errors import Overloaded
from vivavoce.tts_engine.scheduler import (
    Admission,
    ComputeCost,
    SchedulerPolicy,
    admit,
    can_pause,
    schedule,
    step_cost_s,
)
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment
from vivavoce.tts_engine.session import Session

POLICY = SchedulerPolicy(max_unread_s=1.0, max_streams=4, max_load=0.8)


def session(slot: int, *, ready_at: float = 0.0) -> Session:
    """A session with one segment waiting since ``ready_at``."""
    opened = Session(slot, opened_at=0.0)
    opened.add(Segment((), 0, 0, BoundaryKind.SENTENCE), now=ready_at)
    return opened


def speaking(slot: int, *, deadline: float | None, unread_s: float = 0.0) -> Session:
    """A session that has given audio already."""
    opened = session(slot)
    opened.first_audio_at, opened.deadline, opened.unread_s = 10.0, deadline, unread_s
    return opened


def order(
    *sessions: Session, max_batch_size: int = 9, decoding: tuple[int, ...] = (), stages: Stages = ALL_STAGES
) -> list[int]:
    def stage_of(session: Session) -> Stage:
        return Stage.DECODE if session.slot in decoding else Stage.RENDER

    return [
        chosen.slot for chosen in schedule(sessions, stage_of, lambda stage: max_batch_size, POLICY, stages)
    ]


def test_of_streams_without_audio_the_longest_waiting_goes_first() -> None:
    assert order(session(1, ready_at=5.0), session(2, ready_at=4.0)) == [2, 1]


def test_a_stream_without_audio_goes_before_listeners_who_have_0_1_s_left_when_its_text_is_there() -> None:
    assert order(speaking(1, deadline=5.11), session(2, ready_at=5.0)) == [2, 1]
    assert order(session(2, ready_at=5.0), speaking(1, deadline=5.09)) == [1, 2]


def test_a_stream_waits_since_its_first_segment_although_a_later_one_is_being_rendered() -> None:
    held_back = session(1, ready_at=4.0)
    held_back.pending.clear()
    held_back.add(Segment((), 0, 0, BoundaryKind.SENTENCE), now=9.0)
    assert order(session(2, ready_at=5.0), held_back) == [1, 2]


def test_sessions_with_audio_follow_in_the_order_in_which_their_listeners_run_dry() -> None:
    assert order(speaking(1, deadline=12.0), speaking(2, deadline=11.0), speaking(3, deadline=11.5)) == [
        2,
        3,
        1,
    ]


def test_audio_not_yet_taken_counts_as_playing_time() -> None:
    assert order(speaking(1, deadline=11.0, unread_s=0.9), speaking(2, deadline=11.5)) == [2, 1]


def test_a_listener_that_reports_no_deadline_is_assumed_to_play_in_real_time() -> None:
    silent = speaking(1, deadline=None)
    silent.samples = 2 * SAMPLE_RATE  # plays until 12.0
    assert order(silent, speaking(2, deadline=11.9)) == [2, 1]
    assert order(silent, speaking(2, deadline=12.1)) == [1, 2]


def test_a_session_with_enough_unread_audio_is_skipped() -> None:
    assert order(speaking(1, deadline=1.0, unread_s=1.0), speaking(2, deadline=9.0, unread_s=0.99)) == [2]


def test_running_cancelled_and_idle_sessions_are_skipped() -> None:
    running, cancelled, idle = session(1), session(2), Session(3, opened_at=0.0)
    running.running, cancelled.cancelled_at = True, 1.0
    assert order(running, cancelled, idle, session(4)) == [4]


def test_at_most_one_batch_is_chosen() -> None:
    assert order(
        session(1, ready_at=2), session(2, ready_at=1), session(3, ready_at=3), max_batch_size=2
    ) == [2, 1]


def test_the_most_urgent_decides_the_stage_and_others_in_it_share_the_step() -> None:
    sessions = (speaking(1, deadline=9.0), session(2), speaking(3, deadline=8.0), speaking(4, deadline=7.0))
    assert order(*sessions, decoding=(2, 3)) == [2, 3]
    assert order(*sessions, decoding=(1, 3)) == [2, 4]
    assert order(*sessions[2:], decoding=(3,)) == [4]


def test_a_worker_of_one_stage_skips_sessions_in_other_stages() -> None:
    sessions = (speaking(1, deadline=9.0), session(2), speaking(3, deadline=8.0), speaking(4, deadline=7.0))
    assert order(*sessions, decoding=(2, 3), stages=frozenset({Stage.RENDER})) == [4, 1]
    assert order(*sessions, decoding=(2, 3), stages=frozenset({Stage.DECODE})) == [2, 3]
    assert order(*sessions, stages=frozenset({Stage.DECODE})) == []


def test_the_batch_size_depends_on_the_stage() -> None:
    sessions = [speaking(slot, deadline=float(slot)) for slot in range(6)]

    def chosen(stage: Stage) -> int:
        return len(
            schedule(sessions, lambda _: stage, {Stage.DECODE: 5, Stage.RENDER: 2}.__getitem__, POLICY)
        )

    assert (chosen(Stage.DECODE), chosen(Stage.RENDER)) == (5, 2)


def test_the_last_segment_alone_has_no_pause_after_it() -> None:
    ended = Session(1, opened_at=0.0)
    sentence = Segment((), 0, 0, BoundaryKind.SENTENCE)
    ended.add_last([sentence, sentence], now=0.0)
    assert [pending.pause_s > 0 for pending in ended.pending] == [True, False]


def test_cost_is_unknown_until_five_seconds_of_audio_were_measured() -> None:
    cost = ComputeCost()
    cost.observe(0.4, 4.0, now=4.0)
    assert cost.compute_s_per_audio_s == 0.0
    cost.observe(0.2, 2.0, now=6.0)
    assert cost.compute_s_per_audio_s == pytest.approx(0.1)


def test_cost_follows_the_current_cost_of_rendering() -> None:
    cost = ComputeCost()
    for second in range(60):
        cost.observe(0.1, 1.0, second)
    for second in range(60, 180):
        cost.observe(0.4, 1.0, second)
    assert cost.compute_s_per_audio_s == pytest.approx(0.4, rel=0.05)


def test_among_many_streams_a_cheap_moment_changes_the_cost_little() -> None:
    cost = ComputeCost()
    for step in range(2_000):  # 200 s of audio a second
        cost.observe(0.01, 1.0, step / 200)
    for step in range(2_000, 2_030):
        cost.observe(0.005, 1.0, step / 200)
    assert cost.compute_s_per_audio_s == pytest.approx(0.01, rel=0.05)
    for step in range(2_030, 4_000):
        cost.observe(0.005, 1.0, step / 200)
    assert cost.compute_s_per_audio_s == pytest.approx(0.005, rel=0.02)


def test_a_stream_beyond_max_streams_is_refused_with_the_reason() -> None:
    admit(3, slots=9, memory_slots=9, cost=ComputeCost(), policy=POLICY)
    with pytest.raises(Overloaded, match="at most 4") as refusal:
        admit(4, slots=9, memory_slots=9, cost=ComputeCost(), policy=POLICY)
    assert refusal.value.reason == "streams"
    assert refusal.value.retry_after_s > 0


def test_a_stream_beyond_the_slots_of_the_backend_is_refused() -> None:
    with pytest.raises(Overloaded, match="at most 2"):
        admit(2, slots=2, memory_slots=2, cost=ComputeCost(), policy=POLICY)


def test_a_stream_is_refused_with_the_reason_when_nothing_computes_it() -> None:
    for open_streams in (0, 4):
        with pytest.raises(Overloaded, match="its device failed") as refusal:
            admit(open_streams, slots=4, memory_slots=0, cost=ComputeCost(), policy=POLICY)
        assert refusal.value.reason == "device"


def test_a_stream_beyond_the_memory_slots_is_refused_with_the_reason() -> None:
    admit(1, slots=4, memory_slots=2, cost=ComputeCost(), policy=POLICY)
    with pytest.raises(Overloaded, match="memory has room for 2 now") as refusal:
        admit(2, slots=4, memory_slots=2, cost=ComputeCost(), policy=POLICY)
    assert refusal.value.reason == "memory"
    assert refusal.value.retry_after_s > 0


def test_a_stream_that_does_not_fit_the_compute_is_refused() -> None:
    cost = ComputeCost()
    for _ in range(10):
        cost.observe(0.3, 1.0, now=0.0)
    admit(1, slots=9, memory_slots=9, cost=cost, policy=POLICY)  # 2 x 0.3 = 60 %
    with pytest.raises(Overloaded, match="90%") as refusal:
        admit(2, slots=9, memory_slots=9, cost=cost, policy=POLICY)
    assert refusal.value.reason == "compute"
    with pytest.raises(Overloaded, match="90%"):  # one is rendered, and still being heard
        admit(1, slots=9, memory_slots=9, cost=cost, policy=POLICY, untaken_streams=1)
    two = ComputeCost((ALL_STAGES,) * 2)
    for _ in range(10):
        two.observe(0.3, 1.0, now=0.0)
    admit(2, slots=9, memory_slots=9, cost=two, policy=POLICY)


def test_the_utterances_of_calls_that_are_up_are_admitted_before_new_streams() -> None:
    cost = ComputeCost()
    cost.observe(3.0, 10.0, now=0.0)

    def fits(open_streams: int, admission: Admission) -> bool:
        try:
            admit(open_streams, slots=9, memory_slots=9, cost=cost, policy=POLICY, admission=admission)
        except Overloaded:
            return False
        return True

    # 0.3 of the compute each: two are 60 %, three 90 %, four 120 %; of new streams 80 % is allowed
    assert [fits(count, Admission.NEW) for count in (1, 2, 3)] == [True, False, False]
    assert [fits(count, Admission.ONGOING) for count in (1, 2, 3)] == [True, True, False]
    assert fits(3, Admission.OVERDUE)
    assert not fits(4, Admission.OVERDUE)  # max_streams


def test_time_that_a_step_lost_to_others_is_part_of_its_cost_but_a_stall_is_not() -> None:
    assert step_cost_s(0.010, 0.010) == 0.010
    assert step_cost_s(0.020, 0.010) == 0.020
    assert step_cost_s(2.0, 0.010) == pytest.approx(0.030)
    assert step_cost_s(0.009, 0.010) == 0.010  # clocks differ by a little


def test_the_cost_is_that_of_the_busiest_kind_of_worker() -> None:
    decode, render = frozenset({Stage.DECODE}), frozenset({Stage.RENDER})
    cost = ComputeCost((decode, render))
    for second in range(10):
        cost.observe(0.05, 0.0, second, decode)
        cost.observe(0.05, 0.0, second, decode)
        cost.observe(0.3, 1.0, second, render)
    assert cost.compute_s_per_audio_s == pytest.approx(0.3)
    for _ in range(10):
        cost.observe(0.3, 0.0, 10.0, decode)
    assert cost.compute_s_per_audio_s > 0.35


def test_a_machine_too_slow_for_one_stream_admits_one() -> None:
    cost = ComputeCost()
    cost.observe(50.0, 10.0, now=0.0)
    admit(0, slots=9, memory_slots=9, cost=cost, policy=POLICY)
    with pytest.raises(Overloaded):
        admit(1, slots=9, memory_slots=9, cost=cost, policy=POLICY)


def test_a_worker_may_pause_while_no_listener_waits_for_sound_or_runs_dry_meanwhile() -> None:
    done = speaking(1, deadline=5.0)
    done.pending.clear()
    cancelled = session(2)
    cancelled.cancelled_at = 4.0
    silent = Session(3, opened_at=0.0)
    waits = (speaking(4, deadline=9.0, unread_s=0.5), done, cancelled, silent)
    assert can_pause([], until=9.0)
    assert can_pause(waits, until=9.4)
    assert not can_pause(waits, until=9.5)
    assert not can_pause([*waits, session(5)], until=0.0)
    silent.inputs.append(("Well", None, None, 0.0))  # text that is not read yet
    assert not can_pause(waits, until=9.4)
