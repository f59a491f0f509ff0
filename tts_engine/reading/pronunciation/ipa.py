"""Check of phonemes that people wrote in the International Phonetic Alphabet.

    "/ʃɪˈvɔːn/" -> read_ipa -> "ʃɪˈvɔːn"

Source: the IPA chart of 2020; Unicode's blocks IPA Extensions, Spacing Modifier Letters and Combining
Diacritical Marks.
"""

import unicodedata
from typing import Final

MAX_IPA_CHARACTERS: Final = 160  # of one entry
_LETTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyz"
    "ɡɐɑɒæɓʙβɔɕçɗɖðʤəɘɚɛɜɝɞɟʄɠɢʛɦɧħɥʜɨɪᵻʝɭɬɫɮʟɱɯɰŋɳɲɴøɵɸθœɶʘɹɺɾɻʀʁɽʂʃʈʧʉʊʋⱱʌɣɤʍχʎʏʑʐʒʔʡʕʢǀǁǂǃʦʣʨʥ"
)
_MODIFIERS: Final = frozenset("ˈˌːˑˠˤʰʱʲʷʼˡⁿᵊ˞|‖↗↘")
_TIES: Final = dict.fromkeys(map(ord, "͜͡"))  # "t͡ʃ" is "tʃ"
_WRITTEN_ALIKE: Final = str.maketrans({":": "ː", "'": "ˈ", "’": "ˈ", ",": "ˌ", "g": "ɡ"})
_SEPARATORS: Final = dict.fromkeys(map(ord, ".‿"))  # between syllables, and between linked words


class BadIpa(ValueError):
    """A text is not IPA; the message names the character."""


def read_ipa(text: str) -> str:
    """Return the phonemes without slashes, ties and syllable stops, words separated by a blank.

    A colon and an apostrophe stand for the marks of length and stress. Raises BadIpa.
    """
    inner = unicodedata.normalize("NFD", text.strip())
    for first, last in ("//", "[]"):
        if len(inner) > 1 and inner[0] == first and inner[-1] == last:
            inner = inner[1:-1]
    # The cedilla of "ç" is part of a letter; other combining marks modify one.
    phonemes = inner.replace("c\u0327", "ç").translate(_WRITTEN_ALIKE).translate(_TIES).translate(_SEPARATORS)
    words = phonemes.split()
    if len(text) > MAX_IPA_CHARACTERS:
        raise BadIpa(f"{len(text)} characters; at most {MAX_IPA_CHARACTERS} are allowed")
    for character in "".join(words):
        known = character in _LETTERS or character in _MODIFIERS
        if not known and unicodedata.category(character) != "Mn":
            raise BadIpa(f"{text[:40]!r} is not IPA: {character!r} is none of its signs")
    if not any(character in _LETTERS for character in "".join(words)):
        raise BadIpa(f"{text[:40]!r} is not IPA: it has no sound")
    return " ".join(words)
