"""Check of Mandarin sounds that people wrote in pinyin with tone digits, and tone marks in their place.

    "tian1 qi4" -> read_pinyin -> "tian1 qi4" -> with_tone_mark -> ("t", "iān"), ("q", "ì")

Source: ISO 7098:2015 (syllables, and the vowel that has the mark).
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from ..normalizer import SpokenWord

MAX_PINYIN_CHARACTERS: Final = 160  # of one entry
_INITIALS: Final = "zh|ch|sh|[bpmfdtnlgkhjqxrzcsyw]"
_FINALS: Final = (
    "iang|iong|uang|ang|eng|ian|iao|ing|ong|uai|uan|ai|an|ao|ei|en|er|ia|ie|in|iu|ou|ua|ue|ui|un|uo|ve"
    "|a|e|i|o|u|v"
)
_SYLLABLE: Final = re.compile(rf"({_INITIALS})?({_FINALS})([1-5])")
_WRITTEN_ALIKE: Final = (("u:", "v"), ("ü", "v"))
_TONE_MARKS: Final = {"1": "\u0304", "2": "\u0301", "3": "\u030c", "4": "\u0300", "5": ""}
_MARKED_VOWEL: Final = re.compile(r"a|e|o(?=u)|[iouv](?=[^aeiouv]*\Z)")


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
        if _SYLLABLE.fullmatch(syllable) is None:
            raise BadPinyin(
                f"{text[:40]!r} is not pinyin: {syllable[:12]!r} is no syllable with a tone 1 to 5"
            )
    return " ".join(toned)


def with_tone_mark(syllable: str) -> tuple[str, str]:
    """Return the initial, or "", and the final with its tone mark of a syllable of ``read_pinyin``."""
    match = _SYLLABLE.fullmatch(syllable)
    if match is None:
        raise BadPinyin(f"{syllable[:12]!r} is no syllable of read_pinyin")
    initial, final, tone = match.groups("")
    marked = _MARKED_VOWEL.sub(lambda vowel: vowel[0] + _TONE_MARKS[tone], final, count=1)
    return initial, unicodedata.normalize("NFC", marked.replace("v", "ü"))


def with_pinyin(words: Iterable[SpokenWord], write: Callable[[str], str]) -> tuple[SpokenWord, ...]:
    """Return the words, those with pinyin as ``write`` has it; successive ones are one word, without a blank.

    write: from syllables such as "tian1 qi4"; "" leaves the word as it is.
    """
    found: list[SpokenWord] = []
    follows_pinyin = False
    for word in words:
        text = write(word.pinyin) if word.pinyin else ""
        is_said_before = word.pinyin == "" and follows_pinyin
        if not text and not is_said_before:
            found.append(word)
            follows_pinyin = False
        elif is_said_before or (follows_pinyin and not found[-1].punctuation):
            joined = found[-1].text + text
            found[-1] = replace(found[-1], text=joined, punctuation=word.punctuation, stop=word.stop)
        else:
            found.append(replace(word, text=text))
            follows_pinyin = True
    return tuple(found)
