"""Upstream's text rules: golden case k_frontend string by string, and the rules at their edges."""

import json
from pathlib import Path
from typing import Any

import pytest

from golden.reference import upstream_text
from golden.reference.upstream_text import UpstreamTextRules

DATA = Path(__file__).parent / "data"
CASE: dict[str, Any] = json.loads((DATA / "k_frontend.json").read_text("utf-8"))


def words(text: str) -> list[str]:
    return text.split(" ")


def characters(text: str) -> list[str]:
    return list(text)


@pytest.mark.parametrize("row", CASE["en"], ids=lambda row: row["text"][:20])
def test_english_is_spelled_out_and_cut(row: dict[str, Any]) -> None:
    assert upstream_text.spell_out_numbers(row["text"]) == row["spelled"]
    assert upstream_text.split_paragraph(row["spelled"], words, UpstreamTextRules.OTHER) == row["split"]


@pytest.mark.parametrize("row", CASE["zh"], ids=lambda row: row["text"][:8])
def test_chinese_is_normalised_and_cut(row: dict[str, Any]) -> None:
    text = row["text"]
    assert upstream_text.remove_blanks(text) == row["blank"]
    assert upstream_text.spell_out_corner_marks(text) == row["corner"]
    assert upstream_text.remove_brackets(text) == row["bracket"]
    assert upstream_text.split_paragraph(text, words, UpstreamTextRules.CHINESE) == row["split"]


@pytest.mark.parametrize("row", CASE["text_normalize_no_wetext"], ids=lambda row: row["text"][:8])
def test_a_whole_text_is_prepared(row: dict[str, Any]) -> None:
    assert upstream_text.prepare(row["text"], words) == row["split"]
    assert upstream_text.normalize(row["text"]) == row["nosplit"]


@pytest.mark.parametrize(("text", "expected"), CASE["only_punct"])
def test_punctuation_alone_is_recognised(text: str, expected: bool) -> None:
    assert upstream_text.is_only_punctuation(text) is expected


@pytest.mark.parametrize(("text", "expected"), CASE["contains_chinese"])
def test_chinese_characters_select_the_chinese_rules(text: str, expected: bool) -> None:
    assert (upstream_text.rules_for(text) is UpstreamTextRules.CHINESE) is expected


def test_a_segment_without_punctuation_has_no_bound() -> None:
    assert upstream_text.split_paragraph("a" * 500, characters, UpstreamTextRules.OTHER) == ["a" * 500 + "."]


def test_segments_are_joined_until_they_are_long_enough() -> None:
    sentence = "x" * 29 + "."
    segments = upstream_text.split_paragraph(sentence * 6, characters, UpstreamTextRules.OTHER)
    assert segments == [sentence * 3, sentence * 3]


def test_a_short_last_segment_joins_the_one_before() -> None:
    sentence = "x" * 69 + "."
    assert upstream_text.split_paragraph(sentence + "y" * 18, characters, UpstreamTextRules.OTHER) == [
        sentence + "y" * 18 + "."
    ]
    assert upstream_text.split_paragraph(sentence + "y" * 19, characters, UpstreamTextRules.OTHER) == [
        sentence,
        "y" * 19 + ".",
    ]


@pytest.mark.parametrize("text", ['?"', '?" No', "（）你", "你\n ", "...", '"', "²"])
def test_an_unusual_text_raises_nothing(text: str) -> None:
    upstream_text.prepare(text, characters)


def test_numbers_are_spelled_in_english_in_every_language() -> None:
    assert upstream_text.normalize("Um 3.14 Uhr") == "Um three.fourteen Uhr"
