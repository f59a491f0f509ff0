"""Reader of clauses in many languages, for voices that take text as it is written.

Each clause is read in the language of its script; Latin letters are read in the voice's own language. Text in
a script without a grammar stays as written, digits included, so that no number is read in a wrong language.

    grammars = LanguageGrammars.load()                 once, shared by all streams
    normalizer = TextNormalizer(grammars.clause_normalizer("de"))
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Final

from ....errors import BadRequest
from ...clause_boundaries import BoundaryRules
from ...folding import FOLDED_CHARACTERS, FRACTIONS, fold
from ...kit.markup_rules import ACTED_SOUNDS, LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ...kit.patterns import RulePattern
from ...kit.phrase_places import phrase_places
from ...kit.reading_context import ReadingContext
from ...kit.tokenizer import (
    STABLE_MARGIN_CHARACTERS,
    Grammar,
    Rule,
    ScanState,
    any_of,
    compile_rules,
    read_first,
    read_stable_prefix,
    read_tokens,
)
from ...language import Language
from ...normalizer import DraftWord
from ...phrase_cuts import PhraseWords
from ...pronunciation.lexicon import PronunciationFinder
from ...unicode_scripts import (
    CYRILLIC,
    GREEK,
    HANGUL,
    LATIN,
    NO_SPACE_SCRIPTS,
    WIDE_MARKS,
    ReadableScripts,
    is_unspaced,
)
from ..default import DEFAULT_LANGUAGE
from ..registry import languages_by_code, primary_code
from .clause_language import detect_language, nth_syllabic_position

MAX_MULTILINGUAL_CLAUSE_CHARACTERS = 240  # a clause without a boundary is cut there: about 16 s of speech
MAX_SYLLABIC_CHARACTERS = 60  # the same for Han, kana and Hangul
_STABLE_MARGIN_SYLLABIC = 20  # as STABLE_MARGIN_CHARACTERS, in a clause of MAX_SYLLABIC_CHARACTERS
_DEFAULT = DEFAULT_LANGUAGE.code
# Of voices that speak these languages. Greek letters are symbols in all of them.
MULTILINGUAL_VOICE_SCRIPTS = ReadableScripts(LATIN, GREEK, CYRILLIC, NO_SPACE_SCRIPTS, HANGUL)
_FOLDED_CHARACTERS = FOLDED_CHARACTERS | {
    **{mark: mark for mark in (*WIDE_MARKS, "¿", "¡")},
    "〇": "〇",
    "〜": "~",
    "№": "№",
    "〒": "〒",
    "㈜": "(주)",
    "㎍": "μg",
    "ﾞ": "\u3099",
    "ﾟ": "\u309a",
    **dict.fromkeys("।॥።։။។", ". "),  # full stops of Indic, Ethiopic, Armenian, Burmese and Khmer
}
# "7/8" is a date there; the denominator comes first.
_FOLDED_BY_LANGUAGE = {
    language: _FOLDED_CHARACTERS
    | {sign: f"{under}{joint}{over}" for sign, (over, under) in FRACTIONS.items()}
    for language, joint in (("zh", "分之"), ("ja", "分の"))
}
_NARROW_MARKS = str.maketrans(WIDE_MARKS, ".!?;:,,")
# Letters and digits up to a blank or a mark that a grammar reads.
_WRITTEN_NUMBER = r"[€$£]?\d+(?:[.,:]\d+)*(?:[^\W\d_]+|\s?[€$£%](?!\w))?"
# Their letters belong to no language: addresses, commands of TeX, a Greek letter by itself.
_OF_NO_LANGUAGE = re.compile(
    r"[^\s@]{1,64}@[^\s@]{1,255}|(?:https?://|www\.)\S{1,300}"
    rf"|\\[A-Za-z]{{1,40}}|(?<![{GREEK}])[{GREEK}](?![{GREEK}])"
)
_VERBATIM_RUN = r"[^\W_][^\s!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f]{0,60}"


def _read_verbatim(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(match.group(), match.start(), match.end())
    scan.context.line_start = scan.context.sentence_start = False
    return match.end()


def _read_mark(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit_mark(unicodedata.normalize("NFC", match.group()), match.start(), match.end())
    return match.end()


def _mark_rules(marks: frozenset[str]) -> tuple[Rule, ...]:
    """Return the rules of a model's marks, and of directions that they act: "[laughs]", "(sighs)"."""
    acted = (
        (rf"\[(?i:{sound})\](?!\()|\((?i:{sound})\)|\*(?i:{sound})\*(?!\w)", partial(_read_acted, mark=mark))
        for mark, sound in ACTED_SOUNDS.items()
        if mark in marks
    )
    return compile_rules((_mark_pattern(marks), _read_mark), *acted) if marks else ()


def _read_acted(scan: ScanState, match: re.Match[str], mark: str) -> int:
    scan.emit_mark(mark, match.start(), match.end())
    return match.end()


def _mark_pattern(marks: frozenset[str]) -> str:
    """Return a pattern of marks, accents composed or not. "[sigh](" begins a Markdown link instead."""
    return rf"(?:{any_of(marks | {unicodedata.normalize('NFD', mark) for mark in marks})})(?!\()"


def _verbatim_grammar(*rows: tuple[str, Callable[[ScanState, re.Match[str]], int]]) -> Grammar:
    """Return the grammar that leaves words and digits as written. rows: rules before it."""
    return Grammar(
        lines=compile_rules(*LINE_START_ROWS),
        letters=(),
        digits=compile_rules(*rows) if rows else (),
        symbols=compile_rules(*rows, *MARKUP_ROWS, *PUNCTUATION_ROWS),
        word=(RulePattern(_VERBATIM_RUN), _read_verbatim),
    )


_AS_WRITTEN: Final = _verbatim_grammar()


class LanguageGrammars:
    """Grammars of several languages, by code. Immutable and shared.

    The first time in a process, loading all takes about 1 s.
    """

    def __init__(self, grammars: Mapping[str, Grammar]) -> None:
        self._grammars = {"": _AS_WRITTEN, _DEFAULT: _grammar_of(DEFAULT_LANGUAGE), **grammars}

    @classmethod
    def load(cls, codes: Iterable[str] | None = None) -> "LanguageGrammars":
        """Load the grammars of ``codes``, so that no text waits for them; English is always included.

        codes: None for all languages.

        Raises BadRequest on an unknown code, and MissingExtra if a library is not installed.
        """
        languages = languages_by_code()
        wanted = [*languages] if codes is None else [*{language_code(code) for code in codes}]
        loaded = cls({code: _compiled_grammar(languages[code]) for code in {_DEFAULT, *wanted}})
        _AS_WRITTEN.compile()
        for code in wanted:
            _boundary_rules(_latin_language(code))
            languages[code].phrases()
        return loaded

    def with_written_numbers(self) -> "LanguageGrammars":
        """Return these grammars; text without one keeps the separators, currency and percent of numbers."""
        written = _verbatim_grammar((_WRITTEN_NUMBER, _read_verbatim))
        return LanguageGrammars({**self._grammars, "": written})

    def clause_normalizer(
        self, language: str | None = None, marks: Iterable[str] = ()
    ) -> "MultilingualClauseNormalizer":
        """Return the clause normalizer of one stream.

        ``language``: tag of the voice's language, such as "de" or "de-AT"; None for English. ``marks``: of
        the model, such as "[laughter]", each in angle or square brackets; they pass through.
        """
        return MultilingualClauseNormalizer(self, language_code(language or _DEFAULT), frozenset(marks))

    def any_clause_normalizer(self, language: str) -> "MultilingualClauseNormalizer":
        """Return the clause normalizer of a language that may have no grammar; its text stays as written."""
        return MultilingualClauseNormalizer(self, primary_code(language), frozenset())

    def grammar(self, code: str) -> Grammar:
        """Return the grammar of a language; if it is not loaded, the one that leaves text as written."""
        return self._grammars.get(code, self._grammars[""])


def language_code(tag: str) -> str:
    """Return the code of a language tag. Raises BadRequest if it is not read."""
    code = primary_code(tag)
    if code not in languages_by_code():
        raise BadRequest(f"language {tag!r}: known are {', '.join(sorted(languages_by_code()))}")
    return code


class MultilingualClauseNormalizer:
    """``ClauseNormalizer`` of one stream. A clause without letters is read as the clause before it."""

    min_forced_cut = MAX_SYLLABIC_CHARACTERS

    def __init__(self, grammars: LanguageGrammars, language: str, marks: frozenset[str]) -> None:
        self._language_grammars = grammars
        self._language = self._previous_language = language
        self._latin_language = _latin_language(language)
        self._marks = _mark_rules(marks)
        self._marked_grammars: dict[str, Grammar] = {}
        self._context = ReadingContext()
        self.pronunciations = PronunciationFinder()
        self.boundary_rules = _boundary_rules(self._latin_language)

    def fold(self, text: str) -> tuple[str, list[int]]:
        """Return ``text`` folded, wide and inverted marks kept, and the position of each character in it."""
        return fold(text, _FOLDED_BY_LANGUAGE.get(self._language, _FOLDED_CHARACTERS))

    def forced_cut(self, view: str) -> int | None:
        """Return where ``view`` is too long: by characters, earlier for those that take long to say."""
        last = nth_syllabic_position(view, MAX_SYLLABIC_CHARACTERS)
        if last is not None and last < MAX_MULTILINGUAL_CLAUSE_CHARACTERS:
            return last + 1
        return MAX_MULTILINGUAL_CLAUSE_CHARACTERS if len(view) >= MAX_MULTILINGUAL_CLAUSE_CHARACTERS else None

    def read(self, view: str) -> list[DraftWord]:
        """Read a whole clause in its language."""
        code = self._clause_language(view)
        scan = self._scan(view, code)
        read_tokens(scan, len(view), self._grammar(code))
        return scan.words

    def read_stable_prefix(self, view: str) -> tuple[list[DraftWord], int]:
        """Read an unfinished clause up to a place that is inside no reading."""
        if self._clause_language(view) == _DEFAULT:
            scan = self._scan(view, _DEFAULT)
            limit = max(1, len(view) - STABLE_MARGIN_CHARACTERS)
            stop = read_stable_prefix(scan, limit, self._grammar(_DEFAULT))
            self._context = scan.context
            return scan.words, stop
        stop = _stable_cut(view)
        return self.read(view[:stop]), stop

    def read_phrase(self, view: str) -> tuple[list[DraftWord], int] | None:
        """Read up to a place between two phrases of its language."""
        before = self._previous_language
        code = self._clause_language(view)
        language = languages_by_code().get(code)
        phrases = language.phrases() if language else PhraseWords()
        found = read_first(self._scan(view, code), phrase_places(view, phrases), self._grammar(code))
        if found is None:
            self._previous_language = before
            return None
        scan, stop = found
        self._context = scan.context
        return scan.words, stop

    def end_line(self) -> None:
        """Note that the next clause begins a new line."""
        self._context.end_line()

    def _clause_language(self, view: str) -> str:
        for pattern, _ in self._marks:  # their letters belong to no language
            view = pattern.compiled.sub(" ", view)
        view = _OF_NO_LANGUAGE.sub(" ", view)
        self._previous_language = detect_language(
            view,
            voice_language=self._language,
            before=self._previous_language,
            latin_language=self._latin_language,
        )
        return self._previous_language

    def _scan(self, view: str, code: str) -> ScanState:
        # The English grammar knows narrow marks only; the translation keeps all positions.
        narrowed = view.translate(_NARROW_MARKS) if code == _DEFAULT and not view.isascii() else view
        return ScanState(narrowed, self._context, respells=False, pronunciations=self.pronunciations)

    def _grammar(self, code: str) -> Grammar:
        grammar = self._language_grammars.grammar(code)
        if not self._marks:
            return grammar
        if code not in self._marked_grammars:
            self._marked_grammars[code] = replace(grammar, symbols=(*self._marks, *grammar.symbols))
        return self._marked_grammars[code]


def _grammar_of(language: Language) -> Grammar:
    grammar = language.grammar()
    assert isinstance(grammar, Grammar)
    return grammar


def _latin_language(code: str) -> str:
    """The language of Latin letters in text of a language."""
    language = languages_by_code().get(code)
    return code if language is None or language.is_latin else _DEFAULT


@cache
def _compiled_grammar(language: Language) -> Grammar:
    """Return a language's grammar, which all voices of the process share."""
    grammar = _grammar_of(language)
    grammar.compile()
    return grammar


@cache
def _boundary_rules(latin_language: str) -> BoundaryRules:
    """Return the rules of a language in Latin letters, with the abbreviations of those in other letters.

    English dates may occur in any of the languages.
    """
    languages = languages_by_code()
    rules = languages.get(latin_language, DEFAULT_LANGUAGE).boundary_rules()
    for other in languages.values():
        if not other.is_latin:
            rules = _with_abbreviations(rules, other.boundary_rules())
    return replace(rules, month_day=DEFAULT_LANGUAGE.boundary_rules().month_day)


def _with_abbreviations(rules: BoundaryRules, other: BoundaryRules) -> BoundaryRules:
    return replace(
        rules,
        abbreviations={**other.abbreviations, **rules.abbreviations},
        listed_weekdays=other.listed_weekdays | rules.listed_weekdays,
        unit_stop=_either(rules.unit_stop, other.unit_stop),
    )


def _either(one: re.Pattern[str] | None, other: re.Pattern[str] | None) -> re.Pattern[str] | None:
    """Return a pattern that matches what one of the patterns does."""
    if one is None or other is None or one is other:
        return one or other
    return re.compile(f"{one.pattern}|{other.pattern}")


def _stable_cut(view: str) -> int:
    """Return a cut between two words without digits: the last before the margin, else the first after it."""
    is_syllabic = nth_syllabic_position(view, MAX_SYLLABIC_CHARACTERS) is not None
    last = len(view) - (_STABLE_MARGIN_SYLLABIC if is_syllabic else STABLE_MARGIN_CHARACTERS)
    before = max((at for at in range(1, last + 1) if _is_safe_cut(view, at)), default=0)
    return before or next((at for at in range(last + 1, len(view)) if _is_safe_cut(view, at)), len(view))


def _is_safe_cut(view: str, at: int) -> bool:
    left, right = view[at - 1], view[at]
    if right == " ":
        return left.isalpha() and view[at + 1 : at + 2].isalpha()
    return is_unspaced(left) and is_unspaced(right)
