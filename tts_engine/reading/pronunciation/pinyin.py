"""Check of Mandarin sounds that people wrote in pinyin with tone digits.

    "Tian1qi4" -> read_pinyin -> "tian1 qi4"

Source: ISO 7098:2015 (syllables).
"""

import re
import unicodedata
from typing import Final

MAX_PINYIN_CHARACTERS: Final = 160  # of one entry
_INITIALS: Final = "zh|ch|sh|[bpmfdtnlgkhjqxrzcsyw]"
_FINALS: Final = (
    "iang|iong|uang|ang|eng|ian|iao|ing|ong|uai|uan|ai|an|ao|ei|en|er|ia|ie|in|iu|ou|ua|ue|ui|un|uo|ve"
    "|a|e|i|o|u|v"
)
SYLLABLE: Final = re.compile(rf"({_INITIALS})?({_FINALS})([1-5])")
_WRITTEN_ALIKE: Final = (("u:", "v"), ("ü", "v"))


class BadPinyin(ValueError):
    """A text is not pinyin; the message has the syllable."""


def read_pinyin(text: str) -> str:
    """Return the syllables, each with its tone 1 to 5, separated by blanks; "v" is "ü".

    A syllable without a digit has the neutral tone, 5. Raises BadPinyin.
    """
    lower = unicodedata.normalize("NFC", text.strip().lower())
    if not lower or len(lower) > MAX_PINYIN_CHARACTERS:
        raise BadPinyin(f"{len(lower)} characters; allowed are 1 to {MAX_PINYIN_CHARACTERS}")
    for written, letter in _WRITTEN_ALIKE:
        lower = lower.replace(written, letter)
    syllables = re.sub(r"(?<=\d)(?=\D)", " ", lower).split()
    toned = [each if each[-1].isdigit() else f"{each}5" for each in syllables]
    for syllable in toned:
        if SYLLABLE.fullmatch(syllable) is None:
            raise BadPinyin(
                f"{text[:40]!r} is not pinyin: {syllable[:12]!r} is no syllable with a tone 1 to 5"
            )
    return " ".join(toned)
