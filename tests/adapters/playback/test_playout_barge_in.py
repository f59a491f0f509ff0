"""``Playout``: words heard and barge-in, with times given by the tests."""

from dataclasses import replace

import numpy as np
import pytest

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
    take_words,
    word,
)
from vivavoce.adapters.playback.heard_words import MAX_UNREPORTED_WORDS, HeardMark, HeardWord
from vivavoce.adapters.playback.playout import Playout
from vivavoce.tts_engine.chunk import Mark

# Words


def test_a_word_is_heard_when_its_middle_has_been_sent() -> None:
    playout = playout_24_khz()
    early, late = word("Hello", 0.010, 0.030, 0), word("there", 0.030, 0.0505, 6)
    playout.push(chunk(speech(100), early, late))
    assert playout.take_heard_words() == ()
    packets_of(playout, range(1))  # to 20 ms: exactly the middle of the first word
    assert playout.take_heard_words() == (HeardWord(0, early),)
    packets_of(playout, range(1, 2))  # to 40 ms; the second's middle is at 40.25
    assert playout.take_heard_words() == ()
    packets_of(playout, range(2, 3))
    assert playout.take_heard_words() == (HeardWord(0, late),)
    assert playout.take_heard_words() == ()


def test_words_keep_their_position_at_8_khz() -> None:
    playout = Playout(start=START)
    first, second = word("a", 0.0, 0.0398, 0), word("b", 0.020, 0.0204, 2)
    playout.push(chunk(constant_level(100), first, second))
    packets_of(playout, range(1))
    assert [heard.word for heard in take_words(playout)] == [first]
    packets_of(playout, range(1, 2))
    assert [heard.word for heard in take_words(playout)] == [second]


def test_word_times_of_the_next_utterance_count_from_its_beginning() -> None:
    playout = playout_24_khz()
    one, two = word("one", 0.0, 0.050, 0), word("two", 0.0, 0.050, 0)
    playout.push(chunk(speech(50), one))
    playout.finish()
    playout.push(chunk(speech(50), two))
    packets_of(playout, range(3))
    assert playout.take_heard_words() == (HeardWord(0, one),)
    packets_of(playout, range(3, 4))  # to 80 ms, which is 30 of the second
    assert playout.take_heard_words() == (HeardWord(1, two),)


def test_a_word_after_the_end_of_the_audio_is_heard_at_the_end() -> None:
    playout = playout_24_khz()
    stray, other = word("stray", 0.5, 0.7, 0), word("next", 0.0, 0.060, 0)
    playout.push(chunk(speech(30), stray))
    playout.finish()
    playout.push(chunk(speech(60), other))
    packets_of(playout, range(1))
    assert playout.take_heard_words() == ()
    packets_of(playout, range(1, 2))
    assert playout.take_heard_words() == (HeardWord(0, stray),)
    packets_of(playout, range(2, 3))
    assert playout.take_heard_words() == (HeardWord(1, other),)


def test_a_word_reported_after_its_audio_was_sent_is_heard_at_the_end() -> None:
    playout = playout_24_khz()
    stray = word("stray", 0.0, 0.7, 0)
    playout.push(chunk(speech(20), stray))
    packets_of(playout, range(5))
    assert playout.take_heard_words() == ()
    playout.finish()
    assert playout.take_heard_words() == (HeardWord(0, stray),)


def test_only_the_newest_unreported_words_are_kept() -> None:
    playout = playout_24_khz()
    words = [word(str(number), 0, 0, number) for number in range(MAX_UNREPORTED_WORDS + 1)]
    playout.push(chunk(speech(20), *words))
    packets_of(playout, range(1))
    assert [heard.word for heard in take_words(playout)] == words[1:]


# Marks


def test_a_mark_is_heard_when_its_place_has_been_sent_between_the_words_around_it() -> None:
    playout = playout_24_khz()
    one, two = word("one", 0, 0.030, 0), word("two", 0.030, 0.070, 4)
    begin, middle, end = Mark("begin", 0.0), Mark("middle", 0.030), Mark("end", 0.070)
    playout.push(replace(chunk(speech(70), one, two), marks=(begin, middle, end)))
    playout.finish()
    assert playout.take_heard_words() == ()
    packets_of(playout, range(1))
    assert playout.take_heard_words() == (HeardMark(0, begin), HeardWord(0, one))
    packets_of(playout, range(1, 3))
    assert playout.take_heard_words() == (HeardMark(0, middle), HeardWord(0, two))
    packets_of(playout, range(3, 4))
    assert playout.take_heard_words() == (HeardMark(0, end),)


def test_a_barge_in_returns_the_marks_heard_and_drops_the_others() -> None:
    playout = playout_24_khz()
    marks = Mark("first", 0.0), Mark("second", 0.030), Mark("never", 0.1)
    playout.push(replace(chunk(speech(200), word("one", 0, 0.1, 0)), marks=marks))
    packets_of(playout, range(2))
    assert playout.discard(slot_time(1)).marks == ("first", "second")
    playout.take_heard_words()
    packets_of(playout, range(2, 9))
    assert playout.take_heard_words() == ()


# Barge-in


def test_a_barge_in_returns_the_dropped_length_and_the_heard_words() -> None:
    playout = playout_24_khz()
    heard, half, unheard = word("Your", 0, 0.030, 0), word("PIN", 0.030, 0.090, 5), word("is", 0.1, 0.2, 9)
    playout.push(chunk(speech(300), heard, half, unheard, text_stop=12))
    packets_of(playout, range(3))
    assert playout.take_heard_words() == (HeardWord(0, heard), HeardWord(0, half))
    discarded = playout.discard(slot_time(2))
    assert discarded.utterance == 0
    assert discarded.cut_ms == pytest.approx(240)
    assert discarded.words == (heard, half)  # also the words taken before
    assert discarded.text_stop == len("Your PIN")
    assert playout.lead_s(slot_time(3)) == pytest.approx(0)
    assert playout.stats.discards == 1


def test_after_a_barge_in_only_the_fade_of_the_old_speech_is_sent() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(300)))
    packets_of(playout, range(3))
    playout.discard(slot_time(2) + 0.003)
    edge, *others = packets_of(playout, range(3, 20))
    assert others == [SILENCE] * 16
    heard = samples(edge)
    assert np.count_nonzero(heard) <= 120  # 5 ms
    assert heard[0] == 10_000
    assert (np.diff(heard) <= 0).all()
    assert np.abs(np.diff(heard)).max() < 100  # no click
    assert playout.stats.speech_packets == 4


def test_the_last_old_speech_is_played_within_25_ms_of_the_barge_in() -> None:
    for phase_ms in range(20):
        playout = playout_24_khz()
        playout.push(chunk(constant_level(300)))
        packets_of(playout, range(3))
        now = START + 2 * PTIME_S + phase_ms / 1_000
        silent_at = playout.discard(now).silent_at
        assert now < silent_at <= now + 0.0251
        fade_s = 0.005 if phase_ms >= 2 else 0.0  # none in a packet that is due in more than 18 ms
        assert silent_at == pytest.approx(START + 3 * PTIME_S + fade_s)


def test_the_packet_after_a_barge_in_is_silent_if_it_is_due_in_more_than_18_ms() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(300)))
    packets_of(playout, range(3))
    discarded = playout.discard(slot_time(2) + 0.001)
    assert discarded.silent_at == pytest.approx(slot_time(3))
    assert playout.due(slot_time(3)) == [SILENCE]


def test_a_late_fade_is_dropped() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(300)))
    packets_of(playout, range(3))
    now = START + 2 * PTIME_S + 0.010
    playout.discard(now)
    assert playout.due(now + 0.0181) == [SILENCE]
    assert playout.due(slot_time(4)) == [SILENCE]


def test_a_timely_fade_is_sent() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(300)))
    packets_of(playout, range(3))
    now = START + 2 * PTIME_S + 0.010
    playout.discard(now)
    assert playout.due(now + 0.0179) != [SILENCE]
    assert playout.due(slot_time(4)) == [SILENCE]


def test_a_rest_shorter_than_the_fade_is_faded_completely() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(22)))
    packets_of(playout, range(1))
    discarded = playout.discard(slot_time(0) + 0.003)
    assert discarded.cut_ms == pytest.approx(2)
    assert discarded.silent_at == pytest.approx(START + 0.022)
    heard = samples(playout.due(slot_time(1))[0])
    assert heard[0] == 10_000
    assert heard[47] == 0
    assert not heard[47:].any()


def test_new_speech_follows_the_fade_in_the_same_packet() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(300)))
    packets_of(playout, range(1))
    playout.discard(slot_time(0) + 0.003)
    playout.push(chunk(speech(35)))
    heard = b"".join(packets_of(playout, range(1, 4)))
    assert heard[240 : 240 + 35 * 48] == speech(35)
    assert not any(heard[240 + 35 * 48 :])


def test_speech_that_was_not_heard_has_no_fade() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(300), word("Hi", 0, 0.1, 0), text_stop=3))
    now = START - 0.005
    discarded = playout.discard(now)
    assert discarded.cut_ms == pytest.approx(300)
    assert (discarded.utterance, discarded.words, discarded.text_stop) == (0, (), 0)
    assert discarded.silent_at == now
    assert playout.due(START) == [SILENCE]


def test_speech_queued_after_a_gap_has_no_fade() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(30)))
    packets_of(playout, range(2))
    playout.push(chunk(constant_level(30)))
    discarded = playout.discard(START + 0.025)
    assert discarded.cut_ms == pytest.approx(30)
    assert discarded.silent_at == pytest.approx(START + 0.030)  # the rest of the packet that is being played
    assert packets_of(playout, range(2, 4)) == [SILENCE] * 2


def test_a_barge_in_during_silence_drops_nothing() -> None:
    playout = playout_24_khz()
    discarded = playout.discard(START + 3)
    assert (discarded.utterance, discarded.cut_ms, discarded.words) == (-1, 0, ())
    assert (discarded.text_stop, discarded.silent_at) == (0, START + 3)


def test_a_second_barge_in_drops_nothing() -> None:
    playout = playout_24_khz()
    playout.push(chunk(constant_level(300), word("Hi", 0, 0.01, 0)))
    packets_of(playout, range(3))
    playout.discard(slot_time(2))
    assert playout.discard(slot_time(2)).utterance == -1
    assert playout.discard(slot_time(2)).cut_ms == 0
    assert playout.stats.discards == 3


def test_the_heard_text_is_complete_when_all_speech_was_heard() -> None:
    playout = playout_24_khz()
    bye = word("Bye", 0, 0.020, 0)
    playout.push(chunk(speech(30), bye, text_stop=4))
    packets_of(playout, range(3))
    playout.finish()
    discarded = playout.discard(slot_time(3))
    assert (discarded.cut_ms, discarded.words, discarded.text_stop) == (0, (bye,), len("Bye."))


def test_the_heard_text_of_an_open_utterance_ends_with_the_last_heard_word() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(30), word("Bye", 0, 0.020, 0), text_stop=4))
    packets_of(playout, range(3))
    assert playout.discard(slot_time(3)).text_stop == len("Bye")


def test_a_chunk_of_an_earlier_segment_does_not_shorten_the_text() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(20), text_stop=9))
    playout.push(chunk(speech(20), text_stop=4))
    playout.finish()
    packets_of(playout, range(3))
    assert playout.discard(slot_time(3)).text_stop == 9


def test_a_barge_in_reports_the_utterance_being_heard() -> None:
    one, two = word("one", 0, 0.020, 0), word("two", 0, 0.020, 0)

    def queued() -> Playout:
        playout = playout_24_khz()
        playout.push(chunk(speech(40), one, text_stop=4))
        playout.finish()
        playout.push(chunk(speech(60), two, text_stop=5))
        playout.finish()
        return playout

    first = queued()
    packets_of(first, range(1))
    lost = first.discard(slot_time(0))
    assert (lost.utterance, lost.words, lost.text_stop, lost.cut_ms) == (0, (one,), 3, pytest.approx(80))

    between = queued()
    packets_of(between, range(2))
    lost = between.discard(slot_time(1))
    assert (lost.utterance, lost.words, lost.text_stop, lost.cut_ms) == (0, (one,), 4, pytest.approx(60))

    second = queued()
    packets_of(second, range(3))
    lost = second.discard(slot_time(2))
    assert (lost.utterance, lost.words, lost.text_stop, lost.cut_ms) == (1, (two,), 3, pytest.approx(40))


def test_words_of_the_utterance_after_a_barge_in_count_from_its_beginning() -> None:
    playout = playout_24_khz()
    playout.push(chunk(speech(300), word("old", 0.2, 0.22, 0)))
    packets_of(playout, range(2))
    playout.discard(slot_time(1) + 0.003)
    new = word("new", 0.0, 0.040, 0)
    playout.push(chunk(constant_level(100), new, text_stop=3))
    packets_of(playout, range(2, 3))
    assert playout.take_heard_words() == ()
    packets_of(playout, range(3, 4))
    assert playout.take_heard_words() == (HeardWord(1, new),)
    discarded = playout.discard(slot_time(3))
    assert (discarded.utterance, discarded.words) == (1, (new,))


def test_speech_withheld_by_the_resampler_is_dropped() -> None:
    playout = Playout(start=START)
    playout.push(chunk(constant_level(100)))
    assert playout.lead_s(START) == pytest.approx(0.098)
    assert playout.discard(START - 0.01).cut_ms == pytest.approx(100)
    playout.push(chunk(bytes(4_800)))
    playout.finish()
    assert not any(b"".join(packets_of(playout, range(6))))


def test_a_barge_in_after_finish_drops_drained_speech() -> None:
    playout = Playout(start=START)
    playout.push(chunk(constant_level(100)))
    playout.finish()
    assert playout.discard(START - 0.01).cut_ms == pytest.approx(100)


def test_finish_without_an_utterance_has_no_effect() -> None:
    playout = Playout(start=START)
    playout.finish()
    playout.push(chunk(constant_level(20)))
    playout.finish()
    playout.finish()
    assert playout.lead_s(START) == pytest.approx(0.020)
