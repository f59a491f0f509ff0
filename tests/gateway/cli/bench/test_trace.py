"""The call bench's analysis of packet traces, from traces made by the tests."""

from uuid import UUID

import numpy as np
import pytest

from vivavoce.gateway.cli.bench.trace import (
    OnsetDelay,
    PacketTrace,
    UtteranceTimes,
    correlation,
    count_arrival_gaps,
    measure_barge_in,
    measure_lateness,
    measure_onset,
    percentile,
    samples_after,
)
from vivavoce.gateway.cli.phones.received_audio import ReceivedCall, ReceivedPacket

CALL = UUID(int=1)


def trace(arrivals_ms: list[float], loud: dict[int, tuple[int, int]]) -> PacketTrace:
    """A call of 8 kHz packets; ``loud`` maps a packet to the samples of it that are audible."""
    pcm = np.zeros((len(arrivals_ms), 160), np.int16)
    for index, (start, stop) in loud.items():
        pcm[index, start:stop] = 3000
    return PacketTrace.from_arrays(CALL, 8000, np.array(arrivals_ms) / 1000, pcm)


def utterance(punctuated_ms: float, clause_ms: float) -> UtteranceTimes:
    return UtteranceTimes(CALL, 0, "Well, then.", 0.0, punctuated_ms / 1000, clause_ms / 1000)


EVERY_20_MS = [20.0 * index for index in range(50)]


def test_first_and_last_audible_samples_are_timed_inside_their_packet() -> None:
    heard = trace([0, 20, 40], {1: (80, 120)})
    assert heard.audible.tolist() == [False, True, False]
    assert heard.first_audible_at[1] == pytest.approx(0.030)
    assert heard.last_audible_at[1] == pytest.approx(0.035)


def test_a_trace_is_built_from_a_received_call() -> None:
    loud = np.full(160, 900, "<i2").tobytes()
    heard = ReceivedCall(
        CALL, 0.0, (ReceivedPacket(0.1, 8000, bytes(320)), ReceivedPacket(0.12, 8000, loud)), 1.0, ""
    )
    assert PacketTrace.from_received_call(heard).first_audible_at[1] == pytest.approx(0.12)
    assert PacketTrace.from_received_call(heard).pcm.shape == (2, 160)


def test_a_call_of_mixed_packets_is_refused() -> None:
    heard = ReceivedCall(
        CALL, 0.0, (ReceivedPacket(0.1, 8000, bytes(320)), ReceivedPacket(0.12, 24000, bytes(960))), 1.0, ""
    )
    with pytest.raises(ValueError, match=r"\(8000, 320\), \(24000, 960\)"):
        PacketTrace.from_received_call(heard)


def test_ttfa_runs_from_the_push_to_the_first_audible_sample() -> None:
    heard = trace(EVERY_20_MS, {20: (40, 160), 21: (0, 160)})  # the first at 405 ms
    onset = measure_onset(heard, utterance(340, 360), before=10.0)
    assert onset.from_clause_s == pytest.approx(0.045)
    assert onset.from_punctuation_s == pytest.approx(0.065)


def test_speech_of_the_previous_utterance_is_not_an_onset() -> None:
    heard = trace(EVERY_20_MS, {15: (0, 160), 20: (0, 160)})  # still heard at 300 ms, 40 ms before the push
    assert measure_onset(heard, utterance(340, 360), before=10.0) == OnsetDelay(None, None)


def test_speech_that_ended_long_before_does_not_prevent_an_onset() -> None:
    heard = trace(EVERY_20_MS, {2: (0, 160), 20: (0, 160)})
    assert measure_onset(heard, utterance(340, 360), before=10.0).from_clause_s == pytest.approx(0.040)


def test_an_onset_after_the_next_utterance_started_belongs_to_that_one() -> None:
    heard = trace(EVERY_20_MS, {20: (0, 160)})
    assert measure_onset(heard, utterance(340, 360), before=0.390) == OnsetDelay(None, None)


def test_an_utterance_whose_clause_was_never_complete_has_no_onset() -> None:
    heard = trace(EVERY_20_MS, {20: (0, 160)})
    assert measure_onset(heard, UtteranceTimes(CALL, 0, "", 0.0), before=10.0) == OnsetDelay(None, None)


def test_packets_in_time_are_not_late() -> None:
    result = measure_lateness(np.array(EVERY_20_MS) / 1000 + 5.0)
    assert (result.packets, result.late, result.skipped) == (50, 0, 0)
    assert result.late_share == 0.0


def test_jitter_of_a_few_milliseconds_is_not_late() -> None:
    jitter = np.random.default_rng(1).uniform(0, 8, 50)
    result = measure_lateness((np.array(EVERY_20_MS) + jitter) / 1000)
    assert (result.late, result.skipped) == (0, 0)
    assert 0.001 < result.max_s < 0.008


def test_packets_that_come_together_after_a_stall_are_late_by_their_slots() -> None:
    arrivals = [0, 20, 40, 105, 106, 107, 120, 140]  # 60, 80 and 100 came late by 45, 26 and 7
    result = measure_lateness(np.array(arrivals) / 1000)
    assert (result.late, result.skipped) == (2, 0)
    assert result.max_s == pytest.approx(0.045)
    assert result.late_share == pytest.approx(2 / 8)


def test_slots_without_a_packet_are_counted() -> None:
    result = measure_lateness(np.array([0, 20, 40, 120, 140, 160]) / 1000)  # 60, 80 and 100 never came
    assert (result.late, result.skipped) == (0, 3)
    assert result.late_share == pytest.approx(3 / 9)


def test_a_late_first_packet_is_not_late() -> None:
    assert measure_lateness(np.array([9.0, 9.02, 9.04])).late_share == 0.0


def test_no_packets_are_not_late() -> None:
    assert measure_lateness(np.array([])).late_share == 0.0


def test_a_gap_is_over_60_ms_after_the_end_of_a_packet() -> None:
    assert count_arrival_gaps(np.array([0, 20, 99, 119]) / 1000) == 0
    assert count_arrival_gaps(np.array([0, 20, 101, 121]) / 1000) == 1


def test_barge_in_is_timed_to_the_arrival_of_the_last_audible_packet() -> None:
    heard = trace(EVERY_20_MS, {index: (0, 160) for index in range(10, 16)})  # the last arrives at 300 ms
    result = measure_barge_in(heard, 0.283, before=1.0)
    assert result.last_audible_s == pytest.approx(0.017)
    assert result.stale_packets == 0


def test_an_audible_packet_25_ms_after_a_barge_in_is_stale() -> None:
    heard = trace(EVERY_20_MS, {14: (0, 160), 15: (0, 160), 22: (0, 10)})
    result = measure_barge_in(heard, 0.283, before=1.0)
    assert result.last_audible_s == pytest.approx(0.157)
    assert result.stale_packets == 1


def test_the_next_utterance_is_not_stale() -> None:
    heard = trace(EVERY_20_MS, {14: (0, 160), 40: (0, 160)})
    assert measure_barge_in(heard, 0.290, before=0.700).stale_packets == 0


def test_a_barge_in_during_silence_takes_no_time() -> None:
    assert measure_barge_in(trace(EVERY_20_MS, {}), 0.283, before=1.0).last_audible_s == 0.0


def test_speech_after_a_moment_starts_at_its_first_audible_sample() -> None:
    heard = trace(EVERY_20_MS, {5: (0, 160), 20: (100, 160), 21: (0, 160)})
    samples = samples_after(heard, 0.300, seconds=0.020)
    assert len(samples) == 160
    assert samples[0] == 3000


def test_equal_readings_correlate_and_mixed_ones_do_not() -> None:
    random = np.random.default_rng(2)
    clean = random.normal(0, 3000, 4000).astype(np.int16)
    mixed = (clean + random.normal(0, 3000, 4000)).astype(np.int16)
    assert correlation(clean, clean) == pytest.approx(1.0)
    assert correlation(mixed, clean) < 0.8
    assert correlation(clean[:0], clean) == 0.0


def test_a_gap_does_not_lower_the_correlation() -> None:
    clean = np.random.default_rng(2).normal(0, 3000, 4000).astype(np.int16)
    late = np.concatenate([clean[:1000], np.zeros(640, np.int16), clean[1000:]])
    assert correlation(late, clean) == pytest.approx(1.0)


def test_the_percentile_of_no_values_reaches_no_target() -> None:
    assert percentile([], 50) == float("inf")
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0


def test_between_cuts_by_arrival() -> None:
    heard = trace(EVERY_20_MS, {3: (0, 160)})
    assert heard.between(0.050, 0.070).arrived.tolist() == [0.06]
    assert heard.between(0.050, 0.070).audible.tolist() == [True]
