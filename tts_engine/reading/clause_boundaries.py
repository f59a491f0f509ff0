"""Boundaries at which running text may be cut without changing how any of it is read.

Pure functions of a prefix of the text. A position is decided as soon as the characters that it depends on
have arrived, and the decision never changes; so the boundaries do not depend on how the text was split into
pushes. The text is folded (``folding.fold``): its only white space is the blank and the newline, its quotes
and apostrophes are ASCII. Abbreviations and other language facts come in as ``BoundaryRules``. Which of the
boundaries end a segment is decided in ``tts_engine/segmenter.py``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from .open_formula import (
    TEX_OPENING,
    continues_formula,
    ends_with_term,
    is_inside_list,
    is_inside_tex,
    may_be_factorial,
)
from .unicode_scripts import is_unspaced

MAX_CLAUSE_CHARACTERS = 400  # a clause without a boundary is cut after so many characters
MAX_LINK_TEXT_CHARACTERS = 120  # longest text between [ and ] for whose end a boundary waits
_URI_SCHEMES = frozenset({"http", "https", "ftp", "mailto", "tel", "sip", "sips", "ws", "wss"})
# Before the port of "localhost:8080"
SERVICE_NAMES = frozenset(
    "localhost redis postgres postgresql mysql mongo mongodb kafka rabbitmq nginx etcd".split()
)
_RANGE_DASH = re.compile(r"(?<=\d)[-–](?=[^\W\d])")
_CANDIDATE_MARK = re.compile(r"[,;:!?.—–\n。！？；：，、-]")
_CLOSING_MARKS = re.compile(r"[\"')\]*_`~.!?…]*")
_OPENING_MARKS = "\"'([{*_`#<~"
_WORD_CLOSERS = "\"')]*_`~"
_LETTER = r"[^\W\d_]"
_ORDINARY_WORD = re.compile(rf"[\"'(\[*_`#>~]*({_LETTER}+(?:['’-]{_LETTER}+)*)[\"')\]*_`~]*\Z")
_LATIN_WORD = re.compile(r"[A-Za-z]*")
_LIST_NUMBER = re.compile(r"(?:^|\n)[ *_#>]*\d{1,3}\Z")
# "3.", the "24.12." of a date, and the "3.-7." of a range
_ORDINAL_NUMBER = re.compile(r"(?:\d{1,2}\.(?:\d{1,2}\.)?[-–/])?\d{1,2}(?:\.\d{1,2})?\Z")
# Before it: "Mon/Fri", "25-Dec", "d'oct"
_LAST_PART = re.compile(r".*(?:/|[\d.]-)|\A(?i:d|l|(?:a|da|de|ne|su)ll)'")
_DOTTED_ABBREVIATION = re.compile(rf"(?:{_LETTER}\.)+{_LETTER}\Z")


class BoundaryKind(Enum):
    """Kind of place at which a clause ends."""

    CLAUSE = auto()
    ELLIPSIS = auto()  # the same sentence goes on after a longer pause
    SENTENCE = auto()
    PARAGRAPH = auto()
    FORCED = auto()  # the clause was too long and had no better place


class AbbreviationKind(Enum):
    """Kind of text that may follow the full stop of an abbreviation."""

    TITLE = auto()  # a name; the stop never ends a sentence
    NUMBERED = auto()  # a number; without one the abbreviation is an ordinary word and its stop a full stop
    MID_SENTENCE = auto()  # the same sentence continues: "e.g.", "approx."
    MAY_END_SENTENCE = auto()  # either; a capital after the stop begins a new sentence


@dataclass(frozen=True, slots=True)
class ClauseBoundary:
    """Boundary before character ``stop`` of the view."""

    stop: int
    kind: BoundaryKind


class NoBoundary(Enum):
    """Reason why a position is not a boundary."""

    UNSAFE = auto()
    UNDECIDED = auto()  # depends on text that has not arrived


@dataclass(frozen=True, slots=True)
class BoundarySearch:
    """Result of a search for the next boundary.

    ``decided_until``: position from which to search again when more text has arrived.
    """

    boundary: ClauseBoundary | None
    decided_until: int


@dataclass(frozen=True, slots=True)
class BoundaryRules:
    """Language facts on marks that do not end a clause. Words are written without their last full stop."""

    abbreviations: Mapping[str, AbbreviationKind] = field(default_factory=dict)
    dotted_kind: AbbreviationKind = (
        AbbreviationKind.MAY_END_SENTENCE
    )  # kind of "z.B." and other letters with stops
    abbreviated_endings: tuple[str, ...] = ()  # of longer words: the "str" of "Goethestr."
    ordinal_stops: bool = False  # "3." may be an ordinal
    weekdays: frozenset[str] = frozenset()  # lower case; a date may follow their comma
    listed_weekdays: frozenset[str] = frozenset()  # as written; another may follow their comma: "Mo, Di"
    month_day: re.Pattern[str] | None = None  # month and day, after whose comma a year may follow
    times_of_day: frozenset[str] = frozenset()  # "a.m", "p.m"
    words_after_time: frozenset[str] = frozenset()  # continue the sentence after one of these
    sentence_starters: frozenset[str] = frozenset()  # begin a sentence after "U.S." and its like
    sentence_words: frozenset[str] = frozenset()  # numbered abbreviations that are sentences too: "No."
    words_before_answers: frozenset[str] = frozenset()  # "is" before "no."; after others it is no sentence
    numbered_nouns: frozenset[str] = frozenset()  # before these abbreviations: "policy no. A-113"
    name_suffixes: frozenset[str] = frozenset()  # "Jr", after which a street's name may go on
    street_words: frozenset[str] = frozenset()  # "Blvd", with a capital
    range_start: re.Pattern[str] | None = None  # what a dash after it joins to the end of a range: "Monday"
    unit_stop: re.Pattern[str] | None = None  # unit that is a word too, with its number: "6 in"


def next_boundary(view: str, begin: int, boundary_rules: BoundaryRules, *, final: bool) -> BoundarySearch:
    """Find the first boundary in ``view`` that is decided by a mark at or after ``begin``.

    ``view`` starts where the last clause ended. ``final``: no more text will arrive.
    """
    has_tex = ("$" in view or "\\" in view) and TEX_OPENING.search(view) is not None
    for mark in _CANDIDATE_MARK.finditer(view, begin):
        if has_tex and is_inside_tex(view, mark.start()):
            continue
        found = _decide(view, mark.start(), final, boundary_rules)
        if found is NoBoundary.UNDECIDED:
            return BoundarySearch(None, mark.start())
        if isinstance(found, ClauseBoundary):
            return BoundarySearch(found, found.stop)
    return BoundarySearch(None, len(view))


def _decide(view: str, at: int, final: bool, rules: BoundaryRules) -> ClauseBoundary | NoBoundary:
    match view[at]:
        case "\n":
            return _decide_newline(view, at, final)
        case ".":
            return _decide_full_stop(view, at, final, rules)
        case "-" | "–":
            return _decide_dash(view, at, final, rules)
        case "!" | "?":
            return _decide_mark(view, at, final, BoundaryKind.SENTENCE, rules)
        case "。" | "！" | "？":
            return ClauseBoundary(at + 1, BoundaryKind.SENTENCE)
        case "，" | "、" | "；":
            return ClauseBoundary(at + 1, BoundaryKind.CLAUSE)
        case "：":
            return _decide_wide_colon(view, at, final)
        case "—" if view[max(at - 1, 0)] in " —":
            return _decide_dash(view, at, final, rules)
        case _:
            return _decide_mark(view, at, final, BoundaryKind.CLAUSE, rules)


def _decide_wide_colon(view: str, at: int, final: bool) -> ClauseBoundary | NoBoundary:
    """Between digits a wide colon may belong to a time of day; elsewhere it ends a clause at once."""
    if view[max(at - 1, 0)].isdigit():
        if at + 1 == len(view) and not final:
            return NoBoundary.UNDECIDED
        if view[at + 1 : at + 2].isdigit():
            return NoBoundary.UNSAFE
    return ClauseBoundary(at + 1, BoundaryKind.CLAUSE)


def _decide_newline(view: str, at: int, final: bool) -> ClauseBoundary | NoBoundary:
    """One newline ends a sentence; two with nothing between them end a paragraph."""
    following = _next_visible(view, at + 1, skipped=" ")
    if following == len(view):
        return _at_end(following, BoundaryKind.SENTENCE, final)
    if view[following] == "\n":
        return ClauseBoundary(following + 1, BoundaryKind.PARAGRAPH)
    return ClauseBoundary(at + 1, BoundaryKind.SENTENCE)


def _decide_full_stop(view: str, at: int, final: bool, rules: BoundaryRules) -> ClauseBoundary | NoBoundary:
    """A full stop needs a blank after it and, after anything but a plain word, a fitting next letter."""
    end = _end_of_closing_marks(view, at)
    if end == len(view):
        return _at_end(end, BoundaryKind.SENTENCE, final)
    if _inside_link(view, at):
        return NoBoundary.UNSAFE
    if view[end] != " ":
        unspaced = at and is_unspaced(view[at - 1]) and not view[end].isascii()
        return ClauseBoundary(end, BoundaryKind.SENTENCE) if unspaced else NoBoundary.UNSAFE
    if view[at : at + 2] == "..":
        return _decide_ellipsis(view, end, final)
    token = view[_token_start(view, at) : at]
    word = _bare_word(token)
    kind = _abbreviation_kind(word, rules) or _abbreviation_kind(_LAST_PART.sub("", word), rules)
    if rules.unit_stop is not None and rules.unit_stop.search(view, 0, at):
        kind = AbbreviationKind.MAY_END_SENTENCE
    if kind is None and word.endswith(rules.abbreviated_endings):
        kind = AbbreviationKind.MAY_END_SENTENCE
    if kind is None and _is_ordinary_word(token, word):
        return ClauseBoundary(end, BoundaryKind.SENTENCE)
    following = _next_visible(view, end)
    if following == len(view):
        return _at_end(end, BoundaryKind.SENTENCE, final)
    is_long_ordinal = word.isdigit() and view[following].islower()  # "112. madde"
    if rules.ordinal_stops and (is_long_ordinal or _ORDINAL_NUMBER.match(word)):
        return NoBoundary.UNSAFE
    if kind is AbbreviationKind.MAY_END_SENTENCE and _DOTTED_ABBREVIATION.match(word):
        # "5 p.m. Eastern" is one time, "J.D. Power" one name.
        is_time = word in rules.times_of_day
        words = rules.words_after_time if is_time else rules.sentence_starters
        if (refusal := _refusal_by_next_word(view, following, final, words, continue_it=is_time)) is not None:
            return refusal
    if word in rules.name_suffixes:  # "MLK Jr. Blvd."
        words = rules.street_words
        if (refusal := _refusal_by_next_word(view, following, final, words, continue_it=True)) is not None:
            return refusal
    if _is_safe_after_stop(view, at, word, kind, view[following], rules):
        return ClauseBoundary(end, BoundaryKind.SENTENCE)
    return NoBoundary.UNSAFE


def _at_end(stop: int, kind: BoundaryKind, final: bool) -> ClauseBoundary | NoBoundary:
    """Decide a mark with nothing after it: more text may change it unless the text is final."""
    return ClauseBoundary(stop, kind) if final else NoBoundary.UNDECIDED


def _is_ordinary_word(token: str, word: str) -> bool:
    """Whether the token is a word and not an initial: "I" is a pronoun or a Roman numeral."""
    return bool(_ORDINARY_WORD.match(token)) and (len(word) > 1 or word == "I" or is_unspaced(word))


def _refusal_by_next_word(
    view: str, following: int, final: bool, words: frozenset[str], *, continue_it: bool
) -> NoBoundary | None:
    """Refuse a boundary if the next word, in Latin letters, goes on with the sentence.

    continue_it: whether one of ``words`` does, or any but them.
    """
    name = _LATIN_WORD.match(view, following)
    if name is None or not name.group():
        return None
    if name.end() == len(view) and not final and any(one.startswith(name.group()) for one in words):
        return NoBoundary.UNDECIDED
    return NoBoundary.UNSAFE if (name.group() in words) is continue_it else None


def _decide_ellipsis(view: str, end: int, final: bool) -> ClauseBoundary | NoBoundary:
    following = _next_visible(view, end)
    if following == len(view) and not final:
        return NoBoundary.UNDECIDED
    word = _LATIN_WORD.match(view, following)
    if word is not None and word.group() == "I" and word.end() == len(view) and not final:
        return NoBoundary.UNDECIDED
    continues = view[following : following + 1].islower() or (word is not None and word.group() == "I")
    return ClauseBoundary(end, BoundaryKind.ELLIPSIS if continues else BoundaryKind.SENTENCE)


def _is_safe_after_stop(
    view: str, at: int, word: str, kind: AbbreviationKind | None, following: str, rules: BoundaryRules
) -> bool:
    begins_sentence = following.isupper() or following in _OPENING_MARKS
    match kind:
        case AbbreviationKind.TITLE | AbbreviationKind.MID_SENTENCE:
            return False
        case AbbreviationKind.NUMBERED:
            noun = _word_before(view, _token_start(view, at)).rpartition("-")[2]  # of "e-ticket no."
            is_number = following.islower() and word.islower() and noun.rstrip(".").replace("'", "").isalpha()
            if noun.rstrip(".") in rules.numbered_nouns or (
                is_number and noun not in rules.words_before_answers
            ):
                return False
            return word in rules.sentence_words and following.isalpha()
        case AbbreviationKind.MAY_END_SENTENCE:
            return begins_sentence
    if _LIST_NUMBER.search(view, 0, at) and word.isdigit():
        return False
    if not word or (len(word) == 1 and word.isalpha()):
        return not word and (begins_sentence or following.isalpha())
    return not following.isdigit() or not word[-1].isdigit()


def _abbreviation_kind(word: str, rules: BoundaryRules) -> AbbreviationKind | None:
    word = _RANGE_DASH.split(word)[-1]  # "25-Dec."
    if word in rules.abbreviations:
        return rules.abbreviations[word]
    return rules.dotted_kind if _DOTTED_ABBREVIATION.match(word) else None


def _decide_mark(
    view: str, at: int, final: bool, kind: BoundaryKind, rules: BoundaryRules
) -> ClauseBoundary | NoBoundary:
    """A comma or its like: safe at once after a plain word, else if the next letter shows that it is."""
    token = view[_token_start(view, at) : at]
    if _inside_link(view, at) or (view[at] == "," and "(" in view and is_inside_list(view, at)):
        return NoBoundary.UNSAFE
    if view[at] == "!" and may_be_factorial(view, at):
        following = _next_visible(view, at + 1, skipped=" ")
        if following == len(view) and not final:
            return NoBoundary.UNDECIDED
        if continues_formula(view[following : following + 1]):
            return NoBoundary.UNSAFE
    ordinary = _ORDINARY_WORD.match(token)
    if ordinary and not _needs_next_letter(ordinary.group(1), view[at], rules):
        # Like a full stop, a mark at the end of the text waits: the last sentence has no pause after it.
        if kind is BoundaryKind.SENTENCE and at + 1 == len(view):
            return _at_end(at + 1, kind, final)
        if kind is BoundaryKind.SENTENCE and view[at + 1].isdigit() and view[at - 1].isascii():
            return NoBoundary.UNSAFE  # "Tide!2026", a password
        return ClauseBoundary(at + 1, kind)
    end = _end_of_closing_marks(view, at)
    if end == len(view):
        return _at_end(end, kind, final)
    if view[end] != " ":
        return ClauseBoundary(end, kind) if is_unspaced(view[end]) else NoBoundary.UNSAFE
    following = _next_visible(view, end)
    if following == len(view):
        return _at_end(end, kind, final)
    if _is_safe_after_mark(view, at, token, view[following], rules):
        return ClauseBoundary(end, kind)
    return NoBoundary.UNSAFE


def _needs_next_letter(word: str, mark: str, rules: BoundaryRules) -> bool:
    lower = word.lower()
    is_drive_or_scheme = len(word) == 1 or lower in _URI_SCHEMES | SERVICE_NAMES  # "C:\Users", "https://"
    is_weekday = lower in rules.weekdays or word in rules.listed_weekdays
    return is_weekday or (mark == ":" and is_drive_or_scheme)


def _is_safe_after_mark(view: str, at: int, token: str, following: str, rules: BoundaryRules) -> bool:
    word = _bare_word(token)
    if not word or word.lower() in rules.weekdays or (view[at] == "," and word in rules.listed_weekdays):
        return False
    if not following.isdigit():
        return True
    if view[at] == ":":
        return not word[-1].isdigit()
    return rules.month_day is None or not rules.month_day.search(view, 0, at)


def _decide_dash(view: str, at: int, final: bool, rules: BoundaryRules) -> ClauseBoundary | NoBoundary:
    """A dash between blanks is a pause unless it stands between numbers or begins a line."""
    before = view[:at].rstrip(" —") if view[max(at - 1, 0)] in " —" else ""
    if not before or before[-1] == "\n":
        return NoBoundary.UNSAFE
    if ends_with_term(before) or (rules.range_start is not None and rules.range_start.search(before)):
        return NoBoundary.UNSAFE
    following = _next_visible(view, at + 1, skipped=" —-–")
    if following == len(view):
        return NoBoundary.UNSAFE if final else NoBoundary.UNDECIDED
    spaced = view[at] == "—" or view[at + 1] == " "
    if not spaced or not view[following].isalpha() or not before[-1].isalpha() or _inside_link(view, at):
        return NoBoundary.UNSAFE
    return ClauseBoundary(at + 1, BoundaryKind.CLAUSE)


def _inside_link(view: str, at: int) -> bool:
    """Whether ``at`` is inside the [text] of a Markdown link."""
    opened = view.rfind("[", max(0, at - MAX_LINK_TEXT_CHARACTERS), at)
    return opened > view.rfind("]", 0, at)


def _bare_word(token: str) -> str:
    return token.lstrip(_OPENING_MARKS).rstrip(_WORD_CLOSERS)


def _word_before(view: str, at: int) -> str:
    """Return the word that ends before ``at``, in lower case."""
    before = view[:at].rstrip(" ")
    return _bare_word(before[_token_start(before, len(before)) :]).lower()


def _token_start(view: str, at: int) -> int:
    return max(view.rfind(" ", 0, at), view.rfind("\n", 0, at), view.rfind("—", 0, at)) + 1


def _end_of_closing_marks(view: str, at: int) -> int:
    """Return the position after the mark at ``at`` and the quotes, brackets and marks that close with it."""
    closing = _CLOSING_MARKS.match(view, at + 1)
    return closing.end() if closing else at + 1


def _next_visible(view: str, at: int, skipped: str = " \n") -> int:
    while at < len(view) and view[at] in skipped:
        at += 1
    return at
