"""Subtitles: every character in a cue, limits of a cue, and the three formats."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.subtitles import MAX_CUE_CHARACTERS, MAX_CUE_S, as_json, as_srt, as_vtt, make_cues
from vivavoce.tts_engine.chunk import Word

SENTENCE_ENDS = tuple(".!?")


def words_of(text: str, word_s: float = 0.3) -> list[Word]:
    """A word for each run between blanks, one after another."""
    words, at = [], 0
    for number, run in enumerate(text.split()):
        start = text.index(run, at)
        at = start + len(run)
        words.append(Word(run, number * word_s, (number + 1) * word_s, start, at))
    return words


def test_a_cue_ends_with_a_sentence_and_formats_have_its_times() -> None:
    text = "Hello, you & me. It is <late>."
    cues = make_cues(text, words_of(text))
    assert as_srt(cues) == (
        "1\n00:00:00,000 --> 00:00:01,200\nHello, you & me.\n\n"
        "2\n00:00:01,200 --> 00:00:02,100\nIt is <late>.\n"
    )
    assert as_vtt(cues) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.200\nHello, you &amp; me.\n\n"
        "00:00:01.200 --> 00:00:02.100\nIt is &lt;late&gt;.\n"
    )
    assert json.loads(as_json(cues))[1] == {"start": 1.2, "end": 2.1, "text": "It is <late>."}


@given(
    st.lists(st.text("abc1,.!?", min_size=1, max_size=30), min_size=1, max_size=80),
    st.floats(0.01, 3.0),
)
def test_the_cues_hold_the_text_as_written_within_their_limits(runs: list[str], word_s: float) -> None:
    text = " ".join(runs)
    words = words_of(text, word_s)
    cues = make_cues(text, words)
    assert " ".join(cue.text for cue in cues) == text
    assert cues[0].start_s == 0 and cues[-1].stop_s == words[-1].stop_s
    for cue in cues:
        several = " " in cue.text
        assert not several or (len(cue.text) <= MAX_CUE_CHARACTERS and cue.stop_s - cue.start_s <= MAX_CUE_S)
        assert not any(run.endswith(SENTENCE_ENDS) for run in cue.text.split()[:-1])
    for cue, after in pairwise(cues):
        assert cue.stop_s == pytest.approx(after.start_s)
        longer = f"{cue.text} {after.text.split()[0]}"
        ends = cue.text.endswith(SENTENCE_ENDS)
        assert (
            ends or len(longer) > MAX_CUE_CHARACTERS or cue.stop_s + word_s - cue.start_s > MAX_CUE_S - 1e-6
        )


def test_a_long_speech_has_hours_and_a_text_without_words_no_cue() -> None:
    assert as_srt(make_cues("late", [Word("late", 3_661.5, 3_662.25, 0, 4)])).startswith(
        "1\n01:01:01,500 --> 01:01:02,250\n"
    )
    assert make_cues("...", []) == [] and as_vtt([]) == "WEBVTT\n"
