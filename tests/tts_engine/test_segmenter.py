"""Tests of the segmenter: any split, safe cuts, segment lengths, and bounded work."""

import sys
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from random import Random
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.tts_engine.reading.languages.en.rules import normalize
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment, Segmenter, SegmentPolicy

EAGER = SegmentPolicy(first_min_words=1, min_words=1)
# Fragments of what a language model writes; joined, they make boundaries of all kinds.
FRAGMENTS = st.sampled_from(
    (
        'Hello|, |. |! |? |: |; |\n|\n\n| |—| — |-| - |...|"|)|(|*|**|_|`|# |- |1. |2) ||order number|PIN is'
        "|code|0417|48213|04|17|3|1,000|3.5|$5| million|$1,234.50|5%|March 3|, 2026|Mar.|Tue|10:00| p.m."
        "| a.m|.| ET|Dr.|St.|No.| 5|ext. 7|e.g.|etc.|Inc.|U.S.|J.|(415) 555-0142|555-0142|+44 20 7946 0958"
        "|example.com|jane.doe@example.com|https://example.com/a,b?c=d|[our page](https://x.com)|[|](|the|a|A|I|API"
        "|AB-1234-X|B2B|and|well-known|don't|😀|é|\u200b|\ud83d|…|’|3/14/2026|1/2|5-10|v2.1|km|!?|,"
    ).split("|")
)
TEXTS = st.lists(FRAGMENTS, max_size=30).map("".join)


def segments(parts: Iterable[str], policy: SegmentPolicy = EAGER) -> list[Segment]:
    segmenter = Segmenter(policy)
    return [segment for part in parts for segment in segmenter.push(part)] + segmenter.flush()


def text_of(segment: Segment) -> str:
    return " ".join(word.text + word.punctuation for word in segment.words)


def pushed(text: str, policy: SegmentPolicy = EAGER) -> list[str]:
    """Return the segments that are complete without a flush."""
    return [text_of(segment) for segment in Segmenter(policy).push(text)]


@settings(max_examples=200)
@given(TEXTS, st.randoms(use_true_random=False))
def test_any_split_gives_the_same_segments(text: str, random: Random) -> None:
    cuts = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(6)))
    parts = [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert segments(parts) == segments([text]) == segments(text)


@settings(max_examples=200)
@given(TEXTS)
def test_the_words_of_all_segments_are_the_words_of_the_whole_text(text: str) -> None:
    cut = [(word.text, word.start, word.stop) for segment in segments([text]) for word in segment.words]
    assert cut == [(word.text, word.start, word.stop) for word in normalize(text)]


@settings(max_examples=200)
@given(TEXTS)
def test_segments_follow_each_other_without_a_gap_and_cover_their_words(text: str) -> None:
    spoken = segments([text])
    assert [segment.start for segment in spoken] == [0, *(segment.stop for segment in spoken)][: len(spoken)]
    for segment in spoken:
        assert segment.words
        assert segment.start <= segment.words[0].start
        assert segment.words[-1].stop <= segment.stop <= len(text)


@settings(max_examples=200)
@given(TEXTS)
def test_segments_of_a_prefix_are_the_first_segments_of_the_whole_text(text: str) -> None:
    whole = segments([text])
    segmenter = Segmenter(EAGER)
    early = [segment for character in text for segment in segmenter.push(character)]
    assert early == whole[: len(early)]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Thank you for calling,", "Thank you for calling,"),
        ("Hello there! ", "Hello there!"),
        ("Is that right? ", "Is that right?"),
        ("Here it is:", "Here it is:"),
        ("I think so—", "I think so—"),
        ("It is done. ", "It is done."),
        ("It is done.\nN", "It is done."),
        ("Your code is 0417, t", "Your code is zero four one seven,"),
        ("Call us at 5 p.m. Te", "Call us at five P M."),
        ("Made in the U.S. We ", "Made in the U S."),
        ("It costs $40.50. W", "It costs forty dollars and fifty cents."),
        ("We met on March 3, a", "We met on March third,"),
        ("Acme Inc. W", "Acme Incorporated."),
    ],
)
def test_a_clause_is_emitted_at_the_character_that_makes_a_cut_safe(text: str, first: str) -> None:
    assert pushed(text[:-1]) == []
    assert pushed(text) == [first]


@pytest.mark.parametrize(
    "text",
    [
        "The total is 1,",
        "Born on March 3, ",
        "Born on March 3, 2026 is the date",
        "Call (415) 555-0142 and ask",
        "Dial ext. 7 for",
        "No. 5 is the one",
        "at 10:00 p.m. tomorrow we",
        "at 10:00 p.m. Eastern we",
        "from 9 a.m. PST on",
        "the J.D. Power and",
        "the U.S. Bank of",
        "Mail jane.doe@example.com or write",
        "Open https://example.com/a,b;c:d and",
        "It is $5 million in",
        "Dr. Smith and Mrs. Jones said",
        "J. K. Rowling wrote",
        "Version 2.1.3 of",
        "see [our page, please](https://example.com) and",
        "see [the page. The other one](https://example.com) and",
        "e.g. this one and",
        "1. Unplug the router and",
        "on Tue, Mar 3 we",
        "the ratio 3: 4 is",
        "on 5 - 10 days we",
        "it is 555. 0142 and",
    ],
)
def test_text_that_is_read_as_a_unit_is_not_cut(text: str) -> None:
    assert pushed(text) == []


def test_a_number_after_a_cut_is_read_by_the_words_before_the_cut() -> None:
    assert pushed("Your order number: 4821. T") == ["Your order number:", "four eight two one."]


def test_punctuation_that_follows_an_emitted_clause_is_dropped() -> None:
    assert [text_of(segment) for segment in segments(['"Wait!', '!!" she', " said."])] == [
        "Wait!",
        "she said.",
    ]


def test_short_clauses_wait_for_more_and_short_sentences_do_not() -> None:
    policy = SegmentPolicy(first_min_words=2, min_words=6)
    spoken = segments(["Well, yes, sure. Now, one, two, three, four, five. Ok."], policy)
    assert [text_of(segment) for segment in spoken] == [
        "Well, yes,",
        "sure.",
        "Now, one, two, three, four, five.",
        "okay.",
    ]


def test_the_ending_of_a_segment_is_its_kind_of_boundary() -> None:
    spoken = segments(["First one, then two.\n\nNew line\nlast"])
    assert [segment.ending for segment in spoken] == [
        BoundaryKind.CLAUSE,
        BoundaryKind.PARAGRAPH,
        BoundaryKind.SENTENCE,
        BoundaryKind.SENTENCE,
    ]


def test_a_long_clause_is_cut_between_words() -> None:
    text = "word " * 300
    spoken = segments([text])
    assert all(len(segment.words) <= 40 for segment in spoken)
    assert sum(len(segment.words) for segment in spoken) == 300
    assert {segment.ending for segment in spoken[:-1]} == {BoundaryKind.FORCED}


@pytest.mark.parametrize("before", range(30, 45))
def test_a_long_clause_is_not_cut_inside_an_amount(before: int) -> None:
    spoken = segments(["no " * before + "$1,234.50 " + "no " * 30])
    amount = "one thousand two hundred thirty four dollars and fifty cents"
    assert sum(amount in text_of(segment) for segment in spoken) == 1


@pytest.mark.parametrize("filler", ["no ", "n"])
@pytest.mark.parametrize("before", range(282, 402, 4))
def test_text_without_an_end_is_not_cut_inside_an_amount(filler: str, before: int) -> None:
    text = filler * (before // len(filler)) + " $5 million " + "so on " * 100
    words = [word.text for segment in Segmenter().push(text) for word in segment.words]
    assert "five million dollars" in " ".join(words)


def test_text_without_words_gives_no_segment() -> None:
    assert segments(["😀 ", "... ", "\n\n", "---\n", "!?", "\ud800"]) == []


def test_a_policy_with_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        SegmentPolicy(max_characters=0)


@given(TEXTS, st.integers(1, 60), st.integers(1, 12))
def test_any_policy_speaks_every_word_once(text: str, max_characters: int, max_words: int) -> None:
    policy = SegmentPolicy(1, 1, max_words, max_characters)
    spoken = [word for segment in segments([text], policy) for word in segment.words]
    assert spoken == [word for segment in segments(text, policy) for word in segment.words]
    assert all(first.start <= second.start for first, second in pairwise(spoken))


def test_after_a_flush_the_first_segment_is_short_again() -> None:
    segmenter = Segmenter()
    first = segmenter.push("Your code is 04") + segmenter.flush()
    second = segmenter.push("So, good day, and thanks,")
    assert [text_of(segment) for segment in first] == ["Your code is zero four."]
    assert [text_of(segment) for segment in second] == ["So, good day,"]
    assert second[0].start == 15


JUNK = ["a", "1", "a ", "x, ", "(415) 555-", "[a ", "a.b@", ".", " ", "\n", "😀", "$1."]


def calls_made(text: str) -> int:
    """Return the number of function calls that segmenting takes, which does not depend on the load."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    segmenter = Segmenter()
    sys.setprofile(count)
    try:
        segmenter.push(text)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("junk", JUNK)
def test_work_grows_linearly_with_the_length_of_any_text(junk: str) -> None:
    short, long = (junk * (characters // len(junk)) for characters in (8_000, 32_000))
    assert calls_made(long) < 4.5 * calls_made(short) + 1000


@pytest.mark.slow
@pytest.mark.parametrize("junk", JUNK)
def test_memory_stays_bounded_for_a_huge_text(junk: str) -> None:
    segmenter = Segmenter()
    text = junk * (20_000 // len(junk))
    Segmenter().push(text[:2000])  # patterns are compiled when they are first tried
    tracemalloc.start()
    for start in range(0, len(text), 1000):
        segmenter.push(text[start : start + 1000])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 450_000


def test_words_that_the_voice_cannot_read_are_left_out_and_their_letters_counted() -> None:
    segmenter = Segmenter()
    segments = [*segmenter.push("One 你好, two 世界. 再见。 Three"), *segmenter.flush()]
    assert [text_of(segment) for segment in segments] == ["One, two.", "Three."]
    assert segmenter.has_words and segmenter.unread_characters == 6
    assert [(segment.start, segment.stop) for segment in segments][-1][1] == len(
        "One 你好, two 世界. 再见。 Three"
    )


def test_a_text_without_words_has_none_to_read() -> None:
    segmenter = Segmenter()
    assert [*segmenter.push("... \N{GRINNING FACE}!"), *segmenter.flush()] == []
    assert not segmenter.has_words and segmenter.unread_characters == 0


def test_letters_of_another_script_inside_a_word_are_counted() -> None:
    segmenter = Segmenter()
    segments = [*segmenter.push("iPhone手机"), *segmenter.flush()]
    assert len(segments) == 1 and segmenter.unread_characters == 2
