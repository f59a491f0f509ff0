"""Scoring of transcripts: lenient about spelling, strict about digits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benches.transcript_scoring import MistakeKind, canonical_words, differences, score
from benches.two_recognisers import wrong_for_all
from benches.word_errors import sentences, word_time_errors_ms
from vivavoce.tts_engine.chunk import Word
from vivavoce.tts_engine.reading.languages.en.quantities import number_words


def wrong_words(reference: str, heard: str) -> int:
    return score(reference, heard).count_wrong(MistakeKind.WORD)


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ("zero four one seven", "0417"),
        ("zero four one seven", "04 17"),
        ("zero four one seven", "04-17."),
        ("one thousand two hundred", "1,200"),
        ("one hundred twenty seven dollars and fifty cents", "$127.50"),
        ("five dollars", "$5.00"),
        ("eighty five cents", "$0.85"),
        ("one point five million dollars", "$1.5 million"),
        ("five million dollars", "$5 million"),
        ("two hundred fifty thousand dollar loan", "$250,000 loan"),
        ("three pounds and twenty pence", "£3.20"),
        ("march third", "March 3rd"),
        ("march third", "March 3"),
        ("january first twenty twenty seven", "January 1st, 2027"),
        ("december fifteenth", "Dec. 15"),
        ("the twenty first", "the 21st"),
        ("three oh five p m", "3:05 p.m."),
        ("three oh five p m", "3:05PM"),
        ("seven fifteen", "7.15"),
        ("ten o'clock", "10:00"),
        ("fourteen twenty", "1420"),
        ("two thousand nine", "2009"),
        ("nineteen nineties", "1990s"),
        ("twenty four seven", "24/7"),
        ("six point eight seven five percent", "6.875%"),
        ("version two point one point three", "Version 2.1.3"),
        ("minus five degrees celsius", "-5°C"),
        ("one nine two dot one six eight dot zero dot one", "192.168.0.1"),
        ("four one five five five five zero one four two", "(415) 555-0142"),
        ("four one five five five five zero one four two", "415.555.0142"),
        ("x seven k two p nine", "X7K2P9"),
        ("i n c zero zero one", "INC-001"),
        ("s m i t h", "S-M-I-T-H"),
        ("jane dot doe at example dot com", "jane.doe@example.com"),
        ("support at acme dash mail dot org", "support@acme-mail.org"),
        ("w w w dot example dot com slash help", "www.example.com/help"),
        ("seven forty two oak street", "742 Oak St."),
        ("doctor lee and missus jones", "Dr. Lee and Mrs. Jones"),
        ("i've emailed you it's done", "I have e-mailed you. It is done."),
        ("sign up", "signup"),
        ("three to five days", "3 to 5 days"),
    ],
)
def test_equivalent_spellings_have_no_mistakes(spoken: str, written: str) -> None:
    assert score(spoken, written).mistakes == ()


@pytest.mark.parametrize(
    ("spoken", "written", "words"),
    [
        ("zero four one seven", "417", 1),
        ("zero four one seven", "0471", 2),
        ("four eight two one three", "4 8 2 3", 1),
        ("one thousand two hundred", "1,020", 2),
        ("fifteen", "50", 2),
        ("one hundred twenty seven dollars and fifty cents", "$127.15", 2),
        ("one hundred twenty seven dollars and fifty cents", "$127", 3),
        ("five dollars", "5", 1),
        ("three oh five p m", "3:50 p.m.", 2),
        ("three oh five p m", "3:05 a.m.", 1),
        ("six point eight seven five", "6875", 1),
        ("two point five", "2.05", 1),
        ("march third", "March 13th", 1),
        ("the third", "the three", 1),
        ("one point five million", "1.5 billion", 1),
        ("two zero six", "26", 1),
        ("six twenty", "26", 2),
        ("five percent", "five", 1),
        ("minus five", "five", 1),
        ("x seven k", "X7J", 1),
        ("nine a m to five p m", "9am to 5am", 1),
    ],
)
def test_a_wrong_digit_is_a_mistake(spoken: str, written: str, words: int) -> None:
    assert wrong_words(spoken, written) == words


@given(st.text("0123456789", min_size=1, max_size=12), st.text("0123456789", min_size=1, max_size=12))
def test_digit_strings_match_only_if_they_are_equal(first: str, second: str) -> None:
    assert (wrong_words(number_words.digits(first), second) == 0) == (first == second)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_numbers_match_only_if_they_are_equal(first: int, second: int) -> None:
    assert (wrong_words(number_words.cardinal(first), f"{second:,}") == 0) == (first == second)
    assert wrong_words(number_words.cardinal(first), str(first)) == 0


@given(st.integers(0, 99_999), st.integers(1, 99), st.integers(0, 99_999), st.integers(1, 99))
def test_amounts_match_only_if_they_are_equal(units: int, cents: int, others: int, more: int) -> None:
    spoken = f"{number_words.cardinal(units)} dollars and {number_words.cardinal(cents)} cents"
    assert (wrong_words(spoken, f"${others:,}.{more:02}") == 0) == (units == others > 0 and cents == more)


def test_missing_additional_and_changed_words_are_counted() -> None:
    assert wrong_words("please hold the line", "please hold the wine") == 1
    assert wrong_words("please hold the line", "please hold line") == 1
    assert wrong_words("please hold the line", "please do hold the line") == 1
    assert wrong_words("please hold the line", "") == 4
    assert score("please hold the line", "").words == 4


def test_names_are_counted_separately() -> None:
    result = score("thank you missus nguyen for two points", "Thank you Mrs. Ingain for 3 points", ["nguyen"])
    assert (result.words, result.count_wrong(MistakeKind.WORD)) == (6, 1)
    assert (result.names, result.count_wrong(MistakeKind.NAME)) == (1, 1)


def test_a_mistake_contains_the_expected_and_the_recognised_words() -> None:
    (mistake,) = score("code is two two one", "Code is 21.").mistakes
    assert (mistake.expected, mistake.heard, mistake.words) == ("2", "", 1)


def test_differences_are_the_runs_between_common_words() -> None:
    assert differences("a b c d".split(), "a x y d".split()) == [(1, 3, 1, 3)]
    assert differences([], ["a"]) == [(0, 0, 0, 1)]
    assert differences(["a"], ["a"]) == []


def test_sixty_sentences_have_references_in_plain_words() -> None:
    rows = sentences()
    assert len(rows) == len({row.text for row in rows}) == 60
    for row in rows:
        assert all(word.replace("'", "").isalpha() and word.islower() for word in row.reference.split())
        assert set(row.names) <= set(row.reference.split())


def test_word_times_are_compared_for_common_words() -> None:
    words = [Word("Please", 0.0, 0.3, 0, 6), Word("hold", 0.4, 0.6, 7, 11), Word("on.", 0.6, 0.9, 12, 15)]
    heard = [("Please", 0.02), ("uh", 0.3), ("hold", 0.35)]
    assert word_time_errors_ms(words, heard) == pytest.approx([20, 50])


def test_canonical_words_are_lower_case_and_single_digits() -> None:
    assert canonical_words("Call 555-0142, it's $5!") == "call 5 5 5 0 1 4 2 it is 5 dollar".split()


def test_a_word_is_wrong_for_two_recognisers_if_neither_hears_it() -> None:
    reference = "the code is tiger nine"
    one, other = score(reference, "the code is tire nine"), score(reference, "the cold is tire nine")
    assert wrong_for_all([one, other]) == 1
    assert wrong_for_all([one, score(reference, reference)]) == 0
    assert wrong_for_all([one, score(reference, "the cold is tiger nine")]) == 0
