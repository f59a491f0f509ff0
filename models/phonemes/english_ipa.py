"""IPA in the sounds of American English, for voices that learnt them only.

    "ʃɪˈvɔːn" -> "ʃɪvˈɔn"

The alphabet has diphthongs and affricates as one sign, no length, and stress before the vowel instead of the
syllable. A sound of another language becomes the nearest English one. A word without a mark of stress is
stressed on its first vowel, as the voice's own words are.
Source: the alphabet is misaki's (https://github.com/hexgrad/misaki, EN_PHONES.md).
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class SpelledWord:
    """A word as it is spoken."""

    text: str  # letters and apostrophes
    punctuation: str = ""  # after the word: "" or one of ,.?!;:—
    phonemes: str | None = None  # IPA to be spoken instead; "": the word before includes this one


class EnglishPhonemizer(Protocol):
    """Reads American English in the alphabet."""

    @property
    def phoneme_ids(self) -> Mapping[str, int]:
        """The alphabet."""

    @property
    def missing(self) -> set[str]:
        """Signs of IPA so far that the alphabet has nothing for; they are left out."""

    def word_phonemes(self, words: Sequence[SpelledWord]) -> list[str]:
        """The phonemes of each word, with the punctuation after it."""


STRESS_MARKS: Final = "ˈˌ"
# Signs of the alphabet that are not IPA or that stand for two sounds.
IPA_OF_SIGNS: Final[Mapping[str, str]] = {
    **{"A": "eɪ", "I": "aɪ", "O": "oʊ", "W": "aʊ", "Y": "ɔɪ", "ʤ": "dʒ", "ʧ": "tʃ"},
    **{"T": "ɾ", "ᵊ": "ə", "ᵻ": "ɪ"},
}
_VOWELS: Final = "AIOWYæɑɔəɛɜiɪuʊʌᵊᵻ"
_CONSONANTS: Final = "bdfhjklmnpstvwzðŋɡɹɾʃʒʤʧθTʔ"
_STRESS: Final = STRESS_MARKS
# Sounds of English, the longer first; then those of other languages, by the nearest of English.
_ENGLISH: Final = {
    **{"tʃ": "ʧ", "dʒ": "ʤ", "eɪ": "A", "aɪ": "I", "oʊ": "O", "əʊ": "O", "aʊ": "W", "ɔɪ": "Y"},
    **{"ɜːɹ": "ɜɹ", "ɜɹ": "ɜɹ", "ɜː": "ɜɹ", "ɜ": "ɜɹ", "ɝ": "ɜɹ", "ɚ": "əɹ", "əɹ": "əɹ", "ɐ": "ə"},
    **{"e": "ɛ", "a": "ɑ", "ɒ": "ɑ", "o": "O", "g": "ɡ", "ɫ": "l", "ʍ": "w", "ɾ": "T"},
    **{"i\u032f": "j", "u\u032f": "w", "ə\u0329": "ə", "l\u0329": "ᵊl", "n\u0329": "ᵊn", "m\u0329": "ᵊm"},
}
_FOREIGN: Final = {
    **{
        "ts": "ts",
        "dz": "dz",
        "tɕ": "ʧ",
        "dʑ": "ʤ",
        "ɕ": "ʃ",
        "ʑ": "ʒ",
        "ʂ": "ʃ",
        "ʐ": "ʒ",
        "ç": "h",
        "x": "h",
    },
    **{"χ": "h", "ħ": "h", "ɦ": "h", "ʁ": "ɹ", "ʀ": "ɹ", "ɻ": "ɹ", "ɺ": "l", "ɽ": "T", "ɬ": "l", "ɮ": "l"},
    **{"ɭ": "l", "ʎ": "lj", "ʟ": "l", "ɲ": "nj", "ɳ": "n", "ɴ": "ŋ", "ɱ": "m", "β": "b", "ɓ": "b", "ɸ": "f"},
    **{"ʋ": "v", "ⱱ": "v", "ɗ": "d", "ɖ": "d", "ʈ": "t", "c": "k", "ɟ": "ɡ", "q": "k", "ɢ": "ɡ", "ɣ": "ɡ"},
    **{"ʝ": "j", "ɥ": "j", "ɰ": "w", "ʦ": "ts", "ʣ": "dz", "ʨ": "ʧ", "ʥ": "ʤ", "y": "u", "ʏ": "ʊ", "ø": "ɜɹ"},
    **{"œ": "ɜɹ", "ɶ": "æ", "ɯ": "u", "ɨ": "ɪ", "ʉ": "u", "ɵ": "ə", "ɘ": "ə", "ɤ": "ʌ", "ɞ": "ʌ"},
}
_SOUNDS: Final = _FOREIGN | _ENGLISH | {sound: sound for sound in _VOWELS[5:] + _CONSONANTS}
_NASAL_VOWEL: Final = re.compile("([^\\W\\d_])\u0303(ː?)")
_SOUND: Final = re.compile("|".join(sorted(map(re.escape, _SOUNDS), key=len, reverse=True)))
_SILENT: Final = "ːˑʰʲʷˤˠˡⁿʱʼ˞|‖↗↘ "
_BEFORE_VOWEL: Final = re.compile(rf"([{_STRESS}])([{_CONSONANTS}]*)(?=[{_VOWELS}])")
_FIRST_VOWEL: Final = re.compile(rf"[{_VOWELS}]")


def from_ipa(phonemes: str) -> tuple[str, set[str]]:
    """Return a word's phonemes in the voice's alphabet, and the signs that it has nothing for.

    phonemes: IPA without slashes and ties; several words are joined to one.
    """
    # A nasal vowel is a vowel and "n", as English speakers say "restaurant".
    letters = unicodedata.normalize("NFD", phonemes).replace("c\u0327", "ç").replace("r", "ɹ")
    rest = _NASAL_VOWEL.sub(r"\1\2n", letters)
    found, missing, at = [], set(), 0
    while at < len(rest):
        sound = _SOUND.match(rest, at)
        if sound is not None:
            found.append(_SOUNDS[sound.group()])
        elif rest[at] in _STRESS:
            found.append(rest[at])
        elif rest[at] not in _SILENT and unicodedata.category(rest[at]) != "Mn":
            missing.add(rest[at])
        at = at + 1 if sound is None else sound.end()
    word = _BEFORE_VOWEL.sub(r"\2\1", "".join(found))
    if word and not any(mark in word for mark in _STRESS):
        word = _FIRST_VOWEL.sub(r"ˈ\g<0>", word, count=1)
    return word, missing
