"""Names that the packaged voice's lexicons lack: the words of CMUdict, and how they reach the voice."""

import pytest

from vivavoce.models.hibari.cmudict import from_arpabet, read_words
from vivavoce.models.hibari.voice import Phonemizer, SpelledWord


@pytest.mark.parametrize(
    ("arpabet", "phonemes"),
    [
        ("K AO0 W AA1 L S K IY0", "kɔwˈɑlski"),
        ("B AH0 N AE1 N AH0", "bənˈænə"),
        ("W AO1 T ER0", "wˈɔɾəɹ"),
        ("AH0 T EH1 N D", "ətˈɛnd"),
        ("CH AH1 R CH IH2 L", "ʧˈʌɹʧˌɪl"),
        ("TH IH1 NG", "θˈɪŋ"),
        ("HH Y UW1 JH", "hjˈuʤ"),
    ],
)
def test_sounds_are_those_of_the_alphabet(arpabet: str, phonemes: str) -> None:
    assert from_arpabet(arpabet.split()) == phonemes


def test_every_sound_of_the_words_is_in_the_voice_s_alphabet() -> None:
    phonemizer = Phonemizer.load()
    sounds = {sound for phonemes in read_words().values() for sound in phonemes}
    assert sounds - phonemizer.phoneme_ids.keys() == set()


def test_a_name_outside_the_lexicons_is_said_as_in_cmudict() -> None:
    phonemizer = Phonemizer.load()
    words = read_words()
    names = ["matulich", "luedtke", "bernacki", "pevey"]
    spoken = phonemizer.word_phonemes([SpelledWord(name.capitalize()) for name in names])
    assert [phonemes.strip() for phonemes in spoken] == [words[name] for name in names]
