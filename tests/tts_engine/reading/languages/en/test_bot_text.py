"""Normalisation of English text as bots write it: cases by class, pauses inside codes, and reading styles."""

from pathlib import Path

import pytest

from vivavoce.tts_engine.reading.language import READING_STYLES, ReadingStyle
from vivavoce.tts_engine.reading.languages.en import vocabulary
from vivavoce.tts_engine.reading.languages.en.rules import EnglishClauseNormalizer, normalize
from vivavoce.tts_engine.reading.normalizer import SpokenWord, TextNormalizer

LETTERS = {name: letter for letter, name in vocabulary.LETTER_NAMES.items()}
FOLDER = Path(__file__).parent


def read_cases(name: str) -> list[tuple[str, str]]:
    """Return the rows "written -> reading" of a file."""
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    rows = [line.split(" -> ") for line in lines if line and not line.startswith("#")]
    return [(written, reading) for written, reading in rows]


CASES = read_cases("bot_text_classes.txt")
SENTENCES = read_cases("bot_sentences.txt")


def spoken(text: str, style: ReadingStyle = READING_STYLES["en-US"]) -> str:
    """Return the spoken words with their pauses, and the names of letters as capitals."""
    return " ".join(
        LETTERS.get(word.text, word.text) + word.punctuation for word in normalize(text, style=style)
    )


def plain_words(text: str) -> list[str]:
    return text.translate(str.maketrans(dict.fromkeys(",.?!;:—", " "))).lower().split()


def push_characters(text: str) -> list[SpokenWord]:
    """Return the words of a text that arrives one character at a time."""
    normalizer = TextNormalizer(EnglishClauseNormalizer())
    clauses = [clause for character in text for clause in normalizer.push(character)]
    return [word for clause in (*clauses, *normalizer.flush()) for word in clause.words]


@pytest.mark.parametrize(("written", "reading"), [*CASES, *SENTENCES])
def test_bot_text_is_read_as_a_careful_person_reads_it(written: str, reading: str) -> None:
    assert plain_words(spoken(written)) in [plain_words(one) for one in reading.split(" | ")]


@pytest.mark.parametrize("written", [written for written, _ in (*CASES, *SENTENCES)])
def test_bot_text_is_read_the_same_character_by_character(written: str) -> None:
    assert push_characters(written) == normalize(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            "VIN 1HGCM82633A004352",
            "vin one H G, C M eight, two six three, three A zero zero, four three five two",
        ),
        ("plate AB12 CDE", "plate A B one two, C D E"),
        ("London SW1A 2AA", "London S W one A, two A A"),
        ("policy no. A-113/22", "policy number A, one one three slash two two"),
        ("Call 029 2037 4000.", "Call zero two nine, two zero three seven, four zero zero zero."),
        ("serial C02XK1ABJGH5", "serial C zero two X, K one A B, J G H five"),
        ("Mon/Wed/Fri", "Monday, Wednesday, Friday"),
    ],
)
def test_a_long_code_has_a_pause_between_its_groups(written: str, expected: str) -> None:
    assert spoken(written) == expected


@pytest.mark.parametrize(
    ("locale", "written", "expected"),
    [
        ("en-US", "on 3/4/2026", "on March fourth twenty twenty six"),
        ("en-GB", "on 3/4/2026", "on the third of April twenty twenty six"),
        ("en-GB", "on 3/14/2026", "on March fourteenth twenty twenty six"),
        ("en-GB", "Mon 3/4", "Monday the third of April"),
        ("en-GB", "by 25/12", "by the twenty fifth of December"),
        ("en-GB", "add 1/2 cup", "add one half cup"),
        ("en-GB", "PIN 0417", "pin oh four one seven"),
        ("en-IN", "PIN 0417 by 3/4", "pin zero four one seven by the third of April"),
        ("en-AU", "call 0412 345 678", "call oh four one two, three four five, six seven eight"),
        ("en-GB", "It is 0 degrees.", "It is zero degrees."),
    ],
)
def test_the_locale_decides_the_order_of_dates_and_the_name_of_0(
    locale: str, written: str, expected: str
) -> None:
    assert spoken(written, READING_STYLES[locale]) == expected


def test_letters_spelled_with_words_have_a_pause_between_them() -> None:
    assert spoken("It is M as in Mary B as in boy 7.") == "It is M, as in Mary, B as in boy, seven."


@pytest.mark.parametrize(
    "written",
    [
        "Turn left on MLK Jr. Blvd. at the light.",
        "Part no. WRX is here now.",
        "She has a B.Sc. in biology today.",
        "It is 6 in. wide and tall.",
        "The card exp. 12/25 is fine.",
        "Go 2 mi. on the highway.",
    ],
)
def test_no_clause_ends_inside_an_abbreviated_phrase(written: str) -> None:
    normalizer = TextNormalizer(EnglishClauseNormalizer())
    clauses = [clause for character in written for clause in normalizer.push(character)]
    assert len([*clauses, *normalizer.flush()]) == 1
