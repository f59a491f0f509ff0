"""``Playout``: schedule, underruns, heard words and barge-in, on times given by the tests."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.adapters.audio.resample import Downsampler, PassthroughResampler
from vivavoce.adapters.playback.heard_words import MAX_UNREPORTED_WORDS, HeardWord
from vivavoce.adapters.playback.playout import Playout, PlayoutStats
from vivavoce.tts_engine.chunk import AudioChunk, Provenance, Word

START = 1_000.0
PTIME = 0.020
SILENCE = bytes(960)  # 20 ms at 24 kHz


def chunk(pcm: bytes, *words: Word, text_stop: int = 0) -> AudioChunk:
    return AudioChunk(
        pcm=pcm,
        index=0,
        samples=(0, len(pcm) // 2),
        text=(0, text_stop),
        words=words,
        provenance=Provenance(speech_ids=None, mel_frames=None, wall_s=0.0, device_s=0.0),
        final=False,
    )


def word(text: str, start_s: float, stop_s: float, text_start: int) -> Word:
    return Word(text, start_s, stop_s, text_start, text_start + len(text))


def speech(milliseconds: float, first: int = 1) -> bytes:
    """24 kHz s16le whose samples are consecutive numbers, so that output can be traced to its input."""
    return np.arange(first, first + round(24 * milliseconds)).astype("<i2").tobytes()


def loud(milliseconds: float) -> bytes:
    return np.full(round(24 * milliseconds), 10_000, "<i2").tobytes()


def samples(data: bytes) -> npt.NDArray[np.int16]:
    return np.frombuffer(data, "<i2")


def at(slot: float) -> float:
    """A time just after the packet of a slot is due."""
    return START + slot * PTIME + 1e-6


def wide_band(start: float = START) -> Playout:
    """A playout at 24 kHz, which sends its input unchanged."""
    return Playout(start=start, sample_rate=24_000)


def played(playout: Playout, slots: range) -> list[bytes]:
    """The packets of the slots, each requested on time."""
    packets = []
    for slot in slots:
        (packet,) = playout.due(at(slot))
        packets.append(packet)
    return packets


# The schedule


def test_nothing_is_due_before_the_start() -> None:
    playout = wide_band()
    assert playout.next_due() == START
    assert playout.due(START - 1e-9) == []
    assert playout.stats == PlayoutStats()


def test_packets_are_due_one_ptime_apart() -> None:
    playout = wide_band()
    assert len(playout.due(START)) == 1
    assert playout.next_due() == START + PTIME
    assert playout.due(START + PTIME - 1e-9) == []
    assert len(playout.due(START + PTIME)) == 1


def test_the_schedule_does_not_drift() -> None:
    playout = wide_band()
    for slot in range(20_000):
        playout.due(at(slot) + 0.004)
    assert playout.next_due() == START + 20_000 * PTIME
    assert playout.stats == PlayoutStats(packets=20_000)


@pytest.mark.parametrize(
    ("sample_rate", "ptime_ms", "size"),
    [(8_000, 20, 320), (8_000, 1, 16), (8_000, 30, 480), (24_000, 10, 480)],
)
def test_a_packet_holds_one_ptime_of_16_bit_samples(sample_rate: int, ptime_ms: int, size: int) -> None:
    playout = Playout(start=START, sample_rate=sample_rate, ptime_ms=ptime_ms)
    assert playout.due(START) == [bytes(size)]
    assert playout.next_due() == START + ptime_ms / 1_000


@pytest.mark.parametrize(("sample_rate", "ptime_ms"), [(8_000, 0), (8_000, -20), (44_100, 5)])
def test_a_ptime_that_is_not_a_whole_number_of_samples_is_refused(sample_rate: int, ptime_ms: int) -> None:
    with pytest.raises(
        ValueError, match=f"got packets of {ptime_ms} ms; at {sample_rate} Hz they must be whole"
    ):
        Playout(start=START, sample_rate=sample_rate, ptime_ms=ptime_ms, resampler=PassthroughResampler())


def test_a_rate_without_a_built_in_resampler_is_refused() -> None:
    with pytest.raises(ValueError, match="got 16000 Hz"):
        Playout(start=START, sample_rate=16_000)
    Playout(start=START, sample_rate=16_000, resampler=PassthroughResampler())


def test_at_most_two_packets_are_sent_at_once() -> None:
    playout = wide_band()
    playout.push(chunk(speech(100)))
    assert playout.due(at(1)) == [speech(20), speech(20, first=481)]
    assert playout.next_due() == START + 2 * PTIME
    assert playout.stats.skipped_packets == 0


@pytest.mark.parametrize("behind", [2, 3, 4, 60_000])
def test_a_longer_stall_skips_slots_and_drops_no_speech(behind: int) -> None:
    playout = wide_band()
    playout.push(chunk(speech(100)))
    assert playout.due(at(behind)) == [speech(20), speech(20, first=481)]
    assert playout.stats.skipped_packets == behind - 1
    assert playout.next_due() == START + (behind + 1) * PTIME  # still on the schedule
    assert playout.due(at(behind)) == []
    assert playout.due(at(behind + 1)) == [speech(20, first=961)]
    assert playout.stats.packets == 3


def test_a_packet_is_late_after_20_ms() -> None:
    playout = wide_band()
    playout.due(START + 0.0199)
    assert playout.stats.late_packets == 0
    playout.due(START + PTIME + 0.0201)
    assert playout.stats == PlayoutStats(packets=3, late_packets=1)


def test_a_packet_due_exactly_now_is_sent() -> None:
    playout = wide_band()
    assert len(playout.due(START + PTIME)) == 2
    assert len(playout.due(START + 4 * PTIME)) == 2
    assert playout.next_due() == START + 5 * PTIME
    assert playout.stats.skipped_packets == 1


def test_both_packets_after_a_stall_are_late() -> None:
    playout = wide_band()
    playout.due(at(5))
    assert playout.stats == PlayoutStats(packets=2, late_packets=2, skipped_packets=4)


# Speech


def test_speech_is_sent_in_order_and_followed_by_silence() -> None:
    playout = wide_band()
    playout.push(chunk(speech(25)))
    playout.push(chunk(speech(25, first=601)))
    playout.finish()
    assert b"".join(played(playout, range(4))) == speech(50) + bytes(30 * 48)
    assert playout.stats == PlayoutStats(packets=4, speech_packets=3)


def test_speech_pushed_between_packets_starts_with_the_next_packet() -> None:
    playout = wide_band()
    assert played(playout, range(2)) == [SILENCE, SILENCE]
    playout.push(chunk(speech(20)))
    assert played(playout, range(2, 4)) == [speech(20), SILENCE]


def test_speech_is_resampled_to_8_khz_when_pushed() -> None:
    playout = Playout(start=START)
    source = loud(50)
    playout.push(chunk(source))
    playout.finish()
    whole = Downsampler()
    expected = whole.push(source) + whole.drain()
    assert b"".join(played(playout, range(3))) == expected + bytes(10 * 16)


def test_finish_drains_the_resampler_before_the_next_utterance() -> None:
    playout = Playout(start=START)
    for _ in range(2):
        playout.push(chunk(loud(60)))
        playout.finish()
    heard = b"".join(played(playout, range(6)))
    assert heard[:960] == heard[960:]


def test_the_lead_includes_queued_speech_and_the_packet_being_played() -> None:
    playout = wide_band()
    playout.push(chunk(speech(70)))
    assert playout.lead_s(START - 1) == pytest.approx(0.070)
    played(playout, range(1))
    assert playout.lead_s(START) == pytest.approx(0.070)
    assert playout.lead_s(START + 0.005) == pytest.approx(0.065)
    assert playout.lead_s(START + 0.020) == pytest.approx(0.050)
    played(playout, range(1, 4))
    assert playout.lead_s(START + 0.060) == pytest.approx(0.010)
    assert playout.lead_s(START + 0.070) == pytest.approx(0)
    assert playout.lead_s(START + 9) == 0


def test_the_listener_runs_dry_when_the_last_speech_has_been_played() -> None:
    playout = wide_band()
    assert playout.runs_dry_at(START - 3) == START - 3
    playout.push(chunk(speech(70)))
    assert playout.runs_dry_at(START - 3) == pytest.approx(START + 0.070)
    assert playout.runs_dry_at(START + 1) == pytest.approx(START + 1.070)  # nothing is sent yet
    played(playout, range(2))
    assert playout.runs_dry_at(START + 0.021) == pytest.approx(START + 0.070)
    played(playout, range(2, 4))
    assert playout.runs_dry_at(START + 0.061) == pytest.approx(START + 0.070)
    assert playout.runs_dry_at(START + 2) == START + 2


def test_more_than_two_minutes_of_queued_speech_are_refused() -> None:
    playout = wide_band()
    minute = chunk(bytes(48_000 * 60))
    playout.push(minute)
    playout.push(minute)
    with pytest.raises(ValueError, match="got more than 120 s of speech ahead"):
        playout.push(chunk(b"ab"))
    assert playout.lead_s(START) == 120


def test_sent_speech_is_released() -> None:
    playout = wide_band()
    for slot in range(1_000):
        playout.push(chunk(loud(20)))
        played(playout, range(slot, slot + 1))
    assert len(playout._ready) <= 960


def test_heard_utterances_are_released() -> None:
    playout = wide_band()
    for slot in range(100):
        playout.push(chunk(loud(20), word("again", 0, 0.01, 0)))
        playout.finish()
        played(playout, range(slot, slot + 1))
    assert len(playout._words._queue) <= 2


# Underruns


def test_more_than_60_ms_of_silence_inside_an_utterance_is_one_underrun() -> None:
    playout = wide_band()
    playout.push(chunk(speech(20)))
    played(playout, range(4))  # 20 ms of speech, 60 of silence
    assert playout.stats.underruns == 0
    played(playout, range(4, 5))
    assert playout.stats.underruns == 1
    played(playout, range(5, 50))
    assert playout.stats.underruns == 1


def test_each_gap_is_counted() -> None:
    playout = wide_band()
    for begin in (0, 10, 20):
        playout.push(chunk(speech(20)))
        played(playout, range(begin, begin + 10))
    assert playout.stats.underruns == 3


def test_short_gaps_do_not_add_up() -> None:
    playout = wide_band()
    for begin in range(0, 40, 4):
        playout.push(chunk(speech(20)))
        played(playout, range(begin, begin + 4))
    assert playout.stats.underruns == 0


def test_the_padding_of_a_packet_counts_as_silence() -> None:
    playout = wide_band()
    playout.push(chunk(speech(19)))
    played(playout, range(4))  # 1 + 60 ms of silence
    assert playout.stats.underruns == 1


def test_speech_in_a_packet_ends_the_gap_before_it() -> None:
    playout = wide_band()
    playout.push(chunk(speech(20)))
    played(playout, range(3))  # 40 ms of silence
    playout.push(chunk(speech(1)))
    played(playout, range(3, 6))  # 19 + 40 ms of it
    assert playout.stats.underruns == 0


def test_silence_before_the_first_speech_is_no_underrun() -> None:
    playout = wide_band()
    played(playout, range(20))
    playout.push(chunk(speech(20)))
    played(playout, range(20, 24))
    assert playout.stats.underruns == 0


def test_silence_after_the_end_is_no_underrun() -> None:
    playout = wide_band()
    playout.push(chunk(speech(20)))
    playout.finish()
    played(playout, range(20))
    assert playout.stats.underruns == 0


def test_a_new_utterance_resets_the_count_of_silence() -> None:
    playout = wide_band()
    playout.push(chunk(speech(20)))
    played(playout, range(4))  # 60 ms of silence
    playout.finish()
    playout.push(chunk(b""))
    played(playout, range(4, 7))  # and 60 of the next
    assert playout.stats.underruns == 0
    played(playout, range(7, 8))
    assert playout.stats.underruns == 1


def test_silence_after_a_discard_is_no_underrun() -> None:
    playout = wide_band()
    playout.push(chunk(speech(20)))
    played(playout, range(3))
    playout.discard(at(2))
    played(playout, range(3, 20))
    assert playout.stats.underruns == 0


@pytest.mark.parametrize(("behind", "underruns"), [(4, 0), (5, 1)])
def test_skipped_slots_inside_speech_count_as_silence(behind: int, underruns: int) -> None:
    playout = wide_band()
    playout.push(chunk(speech(200)))
    playout.finish()
    playout.due(at(behind))  # two packets are sent, all other slots but one are skipped
    assert playout.stats.skipped_packets == behind - 1
    assert playout.stats.underruns == underruns


def test_skipped_slots_in_silence_are_no_underrun() -> None:
    playout = wide_band()
    playout.due(at(100))
    assert playout.stats.underruns == 0


# Words


def test_a_word_is_heard_when_its_middle_has_been_sent() -> None:
    playout = wide_band()
    early, late = word("Hello", 0.010, 0.030, 0), word("there", 0.030, 0.0505, 6)
    playout.push(chunk(speech(100), early, late))
    assert playout.take_heard_words() == ()
    played(playout, range(1))  # to 20 ms: exactly the middle of the first word
    assert playout.take_heard_words() == (HeardWord(0, early),)
    played(playout, range(1, 2))  # to 40 ms; the second's middle is at 40.25
    assert playout.take_heard_words() == ()
    played(playout, range(2, 3))
    assert playout.take_heard_words() == (HeardWord(0, late),)
    assert playout.take_heard_words() == ()


def test_words_keep_their_position_at_8_khz() -> None:
    playout = Playout(start=START)
    first, second = word("a", 0.0, 0.0398, 0), word("b", 0.020, 0.0204, 2)
    playout.push(chunk(loud(100), first, second))
    played(playout, range(1))
    assert [heard.word for heard in playout.take_heard_words()] == [first]
    played(playout, range(1, 2))
    assert [heard.word for heard in playout.take_heard_words()] == [second]


def test_word_times_of_the_next_utterance_count_from_its_beginning() -> None:
    playout = wide_band()
    one, two = word("one", 0.0, 0.050, 0), word("two", 0.0, 0.050, 0)
    playout.push(chunk(speech(50), one))
    playout.finish()
    playout.push(chunk(speech(50), two))
    played(playout, range(3))
    assert playout.take_heard_words() == (HeardWord(0, one),)
    played(playout, range(3, 4))  # to 80 ms, which is 30 of the second
    assert playout.take_heard_words() == (HeardWord(1, two),)


def test_a_word_behind_the_end_of_the_audio_is_heard_at_the_end() -> None:
    playout = wide_band()
    stray, other = word("stray", 0.5, 0.7, 0), word("next", 0.0, 0.060, 0)
    playout.push(chunk(speech(30), stray))
    playout.finish()
    playout.push(chunk(speech(60), other))
    played(playout, range(1))
    assert playout.take_heard_words() == ()
    played(playout, range(1, 2))
    assert playout.take_heard_words() == (HeardWord(0, stray),)
    played(playout, range(2, 3))
    assert playout.take_heard_words() == (HeardWord(1, other),)


def test_a_word_reported_after_its_audio_was_sent_is_heard_at_the_end() -> None:
    playout = wide_band()
    stray = word("stray", 0.0, 0.7, 0)
    playout.push(chunk(speech(20), stray))
    played(playout, range(5))
    assert playout.take_heard_words() == ()
    playout.finish()
    assert playout.take_heard_words() == (HeardWord(0, stray),)


def test_only_the_newest_unreported_words_are_kept() -> None:
    playout = wide_band()
    words = [word(str(number), 0, 0, number) for number in range(MAX_UNREPORTED_WORDS + 1)]
    playout.push(chunk(speech(20), *words))
    played(playout, range(1))
    assert [heard.word for heard in playout.take_heard_words()] == words[1:]


# Barge-in


def test_a_barge_in_returns_the_dropped_length_and_the_heard_words() -> None:
    playout = wide_band()
    heard, half, unheard = word("Your", 0, 0.030, 0), word("PIN", 0.030, 0.090, 5), word("is", 0.1, 0.2, 9)
    playout.push(chunk(speech(300), heard, half, unheard, text_stop=12))
    played(playout, range(3))
    assert playout.take_heard_words() == (HeardWord(0, heard), HeardWord(0, half))
    discarded = playout.discard(at(2))
    assert discarded.utterance == 0
    assert discarded.cut_ms == pytest.approx(240)
    assert discarded.words == (heard, half)  # also the words taken before
    assert discarded.text_stop == len("Your PIN")
    assert playout.lead_s(at(3)) == pytest.approx(0)
    assert playout.stats.discards == 1


def test_after_a_barge_in_only_the_fade_of_the_old_speech_is_sent() -> None:
    playout = wide_band()
    playout.push(chunk(loud(300)))
    played(playout, range(3))
    playout.discard(at(2))
    edge, *others = played(playout, range(3, 20))
    assert others == [SILENCE] * 16
    heard = samples(edge)
    assert np.count_nonzero(heard) <= 120  # 5 ms
    assert heard[0] == 10_000
    assert (np.diff(heard) <= 0).all()
    assert np.abs(np.diff(heard)).max() < 100  # no click
    assert playout.stats.speech_packets == 4


def test_the_last_old_speech_is_played_within_25_ms_of_the_barge_in() -> None:
    for phase_ms in range(20):
        playout = wide_band()
        playout.push(chunk(loud(300)))
        played(playout, range(3))
        now = START + 2 * PTIME + phase_ms / 1_000
        silent_at = playout.discard(now).silent_at
        assert now < silent_at <= now + 0.0251
        assert silent_at == pytest.approx(START + 3 * PTIME + 0.005)


def test_a_late_fade_is_dropped() -> None:
    playout = wide_band()
    playout.push(chunk(loud(300)))
    played(playout, range(3))
    now = START + 2 * PTIME + 0.010
    playout.discard(now)
    assert playout.due(now + 0.0201) == [SILENCE]
    assert playout.due(at(4)) == [SILENCE]


def test_a_timely_fade_is_sent() -> None:
    playout = wide_band()
    playout.push(chunk(loud(300)))
    played(playout, range(3))
    now = START + 2 * PTIME + 0.010
    playout.discard(now)
    assert playout.due(now + 0.0199) != [SILENCE]
    assert playout.due(at(4)) == [SILENCE]


def test_a_rest_shorter_than_the_fade_is_faded_completely() -> None:
    playout = wide_band()
    playout.push(chunk(loud(22)))
    played(playout, range(1))
    discarded = playout.discard(at(0))
    assert discarded.cut_ms == pytest.approx(2)
    assert discarded.silent_at == pytest.approx(START + 0.022)
    heard = samples(playout.due(at(1))[0])
    assert heard[0] == 10_000
    assert heard[47] == 0
    assert not heard[47:].any()


def test_new_speech_follows_the_fade_in_the_same_packet() -> None:
    playout = wide_band()
    playout.push(chunk(loud(300)))
    played(playout, range(1))
    playout.discard(at(0))
    playout.push(chunk(speech(35)))
    heard = b"".join(played(playout, range(1, 4)))
    assert heard[240 : 240 + 35 * 48] == speech(35)
    assert not any(heard[240 + 35 * 48 :])


def test_speech_that_was_not_heard_has_no_fade() -> None:
    playout = wide_band()
    playout.push(chunk(loud(300), word("Hi", 0, 0.1, 0), text_stop=3))
    now = START - 0.005
    discarded = playout.discard(now)
    assert discarded.cut_ms == pytest.approx(300)
    assert (discarded.utterance, discarded.words, discarded.text_stop) == (0, (), 0)
    assert discarded.silent_at == now
    assert playout.due(START) == [SILENCE]


def test_speech_queued_behind_a_gap_has_no_fade() -> None:
    playout = wide_band()
    playout.push(chunk(loud(30)))
    played(playout, range(2))
    playout.push(chunk(loud(30)))
    discarded = playout.discard(START + 0.025)
    assert discarded.cut_ms == pytest.approx(30)
    assert discarded.silent_at == pytest.approx(START + 0.030)  # the rest of the packet that is being played
    assert played(playout, range(2, 4)) == [SILENCE] * 2


def test_a_barge_in_during_silence_drops_nothing() -> None:
    playout = wide_band()
    discarded = playout.discard(START + 3)
    assert (discarded.utterance, discarded.cut_ms, discarded.words) == (-1, 0, ())
    assert (discarded.text_stop, discarded.silent_at) == (0, START + 3)


def test_a_second_barge_in_drops_nothing() -> None:
    playout = wide_band()
    playout.push(chunk(loud(300), word("Hi", 0, 0.01, 0)))
    played(playout, range(3))
    playout.discard(at(2))
    assert playout.discard(at(2)).utterance == -1
    assert playout.discard(at(2)).cut_ms == 0
    assert playout.stats.discards == 3


def test_the_heard_text_is_complete_when_all_speech_was_heard() -> None:
    playout = wide_band()
    bye = word("Bye", 0, 0.020, 0)
    playout.push(chunk(speech(30), bye, text_stop=4))
    played(playout, range(3))
    playout.finish()
    discarded = playout.discard(at(3))
    assert (discarded.cut_ms, discarded.words, discarded.text_stop) == (0, (bye,), len("Bye."))


def test_the_heard_text_of_an_open_utterance_ends_with_the_last_heard_word() -> None:
    playout = wide_band()
    playout.push(chunk(speech(30), word("Bye", 0, 0.020, 0), text_stop=4))
    played(playout, range(3))
    assert playout.discard(at(3)).text_stop == len("Bye")


def test_a_chunk_of_an_earlier_segment_does_not_shorten_the_text() -> None:
    playout = wide_band()
    playout.push(chunk(speech(20), text_stop=9))
    playout.push(chunk(speech(20), text_stop=4))
    playout.finish()
    played(playout, range(3))
    assert playout.discard(at(3)).text_stop == 9


def test_a_barge_in_reports_the_utterance_being_heard() -> None:
    one, two = word("one", 0, 0.020, 0), word("two", 0, 0.020, 0)

    def queued() -> Playout:
        playout = wide_band()
        playout.push(chunk(speech(40), one, text_stop=4))
        playout.finish()
        playout.push(chunk(speech(60), two, text_stop=5))
        playout.finish()
        return playout

    first = queued()
    played(first, range(1))
    lost = first.discard(at(0))
    assert (lost.utterance, lost.words, lost.text_stop, lost.cut_ms) == (0, (one,), 3, pytest.approx(80))

    between = queued()
    played(between, range(2))
    lost = between.discard(at(1))
    assert (lost.utterance, lost.words, lost.text_stop, lost.cut_ms) == (0, (one,), 4, pytest.approx(60))

    second = queued()
    played(second, range(3))
    lost = second.discard(at(2))
    assert (lost.utterance, lost.words, lost.text_stop, lost.cut_ms) == (1, (two,), 3, pytest.approx(40))


def test_words_of_the_utterance_after_a_barge_in_count_from_its_beginning() -> None:
    playout = wide_band()
    playout.push(chunk(speech(300), word("old", 0.2, 0.22, 0)))
    played(playout, range(2))
    playout.discard(at(1))
    new = word("new", 0.0, 0.040, 0)
    playout.push(chunk(loud(100), new, text_stop=3))
    played(playout, range(2, 3))
    assert playout.take_heard_words() == ()
    played(playout, range(3, 4))
    assert playout.take_heard_words() == (HeardWord(1, new),)
    discarded = playout.discard(at(3))
    assert (discarded.utterance, discarded.words) == (1, (new,))


def test_speech_withheld_by_the_resampler_is_dropped() -> None:
    playout = Playout(start=START)
    playout.push(chunk(loud(100)))
    assert playout.lead_s(START) == pytest.approx(0.098)
    assert playout.discard(START - 0.01).cut_ms == pytest.approx(100)
    playout.push(chunk(bytes(4_800)))
    playout.finish()
    assert not any(b"".join(played(playout, range(6))))


def test_a_barge_in_after_finish_drops_drained_speech() -> None:
    playout = Playout(start=START)
    playout.push(chunk(loud(100)))
    playout.finish()
    assert playout.discard(START - 0.01).cut_ms == pytest.approx(100)


def test_finish_without_an_utterance_has_no_effect() -> None:
    playout = Playout(start=START)
    playout.finish()
    playout.push(chunk(loud(20)))
    playout.finish()
    playout.finish()
    assert playout.lead_s(START) == pytest.approx(0.020)


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
    playout = wide_band()
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
                assert playout.lead_s(now) <= PTIME + 1e-9
    stats = playout.stats
    assert playout.next_due() == START + (stats.packets + stats.skipped_packets) * PTIME
    assert playout.next_due() > now - 1e-9
    waiting = playout.lead_s(now + 60) * 24_000
    audible = int(np.count_nonzero(samples(bytes(sent)) == 7))
    edges = stats.discards * 120  # of which a few samples keep their level
    assert audible <= pushed - cut_ms * 24 - waiting + edges + 1e-6
    assert audible >= pushed - cut_ms * 24 - waiting - 1e-6


@settings(deadline=None)
@given(STEPS)
def test_any_sequence_of_operations_sends_speech_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    playout = wide_band()
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
