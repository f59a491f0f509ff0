"""Segmenters for a voice of one language, from the reader that has most rules for it."""

from ..errors import MissingExtra
from ..reading.english.clause_normalizer import ENGLISH_VOICE_SCRIPTS
from ..reading.multilingual.clause_normalizer import LANGUAGE_CODES, LanguageGrammars
from ..reading.normalizer import TextNormalizer
from ..reading.unicode_scripts import (
    ALL_SCRIPTS,
    BOPOMOFO,
    CYRILLIC,
    GREEK,
    HAN,
    HANGUL,
    KANA,
    LATIN,
    ReadableScripts,
)
from ..segmenter import Segmenter
from ..voices.languages import primary_language
from .base import SlotRequest

_SCRIPTS = {
    **dict.fromkeys(
        "ca cs cy da de es et eu fi fr hr hu is it lb lt lv nb nl no pl pt ro sk sl sq sv sw tr vi".split(),
        (LATIN,),
    ),
    **dict.fromkeys("be bg kk mk ru uk".split(), (LATIN, CYRILLIC)),
    "el": (LATIN, GREEK),
    "zh": (LATIN, HAN, BOPOMOFO),
    "ja": (LATIN, HAN, KANA),
    "ko": (LATIN, HAN, HANGUL),
}


class VoiceReader:
    """Makes the segmenters of a voice.

    A language without a grammar is left as written, and espeak-ng reads its numbers. Words in scripts that
    the voice cannot read are left out and counted; a language of unlisted script is taken to read all.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._primary = primary_language(language)
        self._grammars = LanguageGrammars({}) if self._primary == "en" else _load(self._primary)
        known = _SCRIPTS.get(self._primary)
        self._scripts = ReadableScripts(*known) if known else ALL_SCRIPTS

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter that yields clauses and sentences."""
        if self._primary == "en":
            return Segmenter(style=request.reading, scripts=ENGLISH_VOICE_SCRIPTS)
        reader = TextNormalizer(self._grammars.any_clause_normalizer(self._primary))
        return Segmenter(reader=reader, scripts=self._scripts)


def _load(primary: str) -> LanguageGrammars:
    try:
        return LanguageGrammars.load([primary] if primary in LANGUAGE_CODES else [])
    except MissingExtra:  # the grammars of Chinese and Japanese need it
        return LanguageGrammars({})
