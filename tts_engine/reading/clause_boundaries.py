"""Where running text may be cut so that nothing is read differently for the cut.

Pure functions of a text prefix: a place is decided once the characters that it depends on are there and
never changes afterwards, so the cuts do not depend on how the text arrived. What the words sound like is
``normalize.py``; whether a cut is taken is ``text.py``. The text here is folded (``normalize.fold``): its
only white space is the blank and the newline, its quotes and apostrophes are ASCII.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from .english.vocabulary import (
    ABBREVIATIONS,
    AM_PM,
    MONTH_NAMES,
    SENTENCE_STARTERS,
    URI_SCHEMES,
    WEEKDAY_NAMES,
    WORDS_AFTER_AM_PM,
    AbbreviationKind,
)
from .unicode_scripts import is_unspaced

MAX_CLAUSE_CHARACTERS = 400  # characters; a longer one is cut where nothing is read as one thing


class BoundaryKind(Enum):
    """Why a piece of text ends where it ends."""

    CLAUSE = auto()
    SENTENCE = auto()
    PARAGRAPH = auto()
    FORCED = auto()  # too long: no better place was found


@dataclass(frozen=True, slots=True)
class ClauseBoundary:
    """A safe place to cut: the piece ends before character ``stop`` of the view."""

    stop: int
    ending: BoundaryKind


class BoundaryDecision(Enum):
    """What is known of a place."""

    SAFE = auto()
    UNSAFE = auto()
    UNDECIDED = auto()  # more text is needed


@dataclass(frozen=True, slots=True)
class BoundaryRules:
    """What a language writes with a mark that ends nothing.

    abbreviations: words, without their full stop. dotted: what "z.B." and its like are. ordinals: whether
    "3." may be the third.
    """

    abbreviations: Mapping[str, AbbreviationKind]
    weekdays: frozenset[str]
    dotted_kind: AbbreviationKind
    ordinal_stops: bool = False


_MID_SENTENCE = AbbreviationKind.MID_SENTENCE
_SHORT_MONTHS = {name.title(): _MID_SENTENCE for name in MONTH_NAMES if len(name) < 5 and name != "may"}
_SHORT_WEEKDAYS = {name.title(): _MID_SENTENCE for name in WEEKDAY_NAMES}
_MAY_END_SENTENCE = dict.fromkeys(
    (*AM_PM, "Ph.D", "am", "pm", "AM", "PM", "Am", "Pm"), AbbreviationKind.MAY_END_SENTENCE
)
_LATIN_WORD = re.compile(r"[A-Za-z]*")
ENGLISH_BOUNDARY_RULES = BoundaryRules(
    _MAY_END_SENTENCE
    | _SHORT_MONTHS
    | _SHORT_WEEKDAYS
    | {word: kind for word, (_, kind) in ABBREVIATIONS.items()},
    frozenset(WEEKDAY_NAMES),
    AbbreviationKind.MAY_END_SENTENCE,
)
_CANDIDATE_MARK = re.compile(r"[,;:!?.—–\n。！？；：，、-]")
_CLOSING_MARKS = re.compile(r"[\"')\]*_`~.!?…]*")
_LETTER = r"[^\W\d_]"
_ORDINARY_WORD = re.compile(rf"[\"'(\[*_`#>~]*({_LETTER}+(?:['’-]{_LETTER}+)*)[\"')\]*_`~]*\Z")
_OPENING_MARKS = "\"'([{*_`#<~"
_MONTH_DAY = re.compile(
    rf"(?:^|[\s(])(?:{'|'.join(MONTH_NAMES)})\.?\ +\d{{1,2}}(?:st|nd|rd|th)?\Z", re.IGNORECASE
)
_LIST_NUMBER = re.compile(r"(?:^|\n)[ *_#>]*\d{1,3}\Z")
_ORDINAL_NUMBER = re.compile(r"\d{1,2}(?:\.\d{1,2})?\Z")  # "3.", and the "24.12." of a date
_DOTTED_ABBREVIATION = re.compile(rf"(?:{_LETTER}\.)+{_LETTER}\Z")
MAX_LINK_TEXT_CHARACTERS = 120  # characters between [ and ] that are waited for


def next_boundary(
    view: str, begin: int, *, final: bool, boundary_rules: BoundaryRules = ENGLISH_BOUNDARY_RULES
) -> tuple[ClauseBoundary | None, int]:
    """The first safe place in ``view`` at or after ``begin``.

    ``view`` starts where the last piece ended. ``final``: no more text will come. Also returns from where to
    look again when more text has come: everything before it is decided.
    """
    for event in _CANDIDATE_MARK.finditer(view, begin):
        decision, boundary = _decide(view, event.start(), final, boundary_rules)
        if decision is BoundaryDecision.SAFE:
            return boundary, boundary.stop if boundary else event.end()
        if decision is BoundaryDecision.UNDECIDED:
            return None, event.start()
    return None, len(view)


def _decide(
    view: str, at: int, final: bool, boundary_rules: BoundaryRules
) -> tuple[BoundaryDecision, ClauseBoundary | None]:
    match view[at]:
        case "\n":
            return _decide_newline(view, at, final)
        case ".":
            return _decide_full_stop(view, at, final, boundary_rules)
        case "-" | "–":
            return _decide_dash(view, at, final)
        case "!" | "?":
            return _decide_mark(view, at, final, BoundaryKind.SENTENCE, boundary_rules)
        case "。" | "！" | "？":
            return BoundaryDecision.SAFE, ClauseBoundary(at + 1, BoundaryKind.SENTENCE)
        case "，" | "、" | "；":
            return BoundaryDecision.SAFE, ClauseBoundary(at + 1, BoundaryKind.CLAUSE)
        case "：":
            return _decide_wide_colon(view, at, final)
        case "—" if view[max(at - 1, 0)] in " —":
            return _decide_dash(view, at, final)
        case _:
            return _decide_mark(view, at, final, BoundaryKind.CLAUSE, boundary_rules)


def _decide_wide_colon(view: str, at: int, final: bool) -> tuple[BoundaryDecision, ClauseBoundary | None]:
    """At once, unless it may stand in a time of day."""
    if view[max(at - 1, 0)].isdigit():
        if at + 1 == len(view) and not final:
            return BoundaryDecision.UNDECIDED, None
        if view[at + 1 : at + 2].isdigit():
            return BoundaryDecision.UNSAFE, None
    return BoundaryDecision.SAFE, ClauseBoundary(at + 1, BoundaryKind.CLAUSE)


def _decide_newline(view: str, at: int, final: bool) -> tuple[BoundaryDecision, ClauseBoundary | None]:
    """A line ends a sentence; two ends of line, with nothing between, a paragraph."""
    following = _next_visible(view, at + 1, skipped=" ")
    if following == len(view):
        if not final:
            return BoundaryDecision.UNDECIDED, None
        return BoundaryDecision.SAFE, ClauseBoundary(following, BoundaryKind.SENTENCE)
    if view[following] == "\n":
        return BoundaryDecision.SAFE, ClauseBoundary(following + 1, BoundaryKind.PARAGRAPH)
    return BoundaryDecision.SAFE, ClauseBoundary(at + 1, BoundaryKind.SENTENCE)


def _decide_full_stop(
    view: str, at: int, final: bool, boundary_rules: BoundaryRules
) -> tuple[BoundaryDecision, ClauseBoundary | None]:
    """A full stop needs white space after it, and after anything but a plain word a fitting next letter."""
    after = _CLOSING_MARKS.match(view, at + 1)
    end = after.end() if after else at + 1
    if end == len(view):
        return (
            (BoundaryDecision.SAFE, ClauseBoundary(end, BoundaryKind.SENTENCE))
            if final
            else (BoundaryDecision.UNDECIDED, None)
        )
    if _inside_link(view, at):
        return BoundaryDecision.UNSAFE, None
    if view[end] != " ":
        if at and is_unspaced(view[at - 1]) and not view[end].isascii():
            return BoundaryDecision.SAFE, ClauseBoundary(end, BoundaryKind.SENTENCE)
        return BoundaryDecision.UNSAFE, None
    if view[at : at + 2] == "..":
        return _decide_ellipsis(view, end, final)
    safe = BoundaryDecision.SAFE, ClauseBoundary(end, BoundaryKind.SENTENCE)
    token = view[_token_start(view, at) : at]
    word = token.lstrip(_OPENING_MARKS).rstrip("\"')]*_`~")
    kind = _abbreviation_kind(word, boundary_rules)
    if kind is None and _is_ordinary_word(token, word):
        return safe
    following = _next_visible(view, end)
    if following == len(view):
        return safe if final else (BoundaryDecision.UNDECIDED, None)
    if boundary_rules.ordinal_stops and _ORDINAL_NUMBER.match(word):
        return BoundaryDecision.UNSAFE, None
    if kind is AbbreviationKind.MAY_END_SENTENCE and _DOTTED_ABBREVIATION.match(word):
        decision = _decide_after_dotted_abbreviation(view, following, final, is_time=word in AM_PM)
        if decision is not BoundaryDecision.SAFE:
            return decision, None
    if _is_safe_after_stop(view, at, word, kind, view[following]):
        return safe
    return BoundaryDecision.UNSAFE, None


def _is_ordinary_word(token: str, word: str) -> bool:
    """Whether it is a word and no initial."""
    return bool(_ORDINARY_WORD.match(token)) and (len(word) > 1 or word == "I" or is_unspaced(word))


def _decide_after_dotted_abbreviation(
    view: str, following: int, final: bool, *, is_time: bool
) -> BoundaryDecision:
    """ "5 p.m. Eastern" is one time, and "J.D. Power" one name."""
    name = _LATIN_WORD.match(view, following)
    assert name is not None
    if not name.group():
        return BoundaryDecision.SAFE
    deciding_words = WORDS_AFTER_AM_PM if is_time else SENTENCE_STARTERS
    if name.end() == len(view) and not final and any(one.startswith(name.group()) for one in deciding_words):
        return BoundaryDecision.UNDECIDED
    return (
        BoundaryDecision.SAFE if (name.group() in deciding_words) is not is_time else BoundaryDecision.UNSAFE
    )


def _decide_ellipsis(view: str, end: int, final: bool) -> tuple[BoundaryDecision, ClauseBoundary | None]:
    following = _next_visible(view, end)
    if following == len(view) and not final:
        return BoundaryDecision.UNDECIDED, None
    ending = BoundaryKind.CLAUSE if view[following : following + 1].islower() else BoundaryKind.SENTENCE
    return BoundaryDecision.SAFE, ClauseBoundary(end, ending)


def _is_safe_after_stop(view: str, at: int, word: str, kind: AbbreviationKind | None, following: str) -> bool:
    begins_sentence = following.isupper() or following in _OPENING_MARKS
    match kind:
        case AbbreviationKind.TITLE | AbbreviationKind.MID_SENTENCE:
            return False
        case AbbreviationKind.NUMBERED:
            return word in ("No", "no") and following.isalpha()
        case AbbreviationKind.MAY_END_SENTENCE:
            return begins_sentence
    if _LIST_NUMBER.search(view, 0, at) and word.isdigit():
        return False
    if not word or (len(word) == 1 and word.isalpha()):
        return not word and (begins_sentence or following.isalpha())
    return not following.isdigit() or not word[-1].isdigit()


def _abbreviation_kind(word: str, boundary_rules: BoundaryRules) -> AbbreviationKind | None:
    if word in boundary_rules.abbreviations:
        return boundary_rules.abbreviations[word]
    return boundary_rules.dotted_kind if _DOTTED_ABBREVIATION.match(word) else None


def _decide_mark(
    view: str, at: int, final: bool, ending: BoundaryKind, boundary_rules: BoundaryRules
) -> tuple[BoundaryDecision, ClauseBoundary | None]:
    """A comma and its like: at once after a plain word, else when the next letter shows that it is safe."""
    token = view[_token_start(view, at) : at]
    if _inside_link(view, at):
        return BoundaryDecision.UNSAFE, None
    ordinary = _ORDINARY_WORD.match(token)
    if ordinary and not _needs_next_letter(ordinary.group(1), view[at], boundary_rules):
        return BoundaryDecision.SAFE, ClauseBoundary(at + 1, ending)
    after = _CLOSING_MARKS.match(view, at + 1)
    end = after.end() if after else at + 1
    if end == len(view):
        return (
            (BoundaryDecision.SAFE, ClauseBoundary(end, ending))
            if final
            else (BoundaryDecision.UNDECIDED, None)
        )
    if view[end] != " ":
        if is_unspaced(view[end]):
            return BoundaryDecision.SAFE, ClauseBoundary(end, ending)
        return BoundaryDecision.UNSAFE, None
    following = _next_visible(view, end)
    if following == len(view):
        return (
            (BoundaryDecision.SAFE, ClauseBoundary(end, ending))
            if final
            else (BoundaryDecision.UNDECIDED, None)
        )
    if _is_safe_after_mark(view, at, token, view[following], boundary_rules):
        return BoundaryDecision.SAFE, ClauseBoundary(end, ending)
    return BoundaryDecision.UNSAFE, None


def _needs_next_letter(word: str, mark: str, boundary_rules: BoundaryRules) -> bool:
    lower = word.lower()
    return lower in boundary_rules.weekdays or (mark == ":" and lower in URI_SCHEMES)


def _is_safe_after_mark(
    view: str, at: int, token: str, following: str, boundary_rules: BoundaryRules
) -> bool:
    word = token.lstrip(_OPENING_MARKS).rstrip("\"')]*_`~")
    if not word or word.lower() in boundary_rules.weekdays:
        return False
    if not following.isdigit():
        return True
    if view[at] == ":":
        return not word[-1].isdigit()
    return not _MONTH_DAY.search(view, 0, at)


def _decide_dash(view: str, at: int, final: bool) -> tuple[BoundaryDecision, ClauseBoundary | None]:
    """A dash between blanks is a pause, unless it stands between numbers or begins a line."""
    before = view[:at].rstrip(" —") if view[max(at - 1, 0)] in " —" else ""
    if not before or before[-1] == "\n":
        return BoundaryDecision.UNSAFE, None
    following = _next_visible(view, at + 1, skipped=" —-–")
    if following == len(view):
        return BoundaryDecision.UNSAFE if final else BoundaryDecision.UNDECIDED, None
    spaced = view[at] == "—" or view[at + 1] == " "
    if not spaced or not view[following].isalpha() or not before[-1].isalpha() or _inside_link(view, at):
        return BoundaryDecision.UNSAFE, None
    return BoundaryDecision.SAFE, ClauseBoundary(at + 1, BoundaryKind.CLAUSE)


def _inside_link(view: str, at: int) -> bool:
    opened = view.rfind("[", max(0, at - MAX_LINK_TEXT_CHARACTERS), at)
    return opened > view.rfind("]", 0, at)


def _token_start(view: str, at: int) -> int:
    return max(view.rfind(" ", 0, at), view.rfind("\n", 0, at), view.rfind("—", 0, at)) + 1


def _next_visible(view: str, at: int, skipped: str = " \n") -> int:
    while at < len(view) and view[at] in skipped:
        at += 1
    return at
