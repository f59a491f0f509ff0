"""The characters that are charged for texts of several scripts."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.dashscope.sentence_events import billed_characters


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("", 0),
        ("Hello, world!", 13),
        ("你好", 4),
        ("你好, Anna。", 11),
        ("日本語かな", 8),
        ("한국어", 3),
        ("韓國", 4),
        ("𠀀", 2),
        ("々〇", 4),
        ("、。", 2),
        ("😀", 1),
    ],
)
def test_han_characters_count_twice(text: str, characters: int) -> None:
    assert billed_characters(text) == characters


@given(st.characters())
def test_the_characters_that_unicode_names_ideographs_count_twice(character: str) -> None:
    name = unicodedata.name(character, "")
    if name.startswith(("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI")):
        assert billed_characters(character) == 2
    elif name.startswith(("LATIN", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC COMMA", "FULLWIDTH")):
        assert billed_characters(character) == 1
