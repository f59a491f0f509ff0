"""Shapes of the mouth: the table, silences between words, movements without gaps however words are split."""

from itertools import pairwise

import pytest

from vivavoce.gateway.apis.kits.visemes import SILENCE, VISEMES, MouthMovement, MouthTimeline
from vivavoce.models.hibari.phonemizer import Phonemizer
from vivavoce.tts_engine.chunk import Phoneme, Word


def word_of(*phonemes: tuple[str, float, float]) -> Word:
    sounds = tuple(Phoneme(*each) for each in phonemes)
    return Word("", sounds[0].start_s, sounds[-1].stop_s, 0, 0, sounds)


HELLO = word_of(("h", 0.1, 0.15), ("ə", 0.15, 0.2), ("l", 0.2, 0.25), ("oʊ", 0.25, 0.4))
THERE = word_of(("ð", 0.5, 0.55), ("ɛ", 0.55, 0.7), ("ɹ", 0.71, 0.8))
MOVEMENTS = [
    MouthMovement("", SILENCE, 0.0, 0.1),
    *(MouthMovement("h", 12, 0.1, 0.15), MouthMovement("ə", 1, 0.15, 0.2)),
    *(MouthMovement("l", 14, 0.2, 0.25), MouthMovement("oʊ", 8, 0.25, 0.4)),
    MouthMovement("", SILENCE, 0.4, 0.5),
    *(MouthMovement("ð", 17, 0.5, 0.55), MouthMovement("ɛ", 4, 0.55, 0.7), MouthMovement("ɹ", 13, 0.7, 0.8)),
    MouthMovement("", SILENCE, 0.8, 0.8),
]


@pytest.mark.parametrize("pushes", [[[HELLO, THERE]], [[HELLO], [], [THERE]]])
def test_movements_have_silences_and_no_gaps_however_the_words_come(pushes: list[list[Word]]) -> None:
    timeline = MouthTimeline()
    movements = [each for words in pushes for each in timeline.push(words)] + timeline.finish()
    assert movements == MOVEMENTS
    assert all(earlier.stop_s == later.start_s for earlier, later in pairwise(movements))


def test_phonemes_that_overlap_follow_one_another() -> None:
    movements = MouthTimeline().push([word_of(("m", 0.0, 0.2)), word_of(("i", 0.1, 0.15), ("t", 0.1, 0.3))])
    assert [(each.phoneme, each.start_s, each.stop_s) for each in movements] == [
        *(("m", 0.0, 0.2), ("i", 0.2, 0.2), ("t", 0.2, 0.3))
    ]


def test_a_voice_without_phonemes_has_no_movements() -> None:
    timeline = MouthTimeline()
    assert timeline.push([Word("one", 0.0, 0.2, 0, 3)]) == [] == timeline.finish()


def test_the_packaged_voice_has_a_viseme_for_each_sound_of_american_english() -> None:
    sounds = "A I O W Y æ ɑ ɔ ə ɛ ɜ i ɪ u ʊ ʌ ᵊ ᵻ b d f h j k l m n p s t v w z ð ŋ ɡ ɹ ʃ ʒ ʤ ʧ θ T ʔ"
    phonemizer = Phonemizer.load()
    ipa = [phonemizer.ipa[phonemizer.phoneme_ids[sign]] for sign in sounds.split()]
    assert [sound for sound in ipa if sound not in VISEMES] == []
    assert {VISEMES[sound] for sound in ipa} == set(range(1, 22))


@pytest.mark.parametrize(
    ("ipa", "viseme"), [("iː", 6), ("ɑ\u0303", 2), ("tʲ", 19), ("ʁ", 20), ("y", 7), ("\u01c3", 1)]
)
def test_marks_of_a_sound_and_sounds_of_other_languages_have_the_nearest_shape(ipa: str, viseme: int) -> None:
    (movement,) = MouthTimeline().push([word_of((ipa, 0.0, 0.1))])
    assert movement.viseme == viseme
