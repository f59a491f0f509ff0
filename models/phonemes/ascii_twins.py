"""Spellings in ASCII letters under which a lexicon may list a word with accents: "Zoë", "Zoe".

An accent may also make another word of it: "résumé" is not "resume". Such words are told by the sounds of the
ASCII spelling, ``is_twin``.
"""

import re
import unicodedata
from typing import Final

# Letters that Unicode does not compose of a letter and a mark.
_LETTERS: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ß": "ss", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d", "ı": "i"}
    | {"Ø": "O", "Ł": "L", "Đ": "D", "ẞ": "SS", "Æ": "Ae", "Œ": "Oe", "Þ": "Th", "Ð": "D"}
)
_UMLAUTS: Final = str.maketrans(
    {
        "ä": "ae",
        "ö": "oe",
        "ü": "ue",
        "ø": "oe",
        "å": "aa",
        "Ä": "Ae",
        "Ö": "Oe",
        "Ü": "Ue",
        "Ø": "Oe",
        "Å": "Aa",
    }
)
# Letters that change the word, and the sounds by which an ASCII spelling has them all the same.
_HEARD: Final = (
    (re.compile("ée?$"), re.compile("[AIOWYæɑɔəɛɜiɪuʊʌᵊᵻ]$")),
    (re.compile("ée?'?s$"), re.compile("[AIOWYæɑɔəɛɜiɪuʊʌᵊᵻ]z$")),
    (re.compile("ñ"), re.compile("[nN]j|nˈ?[iɪ]ˈ?[oOɑəæ]")),
    (re.compile("^[^ckq]*ç[^ckq]*$"), re.compile("^[^k]*$")),
    (re.compile("ł"), re.compile("[wWO]")),
    (re.compile("ã[oe]"), re.compile("[Wuw]|n$")),
)


def ascii_twins(word: str) -> tuple[str, ...]:
    """The ASCII spellings of a word with accents, the likeliest first; none for other letters than Latin."""
    composed = unicodedata.normalize("NFC", word)
    spellings = (composed, composed.translate(_UMLAUTS))
    twins = dict.fromkeys(map(without_marks, spellings))
    return tuple(twin for twin in twins if twin.isascii())


def without_marks(word: str) -> str:
    """Replace Latin letters by the nearest of ASCII, one by one."""
    letters = unicodedata.normalize("NFD", word.translate(_LETTERS))
    return "".join(letter for letter in letters if unicodedata.category(letter) != "Mn")


def is_twin(word: str, phonemes: str) -> bool:
    """Whether phonemes of its ASCII spelling, in Kokoro's alphabet, can be those of a word with accents."""
    letters = unicodedata.normalize("NFC", word).lower()
    return all(sounds.search(phonemes) for spelling, sounds in _HEARD if spelling.search(letters))
