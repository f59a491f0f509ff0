"""ASCII spellings of words with accents."""

import unicodedata

import pytest

from vivavoce.models.phonemes.ascii_twins import ascii_twins, is_twin, without_marks


@pytest.mark.parametrize(
    ("word", "twins"),
    [
        ("Zoë", ("Zoe",)),
        ("Müller", ("Muller", "Mueller")),
        ("Søren", ("Soren", "Soeren")),
        ("Łukasz", ("Lukasz",)),
        ("Đặng", ("Dang",)),
        ("Strauß", ("Strauss",)),
        ("Þórðar", ("Thordar",)),
        ("Œdipe", ("Oedipe",)),
        ("Ιωάννης", ()),
    ],
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_twin_has_no_marks(word: str, twins: tuple[str, ...], form: str) -> None:
    assert ascii_twins(unicodedata.normalize(form, word)) == twins


def test_marks_without_a_letter_vanish() -> None:
    assert without_marks("\u0301e\u0323\u0302n") == "en"


@pytest.mark.parametrize(
    ("word", "phonemes", "is_one"),
    [
        ("café", "kæfˈA", True),
        ("cafés", "kæfˈAz", True),
        ("rosé", "ɹˈOz", False),
        ("peña", "pˈɛnə", False),
        ("piñata", "pinjˈɑTə", True),
        ("Gonçalves", "ɡOnkˈɑlvɛs", False),
        ("façade", "fəsˈɑd", True),
        ("Wałęsa", "vɑlˈɛsə", False),
    ],
)
def test_a_twin_with_other_sounds_than_the_accents_ask_for_is_none(
    word: str, phonemes: str, *, is_one: bool
) -> None:
    assert is_twin(word, phonemes) is is_one
