"""Sounds of a word from the signs of a network: stress, length and diacritics."""

import pytest

from vivavoce.models.phonemes.timed_sounds import earlier, timed_sounds


@pytest.mark.parametrize(
    ("signs", "sounds"),
    [
        ("kæt", [("k", 0, 1), ("æ", 1, 2), ("t", 2, 3)]),
        ("ˈkɑː", [("k", 0, 2), ("ɑː", 2, 4)]),  # stress lends its time to the sound after it
        ("əˌɹaʊ", [("ə", 0, 1), ("ɹ", 1, 3), ("a", 3, 4), ("ʊ", 4, 5)]),
        ("ɑ\u0303t", [("ɑ\u0303", 0, 2), ("t", 2, 3)]),
        ("tʲi", [("tʲ", 0, 2), ("i", 2, 3)]),
        ("ˈ", []),
        ("", []),
    ],
)
def test_marks_belong_to_their_sounds(signs: str, sounds: list[tuple[str, int, int]]) -> None:
    times = range(len(signs))
    assert timed_sounds(list(signs), times, [time + 1 for time in times]) == tuple(sounds)


def test_a_sign_without_a_sound_lends_its_time() -> None:
    assert timed_sounds(["", "tʃ"], [0.5, 0.75], [0.75, 1.0]) == (("tʃ", 0.5, 1.0),)


def test_sounds_of_words_are_moved_together() -> None:
    words = ((("k", 5, 6), ("æ", 6, 8)), (), (("t", 8, 9),))
    assert earlier(words, 5) == ((("k", 0, 1), ("æ", 1, 3)), (), (("t", 3, 4),))
