"""Romanizes Chinese, Japanese and Korean text as XTTS was trained to read it.

    zh    pinyin with tone digits after each syllable, without spaces; by pypinyin (MIT)
    ja    Hepburn romanization with spaces between words; by cutlet (MIT) with the dictionary UniDic (BSD)
    ko    transliteration of the letters, independent of their pronunciation; done here

Letters of other scripts are left as they are.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/tokenizer.py; Revised Romanization of Korean (2000),
section 3 clause 8, the transliteration for scholarly articles; Unicode 15 section 3.12 (Hangul syllables).
"""

import re
from functools import lru_cache
from typing import Any

_CHINESE_MARKS = str.maketrans("。，、；：！？（）", ",,,;:!?()")
_SYLLABLE = re.compile("[가-힣]")
_INITIALS = tuple("g kk n d tt l m b pp s ss - j jj ch k t p h".replace("-", "").split(" "))
_VOWELS = tuple("a ae ya yae eo e yeo ye o wa wae oe yo u wo we wi yu eu ui i".split())
_FINALS = ("", *"g kk gs n nj nh d l lg lm lb ls lt lp lh m b bs s ss ng j ch k t p h".split())
_SILENT_INITIAL = _INITIALS.index("")


def romanize(text: str, language: str) -> str:
    """Text in Latin letters. language: "zh", "ja" or "ko".

    Raises ModuleNotFoundError without the library of the language.
    """
    match language:
        case "zh":
            return _pinyin(text.translate(_CHINESE_MARKS))
        case "ja":
            romaji: str = _japanese().romaji(text)
            return romaji.lower()
        case _:
            return _SYLLABLE.sub(_korean_syllable, text)


def _pinyin(text: str) -> str:
    from pypinyin import Style, pinyin

    syllables = pinyin(text, style=Style.TONE3, heteronym=False, neutral_tone_with_five=True)
    return "".join(first for first, *_ in syllables)


@lru_cache(maxsize=1)
def _japanese() -> Any:
    """The romanizer, made once: it reads a dictionary."""
    from cutlet import Cutlet

    return Cutlet()


def _korean_syllable(found: re.Match[str]) -> str:
    initial, vowel, final = _letters(found[0])
    before = found.string[found.start() - 1 : found.start()]
    hyphen = "-" if _SYLLABLE.match(before) and _needs_hyphen(_letters(before)[2], initial) else ""
    return hyphen + _INITIALS[initial] + _VOWELS[vowel] + _FINALS[final]


def _letters(syllable: str) -> tuple[int, int, int]:
    """Indices of the initial, the vowel and the final."""
    rest, final = divmod(ord(syllable) - ord("가"), len(_FINALS))
    return *divmod(rest, len(_VOWELS)), final


@lru_cache(maxsize=1024)
def _needs_hyphen(final: int, initial: int) -> bool:
    """Whether the letters between two vowels could also be another final and initial."""
    if initial == _SILENT_INITIAL:
        return True
    letters = _FINALS[final] + _INITIALS[initial]
    splits = range(len(letters))
    return sum(letters[:at] in _FINALS and letters[at:] in _INITIALS for at in splits) > 1
