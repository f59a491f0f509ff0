"""Reads text of many languages, clause by clause, for voices that are given text and not words.

A clause is read in the language of its script; Latin letters in the voice's own language. Scripts that
nothing here reads go through as they are, digits included, so that no number is said in a wrong language.

    languages = Languages.load()                       once; shared by all streams
    reader = Reader(longest, clauses=languages.clauses("de"))
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...errors import BadRequest
from ..clause_boundaries import ENGLISH_BOUNDARY_RULES, BoundaryRules
from ..english.grammar import ENGLISH_GRAMMAR as ENGLISH_GRAMMAR
from ..english.grammar import read, read_stable_prefix
from ..folding import FOLDED_CHARACTERS, fold
from ..markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ..tokenizer import DraftWord, Grammar, ReadingContext, ScanState, compile_rules
from ..unicode_scripts import WIDE_MARKS, detect_language, is_unspaced, nth_syllabic_position
from .han_normalizer import HanNormalizer
from .language_tables import TABLES
from .table_normalizer import TableNormalizer

MAX_MULTILINGUAL_CLAUSE_CHARACTERS = 240  # characters that are waited for without an end: about 16 s
MAX_SYLLABIC_CHARACTERS = 60  # the same of Han, kana and Hangul
_STABLE_MARGIN = 100  # characters before the end of an unfinished clause; beyond, readings no longer change
_STABLE_MARGIN_SYLLABIC = 20
# Varieties that are written as another language is, and tags of no language.
_LANGUAGE_ALIASES = {"cmn": "zh", "yue": "zh", "wuu": "zh", "nan": "zh", "mul": "en", "und": "en"}
_HAN_LANGUAGES = ("zh", "ja")
LANGUAGE_CODES = ("en", *_HAN_LANGUAGES, *TABLES)
_FOLDED_CHARACTERS = FOLDED_CHARACTERS | {
    **{mark: mark for mark in (*WIDE_MARKS, "¿", "¡")},
    "〇": "〇",
    "〜": "~",
    "№": "№",
    "〒": "〒",
    "ﾞ": "\u3099",
    "ﾟ": "\u309a",
    **dict.fromkeys("।॥።։។။", ". "),
}
_NARROW_MARKS = str.maketrans(WIDE_MARKS, ".!?;:,,")
_VERBATIM_RUN = r"[^\W_][^\s!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f]{0,60}"


def _read_verbatim(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(match.group(), match.start(), match.end())
    scan.context.line_start = scan.context.sentence_start = False
    return match.end()


def _verbatim_grammar() -> Grammar:
    """Words and digits as they stand."""
    return Grammar(
        compile_rules(*LINE_START_ROWS),
        (),
        (),
        compile_rules(*MARKUP_ROWS, *PUNCTUATION_ROWS),
        (re.compile(_VERBATIM_RUN), _read_verbatim),
    )


class LanguageGrammars:
    """How every language is read. Immutable and shared; loading takes about half a second."""

    def __init__(self, grammars: Mapping[str, Grammar]) -> None:
        self._grammars = {"": _verbatim_grammar(), "en": ENGLISH_GRAMMAR, **grammars}

    @classmethod
    def load(cls, codes: Iterable[str] = LANGUAGE_CODES) -> "LanguageGrammars":
        """Load these languages; English is always there. Raises MissingExtra, and BadRequest on others."""
        wanted = {language_code(code) for code in codes}
        from_tables = {
            code: TableNormalizer(table).grammar() for code, table in TABLES.items() if code in wanted
        }
        return cls(
            from_tables | {code: HanNormalizer(code).grammar() for code in _HAN_LANGUAGES if code in wanted}
        )

    def clause_normalizer(
        self, language: str | None = None, marks: Iterable[str] = ()
    ) -> "MultilingualClauseNormalizer":
        """What reads the clauses of one stream.

        ``language``: of the voice, as "de" or "de-AT"; English where it is not known. ``marks``: those that
        the model understands, such as "[laughter]", and that the text may use; others are text.
        """
        return MultilingualClauseNormalizer(self, language_code(language or "en"), frozenset(marks))

    def grammar(self, code: str) -> Grammar:
        """Of a language, or, where it is not loaded, as it is written."""
        return self._grammars.get(code, self._grammars[""])


def language_code(tag: str) -> str:
    """The code under which a language tag is known here. Raises BadRequest."""
    code = _primary_language(tag)
    if code not in LANGUAGE_CODES:
        raise BadRequest(f"language {tag!r}: known are {', '.join(sorted(LANGUAGE_CODES))}")
    return code


def is_supported_language(tag: str) -> bool:
    """Whether text of that language tag is read in its language."""
    return _primary_language(tag) in LANGUAGE_CODES


def _primary_language(tag: str) -> str:
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return _LANGUAGE_ALIASES.get(primary, primary)


class MultilingualClauseNormalizer:
    """The clauses of one stream, each by the language that it is in, digits by that of what came before."""

    def __init__(self, languages: LanguageGrammars, language: str, marks: frozenset[str]) -> None:
        self._language_grammars = languages
        self._language = self._previous_language = language
        self._latin_language = "en" if language in ("zh", "ja", "ko", "ru") else language
        self._marks = compile_rules((_any_of(marks), _read_verbatim)) if marks else ()
        self._context = ReadingContext()
        self.boundary_rules = _boundary_rules(self._latin_language)
        self.min_forced_cut = MAX_SYLLABIC_CHARACTERS

    def fold(self, text: str) -> tuple[str, list[int]]:
        """Into ASCII where nothing is lost by it; wide marks stay."""
        return fold(text, _FOLDED_CHARACTERS)

    def forced_cut(self, view: str) -> int | None:
        """By characters, and fewer of those that take long to say."""
        last = nth_syllabic_position(view, MAX_SYLLABIC_CHARACTERS)
        if last is not None and last < MAX_MULTILINGUAL_CLAUSE_CHARACTERS:
            return last + 1
        return MAX_MULTILINGUAL_CLAUSE_CHARACTERS if len(view) >= MAX_MULTILINGUAL_CLAUSE_CHARACTERS else None

    def read(self, view: str) -> list[DraftWord]:
        """By the rules of its language."""
        code = self._clause_language(view)
        scan = self._scan(view, code)
        read(scan, len(view), self._grammar(code))
        return scan.words

    def read_stable_prefix(self, view: str) -> tuple[list[DraftWord], int]:
        """Up to a place where nothing is read as one thing."""
        if self._clause_language(view) == "en":
            scan = self._scan(view, "en")
            stop = read_stable_prefix(scan, max(1, len(view) - _STABLE_MARGIN), self._grammar("en"))
            self._context = scan.context
            return scan.words, stop
        stop = _stable_cut(view)
        return self.read(view[:stop]), stop

    def end_line(self) -> None:
        """No number goes on over it."""
        self._context.end_line()

    def _clause_language(self, view: str) -> str:
        self._previous_language = detect_language(
            view,
            voice_language=self._language,
            before=self._previous_language,
            latin_language=self._latin_language,
        )
        return self._previous_language

    def _scan(self, view: str, code: str) -> ScanState:
        narrow = code not in _HAN_LANGUAGES and not view.isascii()
        return ScanState(
            view.translate(_NARROW_MARKS) if narrow and code == "en" else view, self._context, respells=False
        )

    def _grammar(self, code: str) -> Grammar:
        grammar = self._language_grammars.grammar(code)
        return replace(grammar, symbols=(*self._marks, *grammar.symbols)) if self._marks else grammar


def _any_of(marks: Iterable[str]) -> str:
    return "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))


def _boundary_rules(latin_language: str) -> BoundaryRules:
    """Those of a language in Latin letters, and of Russian, with which it cannot be confused."""
    boundary_rules = (
        ENGLISH_BOUNDARY_RULES if latin_language == "en" else TABLES[latin_language].boundary_rules
    )
    return replace(
        boundary_rules,
        abbreviations={**TABLES["ru"].boundary_rules.abbreviations, **boundary_rules.abbreviations},
    )


def _stable_cut(view: str) -> int:
    """Between two words without digits, some way before the end; else the first such place, or the end."""
    last = len(view) - (
        _STABLE_MARGIN
        if nth_syllabic_position(view, MAX_SYLLABIC_CHARACTERS) is None
        else _STABLE_MARGIN_SYLLABIC
    )
    before = max((at for at in range(1, last + 1) if _is_safe_cut(view, at)), default=0)
    return before or next((at for at in range(last + 1, len(view)) if _is_safe_cut(view, at)), len(view))


def _is_safe_cut(view: str, at: int) -> bool:
    left, right = view[at - 1], view[at]
    if right == " ":
        return left.isalpha() and view[at + 1 : at + 2].isalpha()
    return is_unspaced(left) and is_unspaced(right)
