"""Names that the packaged voice's lexicons lack: the words of CMUdict, and how they reach the voice."""

import random

from vivavoce.models.hibari.phonemizer import Phonemizer
from vivavoce.models.hibari.prepared_files import read_names, read_words
from vivavoce.models.phonemes.english_ipa import SpelledWord


def test_every_sound_of_the_words_is_in_the_voice_s_alphabet() -> None:
    phonemizer = Phonemizer.load()
    sounds = {sound for phonemes in (read_words() | read_names()).values() for sound in phonemes}
    assert sounds - phonemizer.phoneme_ids.keys() == set()


def test_of_500_names_outside_the_lexicons_at_most_1_in_50_is_said_unlike_cmudict() -> None:
    words = read_words()
    names = random.Random(0).sample(sorted(words.keys() - read_names().keys()), 500)
    assert len(_said_otherwise(names, words)) <= 10


def test_brands_medicines_and_places_are_said_as_written_by_hand() -> None:
    names = read_names()
    assert _said_otherwise(list(names), names) == []


def _said_otherwise(names: list[str], expected: dict[str, str]) -> list[tuple[str, str]]:
    """Return the names whose sounds, stress aside, differ from the expected ones, and how they are said."""
    phonemizer = Phonemizer.load()
    said = [phonemizer.word_phonemes([SpelledWord(name.capitalize())])[0].strip() for name in names]
    return [
        (name, sounds)
        for name, sounds in zip(names, said, strict=True)
        if _without_stress(sounds) != _without_stress(expected[name])
    ]


def _without_stress(phonemes: str) -> str:
    return phonemes.translate(str.maketrans("ɾ", "T", "ˈˌ"))  # the voice's two signs of a flap
