"""Names that the packaged voice's lexicons lack: accents, origins, neighbours, and other words as before."""

import unicodedata
from pathlib import Path

import pytest

from vivavoce.models.hibari.phonemizer import Phonemizer
from vivavoce.models.phonemes.english_ipa import SpelledWord, from_ipa

LISTS = ("names_by_origin.txt", "more_names_by_origin.txt", "kept_names_by_origin.txt")
# Stress, and sounds that one American has two of and another one has one of.
_SAME = str.maketrans({"ʌ": "ə", "ᵊ": "ə", "ᵻ": "ɪ", "T": "t", "ɔ": "ɑ"} | dict.fromkeys("ˈˌ "))


@pytest.fixture(scope="module")
def phonemizer() -> Phonemizer:
    return Phonemizer.load()


def said(phonemizer: Phonemizer, text: str) -> list[str]:
    return phonemizer.word_phonemes([SpelledWord(word) for word in text.split()])


def sounds_wrong(said: str, expected: str) -> int:
    """The edit distance."""
    row = list(range(len(expected) + 1))
    for done, sound in enumerate(said, 1):
        before, row[0] = row[0], done
        for place, other in enumerate(expected, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (sound != other)),
            )
    return row[-1]


@pytest.mark.parametrize("file", LISTS)
def test_of_names_of_ten_origins_at_most_one_in_ten_has_two_sounds_wrong(
    phonemizer: Phonemizer, file: str
) -> None:
    rows = Path(__file__).with_name(file).read_text("utf-8").splitlines()
    lines = [line.split(" ", 1) for line in rows if line[0] != "#"]
    wrong = []
    for name, ways in lines:
        sounds = "".join(said(phonemizer, name)).translate(_SAME)
        expected = [from_ipa(way)[0].translate(_SAME) for way in ways.split("|")]
        if min(sounds_wrong(sounds, way) for way in expected) >= 2:
            wrong.append((name, sounds, expected))
    assert len(lines) >= 100
    assert len(wrong) <= len(lines) / 10, wrong


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("Zoë", "Zoe"),
        ("Zürich", "Zurich"),
        ("Québec", "Quebec"),
        ("jalapeño", "jalapeno"),
        ("naïve", "naive"),
    ],
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_word_with_accents_sounds_as_without_in_either_form(
    phonemizer: Phonemizer, name: str, twin: str, form: str
) -> None:
    assert said(phonemizer, unicodedata.normalize(form, name)) == said(phonemizer, twin)
    assert said(phonemizer, unicodedata.normalize(form, name.upper())) == said(phonemizer, twin.capitalize())


@pytest.mark.parametrize("pair", ["résumé resume", "rosé rose", "exposé expose", "pâté pate", "Peña Pena"])
def test_an_accent_that_makes_another_word_of_it_is_heard(phonemizer: Phonemizer, pair: str) -> None:
    accented, plain = said(phonemizer, pair)
    assert accented != plain


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Jean Luc", "ʒˈɑn lˈuk"),
        ("Jean-Luc", "ʒˈɑnlˈuk"),
        ("Jean Grey", "ʤˈin ɡɹˈA"),
        ("Thank Jesus", "θˈæŋk ʤˈizəs"),
        ("Jesus Garcia", "hAsˈus ɡˌɑɹsˈiə"),
        ("Xi Jinping", "ʃˈi ʤɪnpˈɪŋ"),
        ("Juan Ibarrola", "wˈɑn ˌibəɹˈOlə"),
        ("Olumide's", "ˌOlumˈidAz"),
        ("Zoë's", "zˈOiz"),
    ],
)
def test_a_name_is_read_in_its_company(phonemizer: Phonemizer, text: str, phonemes: str) -> None:
    assert " ".join(said(phonemizer, text)) == phonemes


def test_a_comma_ends_the_company_of_a_name(phonemizer: Phonemizer) -> None:
    (jean, _) = phonemizer.word_phonemes([SpelledWord("Jean", ","), SpelledWord("Luc")])
    assert jean == "ʤˈin,"


def test_words_in_lower_case_and_names_without_a_cue_are_left_to_the_network(phonemizer: Phonemizer) -> None:
    for word in ("olumide", "wojciechowo", "Blorptrand", "Vivavoce"):
        assert said(phonemizer, word) == [phonemizer._g2p.oov(word)]


@pytest.mark.parametrize(
    "text", ["Z̈́̈́oë́", "ñ" * 5_000, "É" * 5_000, "Aoi" * 3_000, "Xi" * 3_000, "\u0301\u0301", "日本 Ñandú"]
)
def test_marks_in_any_order_and_endless_names_are_read(phonemizer: Phonemizer, text: str) -> None:
    assert len(said(phonemizer, text)) == len(text.split())
