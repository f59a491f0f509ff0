"""Segmenters for a voice of one language, from the reader that has most rules for it."""

from ..backends.base import SlotRequest
from ..errors import MissingExtra
from ..reading.languages.default import DEFAULT_LANGUAGE
from ..reading.languages.multilingual import LanguageGrammars
from ..reading.languages.registry import languages_by_code
from ..reading.normalizer import TextNormalizer
from ..reading.unicode_scripts import ALL_SCRIPTS, CYRILLIC, GREEK, LATIN, ReadableScripts
from ..segmenter import Segmenter
from ..voices.languages import primary_language

# Of languages without a grammar
_SCRIPTS = {
    **dict.fromkeys("ca cs cy da et eu fi hr hu is lb lt lv nb no ro sk sl sq sv sw vi".split(), (LATIN,)),
    **dict.fromkeys("be bg kk mk uk".split(), (LATIN, CYRILLIC)),
    "el": (LATIN, GREEK),
}


class VoiceReader:
    """Makes the segmenters of a voice.

    A language without a grammar is left as written, and espeak-ng reads its numbers. Words in scripts that
    the voice cannot read are left out and counted; a language of unlisted script is taken to read all.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._primary = primary_language(language)
        self._is_default = self._primary == DEFAULT_LANGUAGE.code
        self._grammars = LanguageGrammars({}) if self._is_default else _load(self._primary)
        read = languages_by_code().get(self._primary)
        known = read.scripts if read else _SCRIPTS.get(self._primary)
        self._scripts = ReadableScripts(*known) if known else ALL_SCRIPTS

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter that yields clauses and sentences."""
        if self._is_default:
            return Segmenter(style=request.reading)
        reader = TextNormalizer(self._grammars.any_clause_normalizer(self._primary))
        return Segmenter(reader=reader, scripts=self._scripts)


def _load(primary: str) -> LanguageGrammars:
    try:
        return LanguageGrammars.load([primary] if primary in languages_by_code() else [])
    except MissingExtra:  # the grammars of Chinese and Japanese need it
        return LanguageGrammars({})
