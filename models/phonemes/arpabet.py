"""ARPABET, the alphabet of CMUdict and of CosyVoice 3's marks of English sounds, and Kokoro's alphabet.

    K AO0 W AA1 L S K IY0  <->  kɔwˈɑlski

Kokoro's alphabet is that of the packaged voice and of ``english_ipa``: diphthongs and affricates are one
sign, and a mark of stress stands before its vowel instead of a digit after it.
Source: CMUdict 1.1.3 of Carnegie Mellon University, cmudict.phones and cmudict.symbols.
"""

import re
from collections.abc import Sequence
from typing import Final

_VOWELS: Final = {
    "AA": "ɑ",
    "AE": "æ",
    "AH": "ʌ",
    "AO": "ɔ",
    "AW": "W",
    "AY": "I",
    "EH": "ɛ",
    "ER": "ɜɹ",
    "EY": "A",
    "IH": "ɪ",
    "IY": "i",
    "OW": "O",
    "OY": "Y",
    "UH": "ʊ",
    "UW": "u",
}
_REDUCED_VOWELS: Final = {"AH": "ə", "ER": "əɹ"}  # without stress
_CONSONANTS: Final = {
    "CH": "ʧ",
    "DH": "ð",
    "G": "ɡ",
    "HH": "h",
    "JH": "ʤ",
    "NG": "ŋ",
    "R": "ɹ",
    "SH": "ʃ",
    "TH": "θ",
    "Y": "j",
    "ZH": "ʒ",
}  # the others are the same letter in lower case
_STRESSES: Final = {"0": "", "1": "ˈ", "2": "ˌ"}

_DIGITS: Final = {mark: digit for digit, mark in _STRESSES.items()}
# Signs beside those above: reduced vowels, and ways to say T.
_VOWEL_NAMES: Final = {
    **{sound: name for table in (_VOWELS, _REDUCED_VOWELS) for name, sound in table.items()},
    **{"ᵊ": "AH", "ᵻ": "IH"},
}
_CONSONANT_NAMES: Final = {
    **{letter: letter.upper() for letter in "bdfklmnpstvwz"},
    **{sound: name for name, sound in _CONSONANTS.items()},
    **{"ɾ": "T", "T": "T", "ʔ": "T"},
}
# "əɹ" before a stressed vowel is two sounds, as in "aroma".
_SOUND: Final = re.compile(r"([ˈˌ]?)(əɹ(?![ˈˌ])|ɜɹ|[^ˈˌ])")


def from_arpabet(sounds: Sequence[str]) -> str:
    """Return ARPABET sounds such as ["K", "AO0", "L"] in Kokoro's alphabet; a T between vowels is a flap.

    Raises KeyError for a vowel without its digit of stress.
    """
    return "".join(_sound(sounds, index) for index in range(len(sounds)))


def to_arpabet(phonemes: str) -> list[str]:
    """Return the ARPABET sounds of a word in Kokoro's alphabet; signs that are no sound are left out."""
    sounds = []
    for stress, sound in _SOUND.findall(phonemes):
        if sound in _VOWEL_NAMES:
            sounds.append(_VOWEL_NAMES[sound] + _DIGITS[stress])
        elif sound in _CONSONANT_NAMES:
            sounds.append(_CONSONANT_NAMES[sound])
    return sounds


def _sound(sounds: Sequence[str], index: int) -> str:
    sound = sounds[index]
    if sound[-1].isdigit():
        name, stress = sound[:-1], sound[-1]
        reduced = _REDUCED_VOWELS.get(name) if stress == "0" else None
        return _STRESSES[stress] + (reduced or _VOWELS[name])
    after = sounds[index + 1] if index + 1 < len(sounds) else ""
    if sound == "T" and index and sounds[index - 1][-1].isdigit() and after.endswith("0"):
        return "ɾ"  # a flap
    return _CONSONANTS.get(sound, sound.lower())
