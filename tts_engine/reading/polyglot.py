"""Reads text of many languages, clause by clause, for voices that are given text and not words.

A clause is read in the language of its script; Latin letters in the voice's own language. Scripts that
nothing here reads go through as they are, digits included, so that no number is said in a wrong language.

    languages = Languages.load()                       once; shared by all streams
    reader = Reader(longest, clauses=languages.clauses("de"))
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..errors import BadRequest
from .clauses import ENGLISH, Habits
from .han import HanReader
from .languages import TABLES
from .normalize import FOLDED, fold
from .recognisers import ENGLISH as ENGLISH_GRAMMAR
from .recognisers import LINES, MARKUP, PAUSES, read, read_settled
from .scan import Draft, Grammar, Memory, Scan, rules
from .scripts import WIDE_MARKS, is_unspaced, language_of, last_of_dense
from .tabled import TabledReader

LONGEST = 240  # characters that are waited for without an end: about 16 s
LONGEST_DENSE = 60  # the same of Han, kana and Hangul
_SETTLED = 100  # characters before the end of an unfinished clause; beyond, readings no longer change
_SETTLED_DENSE = 20
# Varieties that are written as another language is, and tags of no language.
_READ_AS = {"cmn": "zh", "yue": "zh", "wuu": "zh", "nan": "zh", "mul": "en", "und": "en"}
_IN_HAN = ("zh", "ja")
CODES = ("en", *_IN_HAN, *TABLES)
_FOLDED = FOLDED | {
    **{mark: mark for mark in (*WIDE_MARKS, "¿", "¡")},
    "〇": "〇",
    "〜": "~",
    "№": "№",
    "〒": "〒",
    "ﾞ": "\u3099",
    "ﾟ": "\u309a",
    **dict.fromkeys("।॥።։។။", ". "),
}
_NARROW = str.maketrans(WIDE_MARKS, ".!?;:,,")
_RUN = r"[^\W_][^\s!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f]{0,60}"


def _read_as_written(scan: Scan, match: re.Match[str]) -> int:
    scan.say(match.group(), match.start(), match.end())
    scan.memory.line_start = scan.memory.sentence_start = False
    return match.end()


def _as_written() -> Grammar:
    """Words and digits as they stand."""
    return Grammar(rules(*LINES), (), (), rules(*MARKUP, *PAUSES), (re.compile(_RUN), _read_as_written))


class Languages:
    """How every language is read. Immutable and shared; loading takes about half a second."""

    def __init__(self, grammars: Mapping[str, Grammar]) -> None:
        self._grammars = {"": _as_written(), "en": ENGLISH_GRAMMAR, **grammars}

    @classmethod
    def load(cls, codes: Iterable[str] = CODES) -> "Languages":
        """Load these languages; English is always there. Raises MissingExtra, and BadRequest on others."""
        wanted = {canonical(code) for code in codes}
        tabled = {code: TabledReader(table).grammar() for code, table in TABLES.items() if code in wanted}
        return cls(tabled | {code: HanReader(code).grammar() for code in _IN_HAN if code in wanted})

    def clauses(self, language: str | None = None, marks: Iterable[str] = ()) -> "PolyglotClauses":
        """What reads the clauses of one stream.

        ``language``: of the voice, as "de" or "de-AT"; English where it is not known. ``marks``: those that
        the model understands, such as "[laughter]", and that the text may use; others are text.
        """
        return PolyglotClauses(self, canonical(language or "en"), frozenset(marks))

    def grammar(self, code: str) -> Grammar:
        """Of a language, or, where it is not loaded, as it is written."""
        return self._grammars.get(code, self._grammars[""])


def canonical(tag: str) -> str:
    """The code under which a language tag is known here. Raises BadRequest."""
    code = _code(tag)
    if code not in CODES:
        raise BadRequest(f"language {tag!r}: known are {', '.join(sorted(CODES))}")
    return code


def is_known(tag: str) -> bool:
    """Whether text of that language tag is read in its language."""
    return _code(tag) in CODES


def _code(tag: str) -> str:
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return _READ_AS.get(primary, primary)


class PolyglotClauses:
    """The clauses of one stream, each by the language that it is in, digits by that of what came before."""

    def __init__(self, languages: Languages, language: str, marks: frozenset[str]) -> None:
        self._languages = languages
        self._language = self._before = language
        self._latin = "en" if language in ("zh", "ja", "ko", "ru") else language
        self._marks = rules((_any_of(marks), _read_as_written)) if marks else ()
        self._memory = Memory()
        self.habits = _habits(self._latin)
        self.least = LONGEST_DENSE

    def fold(self, text: str) -> tuple[str, list[int]]:
        """Into ASCII where nothing is lost by it; wide marks stay."""
        return fold(text, _FOLDED)

    def bound(self, view: str) -> int | None:
        """By characters, and fewer of those that take long to say."""
        last = last_of_dense(view, LONGEST_DENSE)
        if last is not None and last < LONGEST:
            return last + 1
        return LONGEST if len(view) >= LONGEST else None

    def read(self, view: str) -> list[Draft]:
        """By the rules of its language."""
        code = self._code(view)
        scan = self._scan(view, code)
        read(scan, len(view), self._grammar(code))
        return scan.words

    def read_settled(self, view: str) -> tuple[list[Draft], int]:
        """Up to a place where nothing is read as one thing."""
        if self._code(view) == "en":
            scan = self._scan(view, "en")
            stop = read_settled(scan, max(1, len(view) - _SETTLED), self._grammar("en"))
            self._memory = scan.memory
            return scan.words, stop
        stop = _settled_place(view)
        return self.read(view[:stop]), stop

    def end_line(self) -> None:
        """No number goes on over it."""
        self._memory.end_line()

    def _code(self, view: str) -> str:
        self._before = language_of(view, voice=self._language, before=self._before, latin=self._latin)
        return self._before

    def _scan(self, view: str, code: str) -> Scan:
        narrow = code not in _IN_HAN and not view.isascii()
        return Scan(
            view.translate(_NARROW) if narrow and code == "en" else view, self._memory, respells=False
        )

    def _grammar(self, code: str) -> Grammar:
        grammar = self._languages.grammar(code)
        return replace(grammar, symbols=(*self._marks, *grammar.symbols)) if self._marks else grammar


def _any_of(marks: Iterable[str]) -> str:
    return "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))


def _habits(latin: str) -> Habits:
    """Those of a language in Latin letters, and of Russian, with which it cannot be confused."""
    habits = ENGLISH if latin == "en" else TABLES[latin].habits
    return replace(habits, abbreviations={**TABLES["ru"].habits.abbreviations, **habits.abbreviations})


def _settled_place(view: str) -> int:
    """Between two words without digits, some way before the end; else the first such place, or the end."""
    last = len(view) - (_SETTLED if last_of_dense(view, LONGEST_DENSE) is None else _SETTLED_DENSE)
    before = max((at for at in range(1, last + 1) if _is_free(view, at)), default=0)
    return before or next((at for at in range(last + 1, len(view)) if _is_free(view, at)), len(view))


def _is_free(view: str, at: int) -> bool:
    left, right = view[at - 1], view[at]
    if right == " ":
        return left.isalpha() and view[at + 1 : at + 2].isalpha()
    return is_unspaced(left) and is_unspaced(right)
