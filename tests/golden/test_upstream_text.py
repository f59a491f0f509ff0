"""Upstream's text rules at their edges."""

import pytest

from golden.reference import upstream_text
from golden.reference.upstream_text import UpstreamTextRules


def characters(text: str) -> list[str]:
    return list(text)


def test_a_piece_without_marks_has_no_bound() -> None:
    assert upstream_text.split_paragraph("a" * 500, characters, UpstreamTextRules.OTHER) == ["a" * 500 + "."]


def test_pieces_are_joined_until_they_are_long_enough() -> None:
    sentence = "x" * 29 + "."
    segments = upstream_text.split_paragraph(sentence * 6, characters, UpstreamTextRules.OTHER)
    assert segments == [sentence * 3, sentence * 3]


def test_a_short_last_piece_joins_the_one_before() -> None:
    sentence = "x" * 69 + "."
    assert upstream_text.split_paragraph(sentence + "y" * 18, characters, UpstreamTextRules.OTHER) == [
        sentence + "y" * 18 + "."
    ]
    assert upstream_text.split_paragraph(sentence + "y" * 19, characters, UpstreamTextRules.OTHER) == [
        sentence,
        "y" * 19 + ".",
    ]


@pytest.mark.parametrize("text", ['?"', '?" No', "（）你", "你\n ", "...", '"', "²"])
def test_odd_texts_are_no_errors(text: str) -> None:
    upstream_text.prepare(text, characters)


def test_numbers_are_english_in_every_language() -> None:
    assert upstream_text.normalize("Um 3.14 Uhr") == "Um three.fourteen Uhr"
