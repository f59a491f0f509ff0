"""Suffixes that follow the sound of the word before them: "TL'ye" is "liraya", "%40'ı" is "yüzde kırkı".

A suffix is written as the sign before it is pronounced by its writer, so that another reading of the sign
needs other vowels, another first consonant, or a buffer letter.
Source: Türk Dil Kurumu, Yazım Kılavuzu (vowel harmony, voicing of consonants, buffer letters).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_VOICED_BY_VOICELESS = {"t": "d", "ç": "c"}
_VOICELESS_BY_VOICED = {"d": "t", "c": "ç"}
_OPEN_VOWELS, _CLOSE_VOWELS = "ae", "ıiuü"
_GENITIVE = re.compile(f"[{_CLOSE_VOWELS}]n")
_LOSES_VOWEL = re.compile(f"[{_CLOSE_VOWELS}](?=nc|m)")  # after a vowel: "iki" and "inci"
_BUFFER = re.compile(f"y|n(?=[{_CLOSE_VOWELS}]n)|s(?=[{_CLOSE_VOWELS}](?!z))|ş(?=[{_OPEN_VOWELS}]r)")


@dataclass(frozen=True, slots=True)
class VowelHarmony:
    """Sounds by which a language joins suffixes to words."""

    vowels: Mapping[str, str]  # by the last vowels of a word, the open and the close vowel after them
    voiceless: str  # consonants after which "d" is "t"
    softened: Mapping[str, str] = field(
        default_factory=dict
    )  # ends of words before a vowel: "dörd" of "dört"
    irregular: Mapping[str, str] = field(default_factory=dict)  # ends of words with other vowels after them

    def join(self, word: str, suffix: str) -> str:
        """Return ``word`` with ``suffix`` in the form that it has after it."""
        vowels = self._vowels_after(word)
        if not vowels:
            return word + suffix
        suffix = self._with_vowels(self._begin(word, suffix.lower(), vowels), vowels)
        if suffix[:1] in _OPEN_VOWELS + _CLOSE_VOWELS:
            end = next((end for end in self.softened if word.endswith(end)), "")
            word = word.removesuffix(end) + self.softened.get(end, "")
        return word + suffix

    def _vowels_after(self, word: str) -> str:
        """Return the open and the close vowel after ``word``; "" if it has no vowel."""
        word = word.lower()
        irregular = next((pair for end, pair in self.irregular.items() if word.endswith(end)), "")
        return irregular or next((self._pair(letter) for letter in reversed(word) if self._pair(letter)), "")

    def _pair(self, letter: str) -> str:
        return next((pair for letters, pair in self.vowels.items() if letter in letters), "")

    def _begin(self, word: str, suffix: str, vowels: str) -> str:
        """Return ``suffix`` with the first letters that it has after ``word``."""
        last = word[-1].lower()
        if self._pair(last):
            return self._begin_after_vowel(suffix)
        suffix = f"{vowels[1]}{suffix}" if suffix.startswith("nc") else _without_buffer(suffix)
        table = _VOICELESS_BY_VOICED if last in self.voiceless else _VOICED_BY_VOICELESS
        return table.get(suffix[:1], suffix[:1]) + suffix[1:]

    def _begin_after_vowel(self, suffix: str) -> str:
        if suffix[:1] not in _OPEN_VOWELS + _CLOSE_VOWELS:
            return _VOICED_BY_VOICELESS.get(suffix[:1], suffix[:1]) + suffix[1:]
        if _LOSES_VOWEL.match(suffix):
            return suffix[1:]
        if suffix in ("ar", "er"):
            return f"ş{suffix}"
        return f"n{suffix}" if _GENITIVE.fullmatch(suffix) else f"y{suffix}"

    def _with_vowels(self, suffix: str, vowels: str) -> str:
        """Return ``suffix`` with vowels that follow each other; "ki" does not change."""
        letters: list[str] = []
        for letter in suffix:
            pair = letter * 2 if letter == "i" and letters[-1:] == ["k"] else vowels
            harmonic = pair[0] if letter in _OPEN_VOWELS else pair[1] if letter in _CLOSE_VOWELS else letter
            letters.append(harmonic)
            vowels = self._pair(harmonic) or vowels
        return "".join(letters)


def _without_buffer(suffix: str) -> str:
    """Return ``suffix`` without the letter that only words with a vowel at their end have before it."""
    buffer = _BUFFER.match(suffix)
    return suffix[buffer.end() :] if buffer else suffix
