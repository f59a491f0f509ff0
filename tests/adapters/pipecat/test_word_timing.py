"""Word times of the Pipecat services, by the playhead alone."""

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from vivavoce.adapters.pipecat.word_timing import Playhead


def test_word_times_count_from_the_first_audio_of_their_context() -> None:
    playhead = Playhead()
    starts = playhead.play(5_000_000_000, 0.4)
    assert starts == 5_000_000_000
    assert playhead.word_time_s(starts + 300_000_000) == pytest.approx(0.3)


def test_audio_starts_after_the_audio_queued_before_it() -> None:
    playhead = Playhead()
    playhead.play(1_000_000_000, 0.5)
    assert playhead.play(1_100_000_000, 0.5) == 1_500_000_000
    assert playhead.lead_s(1_200_000_000) == pytest.approx(0.8)


def test_a_gap_in_the_audio_delays_the_words_after_it() -> None:
    playhead = Playhead()
    playhead.play(0, 0.2)
    late = playhead.play(3_000_000_000, 0.2)
    assert playhead.word_time_s(late) == pytest.approx(3.0)


def test_a_context_queued_behind_another_is_timed_from_its_own_audio() -> None:
    playhead = Playhead()
    first = playhead.play(0, 1.0)
    playhead.word_time_s(first + 800_000_000)  # last word of the first context
    playhead.begin_context()
    second = playhead.play(100_000_000, 1.0)
    # Pipecat counts from the last word, at 0.8 s; the audio starts at 1.0 s
    assert playhead.word_time_s(second) == pytest.approx(0.2)


def test_word_times_never_decrease() -> None:
    playhead = Playhead()
    playhead.play(0, 1.0)
    assert playhead.word_time_s(500_000_000) == pytest.approx(0.5)
    assert playhead.word_time_s(400_000_000) == pytest.approx(0.5)


def test_an_interruption_resets_the_lead_to_zero() -> None:
    playhead = Playhead()
    playhead.play(0, 9.0)
    playhead.discard()
    assert playhead.lead_s(1_000_000_000) == 0.0
    assert playhead.play(1_000_000_000, 0.1) == 1_000_000_000
