"""Routing by cost: the choice, admission across replicas, and the knowledge of one gateway."""

import math
from dataclasses import replace

import pytest

from benches.routing.simulation import ClusterLoad, by_cost, power_of_two, round_robin, simulate
from vivavoce.gateway.cluster.routing import (
    ReplicaState,
    RoutingPolicy,
    RoutingTable,
    SpeechRate,
    StreamWork,
    choose_replica,
    estimate_work,
)
from vivavoce.tts_engine.errors import Overloaded

POLICY = RoutingPolicy()
IDLE = ReplicaState("idle", open_streams=0, max_streams=10, compute_s_per_audio_s=0.05)
WORK = StreamWork(first_audio_s=0.4, audio_s=5.0)


def chosen(*replicas: ReplicaState, work: StreamWork = WORK) -> str:
    return choose_replica(replicas, work, POLICY).id


def test_a_long_text_is_more_work_than_a_short_one() -> None:
    short, long = estimate_work("Hello."), estimate_work("Hello. " * 100)
    assert long.audio_s > 50 * short.audio_s
    assert short.first_audio_s <= long.first_audio_s == SpeechRate().first_chunk_s


def test_a_han_character_is_as_much_speech_as_three_letters() -> None:
    assert estimate_work("你好").audio_s == estimate_work("abcdef").audio_s


def test_a_text_that_is_still_written_is_expected_to_go_on() -> None:
    assert estimate_work("Hello", text_ended=False).audio_s == SpeechRate().open_ended_s


def test_the_replica_with_the_shortest_wait_is_chosen() -> None:
    busy = replace(IDLE, id="busy", wait_s=0.1)
    assert chosen(busy, IDLE) == "idle"


def test_a_faster_replica_is_chosen_although_it_has_more_streams() -> None:
    fast = replace(IDLE, id="fast", compute_s_per_audio_s=0.01, open_streams=5)
    assert chosen(IDLE, fast) == "fast"


def test_a_recording_to_encode_counts_on_every_replica_alike() -> None:
    busy = replace(IDLE, id="busy", wait_s=0.1)
    assert chosen(busy, IDLE, work=replace(WORK, reference_s=20.0)) == "idle"


def test_a_replica_whose_listeners_run_dry_is_avoided() -> None:
    pressed = replace(IDLE, id="pressed", short_lead_share=0.5)
    assert chosen(pressed, replace(IDLE, wait_s=0.02)) == "idle"


def test_a_warm_voice_is_worth_the_cost_of_its_reference_and_no_more() -> None:
    warm = replace(IDLE, id="warm", voices=frozenset({"anna"}), wait_s=0.019)
    work = replace(WORK, voice="anna", reference_s=1.0)
    assert chosen(IDLE, warm, work=work) == "warm"
    assert chosen(IDLE, warm) == "idle"
    assert chosen(IDLE, replace(warm, wait_s=0.05), work=work) == "idle"


@pytest.mark.parametrize(
    "full",
    [
        replace(IDLE, open_streams=10),
        replace(IDLE, is_draining=True),
        replace(IDLE, open_streams=1, compute_s_per_audio_s=0.5),
    ],
    ids=["streams", "draining", "compute"],
)
def test_full_replicas_refuse_with_the_time_to_retry(full: ReplicaState) -> None:
    with pytest.raises(Overloaded, match="none of 1 replicas has room") as refusal:
        choose_replica([full], WORK, POLICY)
    assert refusal.value.retry_after_s > 0
    assert choose_replica([full, IDLE], WORK, POLICY) is IDLE


def test_a_replica_slower_than_real_time_takes_one_stream() -> None:
    slow = replace(IDLE, compute_s_per_audio_s=3.0)
    assert choose_replica([slow], WORK, POLICY) is slow


def test_without_replicas_a_stream_is_refused() -> None:
    with pytest.raises(Overloaded, match="no replica is ready"):
        RoutingTable().route(WORK, 0.0)


def test_a_table_counts_what_it_routed_since_the_report() -> None:
    table = RoutingTable()
    for name in "ab":
        table.report(replace(IDLE, id=name), 0.0)
    assert {table.route(WORK, 0.0).id, table.route(WORK, 0.0).id} == {"a", "b"}


def test_a_replica_works_off_its_wait_while_time_passes() -> None:
    table = RoutingTable(replace(POLICY, fresh_s=10.0))
    table.report(replace(IDLE, id="ended", wait_s=0.5, compute_s_per_audio_s=0.04), 0.0)
    table.report(replace(IDLE, id="steady", wait_s=0.1), 1.0)
    assert table.route(WORK, 1.0).id == "ended"


def test_a_silent_or_removed_replica_gets_no_streams() -> None:
    table = RoutingTable()
    table.report(replace(IDLE, id="silent"), 0.0)
    table.report(replace(IDLE, id="alive", wait_s=9.0), 6.0)
    assert table.route(WORK, 6.0).id == "alive"
    table.remove("alive")
    with pytest.raises(Overloaded):
        table.route(WORK, 6.0)


@pytest.mark.parametrize("lie", [math.nan, math.inf, -1.0, 1e12])
def test_a_replica_that_lies_about_its_wait_comes_last_and_one_about_its_cost_counts_as_unmeasured(
    lie: float,
) -> None:
    table = RoutingTable()
    table.report(replace(IDLE, id="liar", wait_s=lie), 0.0)
    table.report(replace(IDLE, wait_s=0.9), 0.0)
    assert table.route(WORK, 0.0).id == "idle"
    table = RoutingTable()
    table.report(replace(IDLE, id="liar", compute_s_per_audio_s=lie, open_streams=-3), 0.0)
    table.report(replace(IDLE, compute_s_per_audio_s=0.2), 0.0)
    assert table.route(WORK, 0.0).id == "liar"  # like any that has measured nothing


def test_a_replica_that_refuses_gets_no_stream() -> None:
    assert chosen(replace(IDLE, id="full", is_full=True), replace(IDLE, wait_s=9.0)) == "idle"


def test_a_gateway_that_is_alone_compares_all_replicas_however_old_their_reports() -> None:
    table = RoutingTable(seed=0)
    for number in range(16):
        table.report(replace(IDLE, id=str(number), wait_s=1.0 * (number != 7), gateways=1), 0.0)
    assert table.route(WORK, 0.9).id == "7"


def test_a_load_is_spread_before_a_slow_replica_is_full() -> None:
    slow = replace(IDLE, id="slow", compute_s_per_audio_s=0.15, open_streams=5)
    fast = replace(IDLE, id="fast", open_streams=9, wait_s=0.01)
    assert chosen(slow, fast) == "fast"


def test_only_the_replicas_named_are_chosen_from() -> None:
    table = RoutingTable()
    for name in "abc":
        table.report(replace(IDLE, id=name), 0.0)
    assert {table.route(WORK, 0.0, among=["c", "unknown"]).id for _ in range(5)} == {"c"}


def test_one_free_replica_of_a_thousand_is_found() -> None:
    table = RoutingTable(seed=0)
    for number in range(1000):
        table.report(replace(IDLE, id=str(number), open_streams=10 * (number != 700)), 0.0)
    assert table.route(WORK, 0.0).id == "700"


def test_old_reports_spread_streams_and_fresh_ones_do_not() -> None:
    def first_choices(now: float) -> set[str]:
        ids = set()
        for seed in range(20):
            table = RoutingTable(seed=seed)
            for number in range(16):
                table.report(replace(IDLE, id=str(number), wait_s=0.001 * number), 0.0)
            ids.add(table.route(WORK, now).id)
        return ids

    assert first_choices(0.0) == {"0"}
    assert len(first_choices(1.0)) > 5


def test_reports_that_are_younger_than_the_waits_they_report_are_compared_as_fresh_ones() -> None:
    def first_choices(now: float) -> set[str]:
        ids = set()
        for seed in range(20):
            table = RoutingTable(seed=seed)
            for number in range(16):
                table.report(replace(IDLE, id=str(number), wait_s=2.0 + 0.1 * number), 0.0)
            ids.add(table.route(WORK, now).id)
        return ids

    assert first_choices(1.0) == {"0"}
    assert len(first_choices(4.0)) > 5


def p95_s(load: ClusterLoad, policy: object) -> float:
    streams = simulate(load, policy)  # type: ignore[arg-type]
    waits = sorted((stream.first_audio_at or 0.0) - stream.arrived_at for stream in streams)
    assert len(waits) == len(streams) > 500
    return waits[len(waits) * 95 // 100]


@pytest.mark.parametrize("is_in_order", [False, True])
def test_sixteen_replicas_answer_sooner_than_by_other_policies(is_in_order: bool) -> None:
    load = ClusterLoad(replicas=16, seconds=40, is_in_order=is_in_order)
    others = min(p95_s(load, power_of_two), p95_s(load, round_robin))
    assert p95_s(load, by_cost) <= 0.7 * others


def test_wrong_estimates_do_not_make_it_worse_than_power_of_two() -> None:
    load = ClusterLoad(replicas=16, seconds=40, is_in_order=True, estimate_error=2.0)
    assert p95_s(load, by_cost) < p95_s(load, power_of_two)
