"""The language of a clause, guessed from its characters where it is not given."""

import re

from ...lazy_pattern import LazyPattern
from ...unicode_scripts import BOPOMOFO, CYRILLIC, HAN, HANGUL, KANA, SYLLABIC

_LANGUAGE_OF_SCRIPT = ((LazyPattern(f"[{KANA}]"), "ja"), (LazyPattern(f"[{HANGUL}]"), "ko"))
_HAN = LazyPattern(f"[{HAN}{BOPOMOFO}]")
_CYRILLIC = LazyPattern(f"[{CYRILLIC}]")
_LATIN = LazyPattern("[A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
_LATIN_WORD = LazyPattern("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]{2,}")
_MIN_PHRASE_WORDS = 3  # Latin words that make a text one of a Latin-script language: "5 km" does not
_LETTERS_PER_SYLLABLE = 3  # letters that take about as long to say as one syllabic character
_WRITTEN_IN_HAN = frozenset({"zh", "ja", "ko"})
_LETTER = re.compile(r"[^\W\d_]")


def nth_syllabic_position(text: str, nth: int) -> int | None:
    """Return the position of the ``nth`` character (from 1) that is said as a syllable or more, or None."""
    if text.isascii():
        return None
    for count, match in enumerate(SYLLABIC.compiled.finditer(text), 1):
        if count == nth:
            return match.start()
    return None


def detect_language(text: str, *, voice_language: str, before: str, latin_language: str) -> str:
    """Return the language code of a clause, guessed from its scripts; "" for a script of no known language.

    ``voice_language``: decides Han text between Chinese and Japanese. ``before``: language of the clause
    before, which a clause without letters shares. ``latin_language``: language of Latin text; it takes a
    phrase of Latin words, so "5 km" in a Chinese text is Chinese.
    """
    if text.isascii():
        return latin_language if _has_phrase(text) else before or latin_language
    letters, syllabic = len(_LATIN.compiled.findall(text)), len(SYLLABIC.compiled.findall(text))
    others = len(_LETTER.findall(text)) - syllabic - letters
    if not letters + syllabic + others:
        return before
    if syllabic and (voice_language in _WRITTEN_IN_HAN or _LETTERS_PER_SYLLABLE * syllabic >= letters):
        return _syllabic_language(text, (voice_language, before))
    if letters >= others:
        return latin_language if _has_phrase(text) else before or latin_language
    return "ru" if _CYRILLIC.compiled.search(text) else ""


def _has_phrase(text: str) -> bool:
    return len(_LATIN_WORD.compiled.findall(text)) >= _MIN_PHRASE_WORDS


def _syllabic_language(text: str, likely: tuple[str, ...]) -> str:
    for script, language in _LANGUAGE_OF_SCRIPT:
        if script.compiled.search(text):
            return language
    if not _HAN.compiled.search(text):
        return ""
    return next((language for language in likely if language in _WRITTEN_IN_HAN), "zh")
