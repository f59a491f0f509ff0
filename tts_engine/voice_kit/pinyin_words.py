"""Words that are said as pinyin, for voices that take it: tone marks in the place of tone digits.

    "tian1 qi4" -> with_tone_mark -> ("t", "iān"), ("q", "ì")

Source: ISO 7098:2015 (the vowel that has the mark).
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from ..reading.pronunciation.pinyin import SYLLABLE, BadPinyin
from ..segmenter import SpokenWord

_TONE_MARKS: Final = {"1": "\u0304", "2": "\u0301", "3": "\u030c", "4": "\u0300", "5": ""}
_MARKED_VOWEL: Final = re.compile(r"a|e|o(?=u)|[iouv](?=[^aeiouv]*\Z)")


def with_tone_mark(syllable: str) -> tuple[str, str]:
    """Return the initial, or "", and the final with its tone mark of a syllable of ``read_pinyin``."""
    match = SYLLABLE.fullmatch(syllable)
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
