"""IPA in the packaged voice: its own pronunciation of words, written in IPA, comes back as it was."""

import pytest

from vivavoce.models.hibari.phonemizer import Phonemizer
from vivavoce.models.phonemes.english_ipa import SpelledWord, from_ipa


@pytest.fixture(scope="module")
def phonemizer() -> Phonemizer:
    return Phonemizer.load()


# As dictionaries print American English.
DICTIONARY = {
    "church": "tʃɝtʃ",
    "judge": "/dʒʌdʒ/",
    "hello": "həˈloʊ",
    "about": "əˈbaʊt",
    "boy": "bɔɪ",
    "time": "taɪm",
    "day": "deɪ",
    "father": "ˈfɑːðɚ",
    "thought": "θɔːt",
    "bread": "bred",
    "nurse": "nɜːrs",
    "measure": "ˈmɛʒər",
    "sing": "sɪŋ",
    "cat": "kæt",
    "yellow": "ˈjɛloʊ",
}


@pytest.mark.parametrize(("word", "ipa"), DICTIONARY.items())
def test_a_dictionarys_ipa_is_what_the_voice_says(phonemizer: Phonemizer, word: str, ipa: str) -> None:
    (own,) = phonemizer.word_phonemes([SpelledWord(word)])
    assert from_ipa(ipa.strip("/")) == (own, set())


@pytest.mark.parametrize(
    ("ipa", "phonemes"),
    [
        ("ʃɪˈvɔːn", "ʃɪvˈɔn"),
        ("bɔ̃ˈʒuʁ", "bɔnʒˈuɹ"),
        ("ˈmʏnçən", "mˈʊnhən"),
        ("ˌkælɪˈfɔrnjə", "kˌælɪfˈɔɹnjə"),
        ("ˈbɒtl̩", "bˈɑtᵊl"),
        ("ŋwiən", "ŋwˈiən"),
    ],
)
def test_stress_moves_to_the_vowel_and_foreign_sounds_become_english(ipa: str, phonemes: str) -> None:
    assert from_ipa(ipa) == (phonemes, set())


def test_a_sound_without_a_neighbour_is_left_out_and_named(phonemizer: Phonemizer) -> None:
    spoken = phonemizer.word_phonemes([SpelledWord("click", ",", "kǃɪk"), SpelledWord("on", ".")])
    assert spoken[0] == "kˈɪk,"
    assert phonemizer.missing == {"ǃ"}


def test_words_around_phonemes_stay_as_they_are(phonemizer: Phonemizer) -> None:
    words = [SpelledWord(word) for word in "Ask about New York City today".split()]
    plain = phonemizer.word_phonemes(words)
    words[2:4] = [SpelledWord("New", "", "nuː jɔːk"), SpelledWord("York", "", "")]
    assert phonemizer.word_phonemes(words) == [*plain[:2], "nˈujɔk", "", *plain[4:]]
