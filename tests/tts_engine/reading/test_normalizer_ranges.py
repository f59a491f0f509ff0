"""Normalisation of English text: ranges, number words, and random text."""

import unicodedata
from itertools import pairwise

import inflect
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.tts_engine.reading.folding import fold
from vivavoce.tts_engine.reading.languages.en import vocabulary
from vivavoce.tts_engine.reading.languages.en.quantities import number_words
from vivavoce.tts_engine.reading.languages.en.rules import normalize
from vivavoce.tts_engine.reading.normalizer import SpokenWord

LETTERS = {name: letter for letter, name in vocabulary.LETTER_NAMES.items()}


def spoken(text: str, context: str = "") -> str:
    """Return the spoken words, with the names of letters as capitals."""
    words = normalize(text, context=context)
    return " ".join(LETTERS.get(word.text, word.text) + word.punctuation for word in words)


def test_control_and_zero_width_characters_inside_words_are_dropped() -> None:
    assert normalize("He\u200bl\x00lo") == [SpokenWord("Hello", "", 0, 7)]


def test_every_digit_of_a_code_has_its_own_range() -> None:
    text = "PIN 0417"
    assert [text[word.start : word.stop] for word in normalize(text)] == ["PIN", "0", "4", "1", "7"]


def test_the_words_of_a_date_stand_for_its_parts() -> None:
    text = "On March 3rd–5th, 2026"
    ranges = [text[word.start : word.stop] for word in normalize(text)]
    assert ranges == ["On", "March", "3rd", "5th", "5th", "2026", "2026", "2026"]


def test_ranges_refer_to_the_text_before_folding() -> None:
    text = "“Costs” ½ or ﬁve…"
    assert [text[word.start : word.stop] for word in normalize(text)] == ["Costs", "½", "½", "or", "ﬁve"]


def test_offset_moves_the_ranges() -> None:
    assert normalize("yes", offset=10) == [SpokenWord("yes", "", 10, 13)]


@given(st.integers(0, 10**15))
def test_number_words_equal_those_of_inflect(number: int) -> None:
    engine = inflect.engine()
    plain = str(engine.number_to_words(number, andword="")).replace(",", "").replace("-", " ")
    assert number_words.cardinal(number) == " ".join(plain.split())
    ordinal = str(engine.number_to_words(engine.ordinal(number), andword=""))
    assert number_words.ordinal(number) == " ".join(ordinal.replace(",", "").replace("-", " ").split())


ANYTHING = st.text(
    st.one_of(st.characters(), st.sampled_from("0123456789 ,.:;!?-–$€#@()[]/'\"*_|ABCaeiou\n"))
)


def is_pronounceable(word: str) -> bool:
    return bool(word) and all(letter == "'" or unicodedata.category(letter)[0] in "LM" for letter in word)


@settings(max_examples=300)
@given(ANYTHING)
def test_any_text_gives_pronounceable_words_in_order_with_ranges_in_the_text(text: str) -> None:
    words = normalize(text)
    assert all(is_pronounceable(word.text) for word in words)
    assert all(word.punctuation in ("", *",.?!;:—") for word in words)
    assert all(0 <= word.start < word.stop <= len(text) for word in words)
    assert all(a.start <= b.start and a.stop <= b.stop for a, b in pairwise(words))


@settings(max_examples=300)
@given(ANYTHING, ANYTHING)
def test_a_split_text_folds_as_the_whole_text(first: str, second: str) -> None:
    both, positions = fold(first + second)
    assert both == fold(first)[0] + fold(second)[0]
    assert len(positions) == len(both)


@given(st.text("0123456789", min_size=1, max_size=40))
def test_no_digit_of_a_code_is_lost_or_invented(digits: str) -> None:
    words = [word.text for word in normalize(digits, context="your code is")]
    assert words == number_words.digits(digits).split()
