"""Sentences of bots in each language: share read right, any split, ranges in the text, number words."""

from itertools import pairwise
from random import Random

import pytest

pytest.importorskip("wetext")

from benches.readings import comparable, grammars, languages, read_sentences, spoken
from shared.language_tables import TABLE_LANGUAGES, language_table
from vivavoce.tts_engine.reading.languages.registry import LANGUAGES as READ_LANGUAGES
from vivavoce.tts_engine.reading.normalizer import SpokenWord, TextNormalizer

LANGUAGES = languages()


def words_of(parts: list[str], language: str) -> list[SpokenWord]:
    normalizer = TextNormalizer(grammars().any_clause_normalizer(language))
    clauses = [clause for part in parts for clause in normalizer.push(part)]
    return [word for clause in (*clauses, *normalizer.flush()) for word in clause.words]


def test_every_language_but_english_has_sentences() -> None:
    assert {*LANGUAGES, "en"} == {language.code for language in READ_LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_49_of_50_sentences_are_read_as_a_careful_speaker_reads_them(language: str) -> None:
    sentences = read_sentences(language)
    assert len(sentences) >= 60
    wrong = [(each.written, spoken(each.written, language)) for each in sentences if not each.is_right]
    assert len(wrong) <= 0.02 * len(sentences), wrong


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_are_the_same_for_any_split_and_have_their_places(language: str) -> None:
    random = Random(language)
    text = "\n".join(random.sample([each.written for each in read_sentences(language)], 30))
    words = words_of([text], language)
    cuts = sorted(random.sample(range(1, len(text)), 60))
    assert words_of([*text], language) == words
    assert words_of([text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])], language) == words
    assert all(0 <= word.start < word.stop <= len(text) for word in words)
    assert all(one.start <= other.start for one, other in pairwise(words))
    assert not any(character.isdigit() for word in words for character in word.text)


@pytest.mark.parametrize("language", TABLE_LANGUAGES)
def test_a_table_is_complete(language: str) -> None:
    table = language_table(language)
    assert len(table.months) == 12
    assert len(table.month_abbreviations) in (0, 12)
    assert {*"abcdefghijklmnopqrstuvwxyz"} <= set(table.letters)
    assert {"@", ".", "-", "_", "/", "+", "&", "=", "#", "%"} <= set(table.marks)
    assert "" in table.rules
    assert {"€ EUR", "$ USD"} <= {f"{sign} {code}" for sign in table.money for code in table.money}


@pytest.mark.parametrize("language", TABLE_LANGUAGES)
def test_a_month_in_capitals_or_with_letters_that_equal_others_is_read(language: str) -> None:
    for month in language_table(language).months:
        for written in (month.upper(), month.replace("i", "İ"), month.replace("s", "ſ")):
            if language_table(language).day_first:
                assert spoken(f"3 {written} 2025", language) == spoken(f"3 {month} 2025", language)


# Spellings of num2words that differ from the usual ones, and its faults.
DIFFERENCES = {
    "es": [("veintiuno mil", "veintiún mil"), ("uno mil", "un mil")],
    "it": [("tré", "tre"), ("dicotto", "diciotto"), ("unomila", "unmila")],
    "pt": [(" e ", " "), (",", "")],
    "ru": [("одна тысяча", "тысяча")],
    "pl": [("jeden tysiąc", "tysiąc"), ("jeden milion", "milion")],
    "tr": [(" ", ""), ("birbin", "bin")],
}
NUM2WORDS = {"pt": "pt_BR"}


def same(words: str, language: str) -> str:
    for one, other in DIFFERENCES.get(language, []):
        words = words.replace(one, other)
    return comparable(words)


@pytest.mark.parametrize("language", TABLE_LANGUAGES)
def test_numbers_up_to_a_million_equal_those_of_num2words(language: str) -> None:
    num2words = pytest.importorskip("num2words").num2words
    random = Random(language)
    numbers = [*range(120), *(random.randrange(10**size) for size in (3, 4, 5, 6) for _ in range(60)), 10**6]
    separator = language_table(language).thousands_separators[0]
    for number in numbers:
        written = f"{number:,}".replace(",", separator)
        said = spoken(written, language)
        expected = num2words(number, lang=NUM2WORDS.get(language, language))
        if 1100 <= number < 2000 and separator not in written:
            continue  # may be a year
        assert same(said, language) == same(expected, language), number
