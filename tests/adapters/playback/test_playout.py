"""``Playout``: schedule, speech and underruns, with times given by the tests."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.audio.playout_speech import (
    PTIME_S,
    SILENCE,
    START,
    chunk,
    constant_level,
    packets_of,
    playout_24_khz,
    samples,
    slot_time,
    speech,
    word,
)
from vivavoce.adapters.audio.resample import Downsampler, WidebandDownsampler
from vivavoce.adapters.playback.playout import Playout, PlayoutStats

# The schedule


def test_counters_of_two_playouts_add_up() -> None:
    assert PlayoutStats(*range(6)) + PlayoutStats(*range(10, 70, 10)) == PlayoutStats(10, 21, 32, 43, 54, 65)


def test_nothing_is_due_before_the_start() -> None:
    playout = playout_24_khz()
    assert playout.next_due() == START
    assert playout.due(START - 1e-9) == []
    assert playout.stats == PlayoutStats()


def test_packets_are_due_one_ptime_apart() -> None:
    playout = playout_24_khz()
    assert len(playout.due(START)) == 1
    assert playout.next_due() == START + PTIME_S
    assert playout.due(START + PTIME_S - 1e-9) == []
    assert len(playout.due(START + PTIME_S)) == 1


def test_the_schedule_does_not_drift() -> None:
    playout = playout_24_khz()
    for slot in range(20_000):
        playout.due(slot_time(slot) + 0.004)
    assert playout.next_due() == START + 20_000 * PTIME_S
    assert playout.stats == PlayoutStats(packets=20_000)


@pytest.mark.parametrize(
    ("sample_rate", "ptime_ms", "size"),
    [(8_000, 20, 320), (8_000, 1, 16), (8_000, 30, 480), (24_000, 10, 480)],
)
def test_a_packet_contains_one_ptime_of_16_bit_samples(sample_rate: int, ptime_ms: int, size: int) -> None:
    playout = Playout(start=START, sample_rate=sample_rate, ptime_ms=ptime_ms)
    assert playout.due(START) == [bytes(size)]
    assert playout.next_due() == START + ptime_ms / 1_000


@pytest.mark.parametrize(("sample_rate", "ptime_ms"), [(8_000, 0), (8_000, -20), (44_100, 5)])
def test_a_ptime_that_is_not_a_whole_number_of_samples_is_refused(sample_rate: int, ptime_ms: int) -> None:
    with pytest.raises(
        ValueError, match=f"got packets of {ptime_ms} ms; at {sample_rate} Hz they must be whole"
    ):
        Playout(start=START, sample_rate=sample_rate, ptime_ms=ptime_ms)


def test_speech_is_resampled_to_the_rate_of_the_packets() -> None:
    playout = Playout(start=START, sample_rate=16_000)
    playout.push(chunk(speech(100)))
    assert playout.due(START) == [WidebandDownsampler().push(speech(100))[: 2 * 320]]


def test_at_most_two_packets_are_sent_at_once() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(100)))
    assert playout.due(slot_time(1)) == [speech(20), speech(20, first=481)]
    assert playout.next_due() == START + 2 * PTIME_S
    assert playout.stats.skipped_packets == 0


@pytest.mark.parametrize("behind", [2, 3, 4, 9])
def test_a_longer_stall_skips_slots_and_drops_no_speech(behind: int) -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(100)))
    assert playout.due(slot_time(behind)) == [speech(20), speech(20, first=481)]
    assert playout.stats.skipped_packets == behind - 1
    assert playout.next_due() == START + (behind + 1) * PTIME_S  # still on the schedule
    assert playout.due(slot_time(behind)) == []
    assert playout.due(slot_time(behind + 1)) == [speech(20, first=961)]
    assert playout.stats.packets == 3


@pytest.mark.parametrize("stall_s", [0.21, 0.5, 2.0, 2.013, 1_200.0])
def test_after_a_long_stall_no_more_packets_are_sent_than_the_schedule_has(stall_s: float) -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(1_000)))
    continued = START + stall_s
    packets = [packet for ms in range(200) for packet in playout.due(continued + ms / 1_000)]
    assert 9 <= len(packets) <= 10  # 9 if the stall ends on the schedule
    assert b"".join(packets) == speech(20 * len(packets))  # no speech is dropped
    assert playout.stats.late_packets == 0
    assert playout.stats.packets + playout.stats.skipped_packets == round(
        (playout.next_due() - START) / PTIME_S
    )


def test_a_packet_is_late_after_20_ms() -> None:
    playout = playout_24_khz()
    playout.due(START + 0.0199)
    assert playout.stats.late_packets == 0
    playout.due(START + PTIME_S + 0.0201)
    assert playout.stats == PlayoutStats(packets=3, late_packets=1)


def test_a_packet_due_exactly_now_is_sent() -> None:
    playout = playout_24_khz()
    assert len(playout.due(START + PTIME_S)) == 2
    assert len(playout.due(START + 4 * PTIME_S)) == 2
    assert playout.next_due() == START + 5 * PTIME_S
    assert playout.stats.skipped_packets == 1


def test_both_packets_after_a_stall_are_late() -> None:
    playout = playout_24_khz()
    playout.due(slot_time(5))
    assert playout.stats == PlayoutStats(packets=2, late_packets=2, skipped_packets=4)


# Speech


def test_speech_is_sent_in_order_and_followed_by_silence() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(25)))
    playout.push(chunk(speech(25, first=601)))
    playout.finish()
    assert b"".join(packets_of(playout, range(4))) == speech(50) + bytes(30 * 48)
    assert playout.stats == PlayoutStats(packets=4, speech_packets=3)


def test_speech_pushed_between_packets_starts_with_the_next_packet() -> None:
    playout = playout_24_khz()
    assert packets_of(playout, range(2)) == [SILENCE, SILENCE]
    playout.push(chunk(speech(20)))
    assert packets_of(playout, range(2, 4)) == [speech(20), SILENCE]


def test_speech_is_resampled_to_8_khz_when_pushed() -> None:
    playout = Playout(start=START)
    source = constant_level(50)
    playout.push(chunk(source))
    playout.finish()
    whole = Downsampler()
    expected = whole.push(source) + whole.drain()
    assert b"".join(packets_of(playout, range(3))) == expected + bytes(10 * 16)


def test_finish_drains_the_resampler_before_the_next_utterance() -> None:
    playout = Playout(start=START)
    for _ in range(2):
        playout.push(chunk(constant_level(60)))
        playout.finish()
    heard = b"".join(packets_of(playout, range(6)))
    assert heard[:960] == heard[960:]


def test_the_lead_includes_queued_speech_and_the_packet_being_played() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(70)))
    assert playout.lead_s(START - 1) == pytest.approx(0.070)
    packets_of(playout, range(1))
    assert playout.lead_s(START) == pytest.approx(0.070)
    assert playout.lead_s(START + 0.005) == pytest.approx(0.065)
    assert playout.lead_s(START + 0.020) == pytest.approx(0.050)
    packets_of(playout, range(1, 4))
    assert playout.lead_s(START + 0.060) == pytest.approx(0.010)
    assert playout.lead_s(START + 0.070) == pytest.approx(0)
    assert playout.lead_s(START + 9) == 0


def test_the_listener_runs_dry_when_the_last_speech_has_been_played() -> None:
    playout = playout_24_khz()
    assert playout.runs_dry_at(START - 3) == START - 3
    playout.push(chunk(speech(70)))
    assert playout.runs_dry_at(START - 3) == pytest.approx(START + 0.070)
    assert playout.runs_dry_at(START + 1) == pytest.approx(START + 1.070)  # nothing is sent yet
    packets_of(playout, range(2))
    assert playout.runs_dry_at(START + 0.021) == pytest.approx(START + 0.070)
    packets_of(playout, range(2, 4))
    assert playout.runs_dry_at(START + 0.061) == pytest.approx(START + 0.070)
    assert playout.runs_dry_at(START + 2) == START + 2


def test_more_than_two_minutes_of_queued_speech_are_refused() -> None:
    playout = playout_24_khz()
    minute = chunk(bytes(48_000 * 60))
    playout.push(minute)
    playout.push(minute)
    with pytest.raises(ValueError, match="got more than 120 s of speech ahead"):
        playout.push(chunk(b"ab"))
    assert playout.lead_s(START) == 120


def test_sent_speech_is_released() -> None:
    playout = playout_24_khz()
    for slot in range(1_000):
        playout.push(chunk(constant_level(20)))
        packets_of(playout, range(slot, slot + 1))
    assert len(playout._ready) <= 48_000 + 960  # a second is kept, for a hold


def test_heard_utterances_are_released() -> None:
    playout = playout_24_khz()
    for slot in range(100):
        playout.push(chunk(constant_level(20), word("again", 0, 0.01, 0)))
        playout.finish()
        packets_of(playout, range(slot, slot + 1))
    assert len(playout._words._queue) <= 2


# Underruns


def test_more_than_60_ms_of_silence_inside_an_utterance_is_one_underrun() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(20)))
    packets_of(playout, range(4))  # 20 ms of speech, 60 of silence
    assert playout.stats.underruns == 0
    packets_of(playout, range(4, 5))
    assert playout.stats.underruns == 1
    packets_of(playout, range(5, 50))
    assert playout.stats.underruns == 1


def test_a_pause_of_the_writer_is_no_underrun() -> None:
    playout = playout_24_khz()
    playout.push(replace(chunk(speech(20)), awaits_text=True))
    packets_of(playout, range(20))
    assert playout.stats.underruns == 0
    playout.push(chunk(speech(20)))  # there is text for more
    packets_of(playout, range(20, 30))
    assert playout.stats.underruns == 1


def test_each_gap_is_counted() -> None:
    playout = playout_24_khz()
    for begin in (0, 10, 20):
        playout.push(chunk(speech(20)))
        packets_of(playout, range(begin, begin + 10))
    assert playout.stats.underruns == 3


def test_short_gaps_do_not_add_up() -> None:
    playout = playout_24_khz()
    for begin in range(0, 40, 4):
        playout.push(chunk(speech(20)))
        packets_of(playout, range(begin, begin + 4))
    assert playout.stats.underruns == 0


def test_the_padding_of_a_packet_counts_as_silence() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(19)))
    packets_of(playout, range(4))  # 1 + 60 ms of silence
    assert playout.stats.underruns == 1


def test_speech_in_a_packet_ends_the_gap_before_it() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(20)))
    packets_of(playout, range(3))  # 40 ms of silence
    playout.push(chunk(speech(1)))
    packets_of(playout, range(3, 6))  # 19 + 40 ms of it
    assert playout.stats.underruns == 0


def test_silence_before_the_first_speech_is_not_an_underrun() -> None:
    playout = playout_24_khz()
    packets_of(playout, range(20))
    playout.push(chunk(speech(20)))
    packets_of(playout, range(20, 24))
    assert playout.stats.underruns == 0


def test_silence_after_the_end_is_not_an_underrun() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(20)))
    playout.finish()
    packets_of(playout, range(20))
    assert playout.stats.underruns == 0


def test_a_new_utterance_resets_the_count_of_silence() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(20)))
    packets_of(playout, range(4))  # 60 ms of silence
    playout.finish()
    playout.push(chunk(b""))
    packets_of(playout, range(4, 7))  # and 60 of the next
    assert playout.stats.underruns == 0
    packets_of(playout, range(7, 8))
    assert playout.stats.underruns == 1


def test_silence_after_a_discard_is_not_an_underrun() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(20)))
    packets_of(playout, range(3))
    playout.discard(slot_time(2))
    packets_of(playout, range(3, 20))
    assert playout.stats.underruns == 0


@pytest.mark.parametrize(("behind", "underruns"), [(4, 0), (5, 1)])
def test_skipped_slots_inside_speech_count_as_silence(behind: int, underruns: int) -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(200)))
    playout.finish()
    playout.due(slot_time(behind))  # two packets are sent, all other slots but one are skipped
    assert playout.stats.skipped_packets == behind - 1
    assert playout.stats.underruns == underruns


def test_skipped_slots_in_silence_are_not_an_underrun() -> None:
    playout = playout_24_khz()
    playout.due(slot_time(100))
    assert playout.stats.underruns == 0


# Random sequences of operations


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 3_000)),
        st.tuples(st.just("wait"), st.integers(0, 150)),
        st.tuples(st.just("finish"), st.just(0)),
        st.tuples(st.just("discard"), st.just(0)),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS)
def test_any_sequence_of_operations_keeps_the_schedule_and_sends_or_drops_all_speech(
    steps: list[tuple[str, int]],
) -> None:
    playout = playout_24_khz()
    now, pushed, cut_ms, sent = START, 0, 0.0, bytearray()
    for step, amount in steps:
        match step:
            case "push":
                playout.push(chunk(np.full(amount, 7, "<i2").tobytes()))
                pushed += amount
            case "wait":
                now += amount / 1_000
                packets = playout.due(now)
                assert len(packets) <= 2
                assert all(len(packet) == 960 for packet in packets)
                sent += b"".join(packets)
            case "finish":
                playout.finish()
            case "discard":
                cut_ms += playout.discard(now).cut_ms
                assert playout.lead_s(now) <= PTIME_S + 1e-9
    stats = playout.stats
    assert playout.next_due() == START + (stats.packets + stats.skipped_packets) * PTIME_S
    assert playout.next_due() > now - 1e-9
    waiting = playout.lead_s(now + 60) * 24_000
    audible = int(np.count_nonzero(samples(bytes(sent)) == 7))
    edges = stats.discards * 120  # of which a few samples keep their level
    assert audible <= pushed - cut_ms * 24 - waiting + edges + 1e-6
    assert audible >= pushed - cut_ms * 24 - waiting - 1e-6


@settings(deadline=None)
@given(STEPS)
def test_any_sequence_of_operations_sends_speech_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    playout = playout_24_khz()
    now, pushed, sent = START, 0, bytearray()
    for step, amount in steps:
        match step:
            case "push":
                playout.push(chunk((np.arange(pushed, pushed + amount) % 30_000 + 1).astype("<i2").tobytes()))
                pushed += amount
            case "wait":
                now += amount / 1_000
                sent += b"".join(playout.due(now))
            case _:
                playout.finish()
    heard = samples(bytes(sent))
    heard = heard[heard != 0]
    assert heard.tolist() == (np.arange(len(heard)) % 30_000 + 1).tolist()
