"""The bench of mixed load: its counters, and a short run of all three processes."""

import os
import time

import numpy as np
import pytest

from benches.mix.measure import (
    MixOptions,
    discard_delays_ms,
    first_sound_delays_ms,
    measure,
    slope_per_hour,
)
from benches.mix.phones import MeasuredCall, MixedCallResult
from benches.mix.standstill import has_standstill
from vivavoce.adapters.audiosocket.protocol import AudioSocketAudio, encode
from vivavoce.gateway.cli.bench.processes import CpuUsage, process_tree, run_neighbour

PACKET = encode(AudioSocketAudio(8_000, bytes(320)))


def holes(*reads: tuple[float, int]) -> MixedCallResult:
    """The result of reads of (arrival in seconds, number of packets)."""
    result, call = MixedCallResult(), MeasuredCall(0.0)
    for arrived_at, packets in reads:
        call.add_read(arrived_at, packets * PACKET, result)
    return result


def test_packets_that_were_read_late_together_are_no_hole() -> None:
    assert holes((0.00, 1), (0.10, 5), (0.12, 1)).holes == 0


def test_packets_that_came_late_are_a_hole() -> None:
    result = holes((0.00, 1), (0.09, 1), (0.11, 1), (0.35, 2))
    assert (result.packets, result.holes, result.long_holes) == (5, 2, 1)
    assert result.hole_ends == [0.09, 0.35]
    assert result.max_hole_ms == pytest.approx(220)


def test_the_largest_number_of_packets_in_200_ms_is_kept() -> None:
    steady = [(0.0201 * number, 1) for number in range(30)]
    assert holes(*steady).max_burst == 10
    assert holes(*steady, (1.0, 7), (1.19, 6), (1.21, 1)).max_burst == 13


def test_a_read_may_end_within_a_packet() -> None:
    result, call = MixedCallResult(), MeasuredCall(0.0)
    call.add_read(0.0, PACKET + PACKET[:100], result)
    call.add_read(0.02, PACKET[100:], result)
    assert (result.packets, result.holes) == (2, 0)


def test_audible_packets_in_a_row_are_one_sound() -> None:
    result, call = MixedCallResult(), MeasuredCall(0.0, "a")
    audible = encode(AudioSocketAudio(8_000, b"\1\0" * 160))
    for number, packet in enumerate([PACKET, audible, audible, audible, PACKET, audible, PACKET]):
        call.add_read(number * 0.02, packet, result)
    assert result.sounds == [("a", 0.02, 0.06), ("a", 0.10, 0.10)]


def test_a_discard_is_measured_to_the_end_of_the_sound_that_it_cuts() -> None:
    sounds = [("a", 1.0, 2.0), ("b", 1.0, 3.0), ("a", 4.0, 5.0)]
    discards = [("a", 1.99), ("a", 3.0), ("b", 2.5), ("c", 1.5)]
    assert discard_delays_ms(discards, sounds) == pytest.approx([10, 500])


def test_the_first_sound_of_a_call_is_measured_from_its_first_clause() -> None:
    sounds = [("a", 4.0, 5.0), ("a", 1.0, 2.0), ("b", 3.0, 3.5)]
    assert first_sound_delays_ms([("a", 0.95), ("b", 3.1), ("c", 1.0)], sounds) == pytest.approx([50, 0])


def test_the_slope_of_a_straight_line_is_exact_and_noise_widens_its_interval() -> None:
    times_s = [360.0 * number for number in range(11)]
    assert slope_per_hour(times_s, [5 + 2 * time_s / 3600 for time_s in times_s]) == pytest.approx((2, 0))
    slope, half_width = slope_per_hour(times_s, [float(number % 2) for number in range(11)])
    assert abs(slope) < half_width


@pytest.mark.parametrize(("correlation", "jumps"), [(0.0, 0.0), (0.7, 0.0), (0.9, 0.0), (0.98, 2.0)])
def test_the_interval_of_a_slope_holds_for_samples_that_wander_and_jump(
    correlation: float, jumps: float
) -> None:
    """jumps: deviation of independent noise, beside wandering of deviation 1."""
    generator, times_s = np.random.default_rng(0), [float(second) for second in range(600)]
    runs, with_true_slope = 300, 0
    for _ in range(runs):
        wandering = [float(generator.standard_normal())]
        for drawn in generator.standard_normal(len(times_s) - 1):
            wandering.append(correlation * wandering[-1] + (1 - correlation**2) ** 0.5 * float(drawn))
        noise = wandering + jumps * generator.standard_normal(len(times_s))
        slope, half_width = slope_per_hour(times_s, noise + 7 * np.array(times_s) / 3600)
        with_true_slope += abs(slope - 7) <= half_width
    assert 0.85 < with_true_slope / runs < 0.99  # 0.95 but for the error of the correlation itself


@pytest.mark.slow
def test_a_short_run_reports_calls_streams_and_health() -> None:
    report = measure(
        MixOptions(
            calls=3,
            calls_per_s=1.0,
            utterances_per_s=2.0,
            discards_per_s=1.0,
            streams_per_s=1.0,
            seconds=8.0,
            seed=1,
        )
    )
    figures = {figure.name: figure.value for figure in report.figures}
    for name in (
        "calls",
        "packets at the phones",
        "utterances on calls",
        "API streams",
        "discards of audible speech",
    ):
        assert figures[name] > 0, name
    assert figures["calls ended by the gateway"] == figures["API streams that failed"] == 0


def test_a_neighbour_takes_the_processor_that_was_asked_for_and_ends() -> None:
    own = os.getpid()
    before = set(process_tree(own))
    with run_neighbour(1.25):
        (first, second) = set(process_tree(own)) - before
        started = time.monotonic()
        time.sleep(2.0)
        used_s = [CpuUsage.now(pid).processes_s for pid in (first, second)]
        elapsed_s = time.monotonic() - started
    assert 0.3 < sum(used_s) <= 2.75  # less where the machine has no more
    assert min(used_s) < 0.25 * elapsed_s + 0.25  # with the time that its start took
    assert set(process_tree(own)) <= before


def test_a_time_has_a_standstill_that_overlaps_it_or_ended_just_before() -> None:
    standstills = [(1.00, 1.05)]
    times = (0.9, 0.99), (0.9, 1.01), (1.03, 1.04), (1.08, 1.09), (1.2, 1.3)
    assert [has_standstill(standstills, *each) for each in times] == [False, True, True, True, False]


def test_a_discard_while_a_core_stood_still_is_left_out() -> None:
    discards, sounds = [("a", 1.0), ("a", 5.0)], [("a", 0.5, 1.11), ("a", 4.0, 5.01)]
    assert discard_delays_ms(discards, sounds, [(1.01, 1.1)]) == pytest.approx([10])
