"""Tests of the segmenter for models that continue a generation over several clauses."""

from itertools import pairwise

import pytest

from vivavoce.tts_engine.cosyvoice.generation_segmenter import (
    GenerationPolicy,
    GenerationSegmenter,
    VoiceConversionSegmenter,
)
from vivavoce.tts_engine.segmenter import BoundaryKind

DEFAULT_POLICY = GenerationPolicy()


def generations(*parts: str, policy: GenerationPolicy = DEFAULT_POLICY) -> list[tuple[str, BoundaryKind]]:
    """The segments of parts that are each flushed, as text and ending."""
    segmenter = GenerationSegmenter(policy)
    found = [segment for part in parts for segment in (*segmenter.push(part), *segmenter.flush())]
    assert [segment.start for segment in found] == [0, *(segment.stop for segment in found)][: len(found)]
    return [(segment.spoken, segment.ending) for segment in found]


def test_every_clause_is_a_segment_and_the_ending_marks_the_sentence() -> None:
    assert generations("Well, yes, your API costs $5. And I?\n\nNo") == [
        ("Well,", BoundaryKind.CLAUSE),
        ("yes,", BoundaryKind.CLAUSE),
        ("your A P I costs five dollars.", BoundaryKind.SENTENCE),
        ("And I?", BoundaryKind.SENTENCE),
        ("No.", BoundaryKind.SENTENCE),
    ]


@pytest.mark.parametrize("end", ["", " ", "!!", "\n\n", "😀"])
def test_an_open_sentence_is_ended_by_an_empty_segment(end: str) -> None:
    *clauses, (spoken, ending) = generations(f"Well,{end}")
    assert clauses == [("Well,", BoundaryKind.CLAUSE)]
    assert spoken == ""
    assert ending in (BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH)


def test_text_without_words_opens_no_sentence() -> None:
    assert generations("!!", "", " \n", "😀,") == []
    assert generations("Yes.", "!!", "") == [("Yes.", BoundaryKind.SENTENCE)]


def test_a_long_sentence_is_split_at_the_target_duration() -> None:
    found = generations("and so we went on, " * 30, policy=GenerationPolicy(4.0, 6.0))
    whole = [index for index, (_, ending) in enumerate(found) if ending is BoundaryKind.SENTENCE]
    assert len(whole) > 5
    assert {later - earlier for earlier, later in pairwise(whole)} == {3}


def test_a_clause_beyond_the_maximum_duration_begins_a_generation() -> None:
    policy = GenerationPolicy(4.5, 5.0)
    assert generations("we went, " + "on and " * 8 + "on, ", policy=policy)[:2] == [
        ("we went,", BoundaryKind.CLAUSE),
        ("", BoundaryKind.SENTENCE),
    ]


def test_a_target_above_the_maximum_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="target_s <= max_s"):
        GenerationPolicy(10.0, 5.0)


def test_a_voice_conversion_is_one_empty_segment_at_the_end() -> None:
    segmenter = VoiceConversionSegmenter()
    (segment,) = segmenter.flush()
    assert (segment.words, segment.ending) == ((), BoundaryKind.SENTENCE)
