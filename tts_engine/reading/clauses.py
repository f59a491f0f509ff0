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

from .scripts import is_unspaced
from .vocabulary import (
    ABBREVIATIONS,
    AFTER_HALF_DAY,
    HALF_DAYS,
    MONTH_OF,
    SCHEMES,
    STARTERS,
    WEEKDAY_OF,
    Abbreviation,
)


class Ending(Enum):
    """Why a piece of text ends where it ends."""

    CLAUSE = auto()
    SENTENCE = auto()
    PARAGRAPH = auto()
    CUT = auto()  # too long: no better place was found


@dataclass(frozen=True, slots=True)
class Boundary:
    """A safe place to cut: the piece ends before character ``stop`` of the view."""

    stop: int
    ending: Ending


class Verdict(Enum):
    """What is known of a place."""

    SAFE = auto()
    UNSAFE = auto()
    OPEN = auto()  # more text is needed


@dataclass(frozen=True, slots=True)
class Habits:
    """What a language writes with a mark that ends nothing.

    abbreviations: words, without their full stop. dotted: what "z.B." and its like are. ordinals: whether
    "3." may be the third.
    """

    abbreviations: Mapping[str, Abbreviation]
    weekdays: frozenset[str]
    dotted: Abbreviation
    ordinals: bool = False


_INNER = Abbreviation.INNER
_SHORT_MONTHS = {name.title(): _INNER for name in MONTH_OF if len(name) < 5 and name != "may"}
_SHORT_WEEKDAYS = {name.title(): _INNER for name in WEEKDAY_OF}
_ENDING = dict.fromkeys((*HALF_DAYS, "Ph.D", "am", "pm", "AM", "PM", "Am", "Pm"), Abbreviation.ENDING)
_NAME = re.compile(r"[A-Za-z]*")
ENGLISH = Habits(
    _ENDING | _SHORT_MONTHS | _SHORT_WEEKDAYS | {word: kind for word, (_, kind) in ABBREVIATIONS.items()},
    frozenset(WEEKDAY_OF),
    Abbreviation.ENDING,
)
_EVENT = re.compile(r"[,;:!?.—–\n。！？；：，、-]")
_CLOSERS = re.compile(r"[\"')\]*_`~.!?…]*")
_LETTERS = r"[^\W\d_]"
_ORDINARY = re.compile(rf"[\"'(\[*_`#>~]*({_LETTERS}+(?:['’-]{_LETTERS}+)*)[\"')\]*_`~]*\Z")
_OPENERS = "\"'([{*_`#<~"
_MONTH_DAY = re.compile(
    rf"(?:^|[\s(])(?:{'|'.join(MONTH_OF)})\.?\ +\d{{1,2}}(?:st|nd|rd|th)?\Z", re.IGNORECASE
)
_LIST_NUMBER = re.compile(r"(?:^|\n)[ *_#>]*\d{1,3}\Z")
_ORDINAL = re.compile(r"\d{1,2}(?:\.\d{1,2})?\Z")  # "3.", and the "24.12." of a date
_DOTTED = re.compile(rf"(?:{_LETTERS}\.)+{_LETTERS}\Z")
LONGEST_LINK_TEXT = 120  # characters between [ and ] that are waited for


def next_boundary(
    view: str, begin: int, *, final: bool, habits: Habits = ENGLISH
) -> tuple[Boundary | None, int]:
    """The first safe place in ``view`` at or after ``begin``.

    ``view`` starts where the last piece ended. ``final``: no more text will come. Also returns from where to
    look again when more text has come: everything before it is decided.
    """
    for event in _EVENT.finditer(view, begin):
        verdict, boundary = _judge(view, event.start(), final, habits)
        if verdict is Verdict.SAFE:
            return boundary, boundary.stop if boundary else event.end()
        if verdict is Verdict.OPEN:
            return None, event.start()
    return None, len(view)


def _judge(view: str, at: int, final: bool, habits: Habits) -> tuple[Verdict, Boundary | None]:
    match view[at]:
        case "\n":
            return _newline(view, at, final)
        case ".":
            return _stop(view, at, final, habits)
        case "-" | "–":
            return _spaced_dash(view, at, final)
        case "!" | "?":
            return _mark(view, at, final, Ending.SENTENCE, habits)
        case "。" | "！" | "？":
            return Verdict.SAFE, Boundary(at + 1, Ending.SENTENCE)
        case "，" | "、" | "；":
            return Verdict.SAFE, Boundary(at + 1, Ending.CLAUSE)
        case "：":
            return _wide_colon(view, at, final)
        case "—" if view[max(at - 1, 0)] in " —":
            return _spaced_dash(view, at, final)
        case _:
            return _mark(view, at, final, Ending.CLAUSE, habits)


def _wide_colon(view: str, at: int, final: bool) -> tuple[Verdict, Boundary | None]:
    """At once, unless it may stand in a time of day."""
    if view[max(at - 1, 0)].isdigit():
        if at + 1 == len(view) and not final:
            return Verdict.OPEN, None
        if view[at + 1 : at + 2].isdigit():
            return Verdict.UNSAFE, None
    return Verdict.SAFE, Boundary(at + 1, Ending.CLAUSE)


def _newline(view: str, at: int, final: bool) -> tuple[Verdict, Boundary | None]:
    """A line ends a sentence; two ends of line, with nothing between, a paragraph."""
    following = _next_visible(view, at + 1, skipped=" ")
    if following == len(view):
        if not final:
            return Verdict.OPEN, None
        return Verdict.SAFE, Boundary(following, Ending.SENTENCE)
    if view[following] == "\n":
        return Verdict.SAFE, Boundary(following + 1, Ending.PARAGRAPH)
    return Verdict.SAFE, Boundary(at + 1, Ending.SENTENCE)


def _stop(view: str, at: int, final: bool, habits: Habits) -> tuple[Verdict, Boundary | None]:
    """A full stop needs white space after it, and after anything but a plain word a fitting next letter."""
    after = _CLOSERS.match(view, at + 1)
    end = after.end() if after else at + 1
    if end == len(view):
        return (Verdict.SAFE, Boundary(end, Ending.SENTENCE)) if final else (Verdict.OPEN, None)
    if _inside_link(view, at):
        return Verdict.UNSAFE, None
    if view[end] != " ":
        if at and is_unspaced(view[at - 1]) and not view[end].isascii():
            return Verdict.SAFE, Boundary(end, Ending.SENTENCE)
        return Verdict.UNSAFE, None
    if view[at : at + 2] == "..":
        return _ellipsis(view, end, final)
    safe = Verdict.SAFE, Boundary(end, Ending.SENTENCE)
    core = view[_chunk_start(view, at) : at]
    word = core.lstrip(_OPENERS).rstrip("\"')]*_`~")
    kind = _abbreviation(word, habits)
    if kind is None and _is_ordinary(core, word):
        return safe
    following = _next_visible(view, end)
    if following == len(view):
        return safe if final else (Verdict.OPEN, None)
    if habits.ordinals and _ORDINAL.match(word):
        return Verdict.UNSAFE, None
    if kind is Abbreviation.ENDING and _DOTTED.match(word):
        verdict = _after_dotted(view, following, final, is_time=word in HALF_DAYS)
        if verdict is not Verdict.SAFE:
            return verdict, None
    if _is_safe_after_stop(view, at, word, kind, view[following]):
        return safe
    return Verdict.UNSAFE, None


def _is_ordinary(core: str, word: str) -> bool:
    """Whether it is a word and no initial."""
    return bool(_ORDINARY.match(core)) and (len(word) > 1 or word == "I" or is_unspaced(word))


def _after_dotted(view: str, following: int, final: bool, *, is_time: bool) -> Verdict:
    """ "5 p.m. Eastern" is one time, and "J.D. Power" one name."""
    name = _NAME.match(view, following)
    assert name is not None
    if not name.group():
        return Verdict.SAFE
    telling = AFTER_HALF_DAY if is_time else STARTERS
    if name.end() == len(view) and not final and any(one.startswith(name.group()) for one in telling):
        return Verdict.OPEN
    return Verdict.SAFE if (name.group() in telling) is not is_time else Verdict.UNSAFE


def _ellipsis(view: str, end: int, final: bool) -> tuple[Verdict, Boundary | None]:
    following = _next_visible(view, end)
    if following == len(view) and not final:
        return Verdict.OPEN, None
    ending = Ending.CLAUSE if view[following : following + 1].islower() else Ending.SENTENCE
    return Verdict.SAFE, Boundary(end, ending)


def _is_safe_after_stop(view: str, at: int, word: str, kind: Abbreviation | None, following: str) -> bool:
    begins_sentence = following.isupper() or following in _OPENERS
    match kind:
        case Abbreviation.TITLE | Abbreviation.INNER:
            return False
        case Abbreviation.NUMBERED:
            return word in ("No", "no") and following.isalpha()
        case Abbreviation.ENDING:
            return begins_sentence
    if _LIST_NUMBER.search(view, 0, at) and word.isdigit():
        return False
    if not word or (len(word) == 1 and word.isalpha()):
        return not word and (begins_sentence or following.isalpha())
    return not following.isdigit() or not word[-1].isdigit()


def _abbreviation(word: str, habits: Habits) -> Abbreviation | None:
    if word in habits.abbreviations:
        return habits.abbreviations[word]
    return habits.dotted if _DOTTED.match(word) else None


def _mark(view: str, at: int, final: bool, ending: Ending, habits: Habits) -> tuple[Verdict, Boundary | None]:
    """A comma and its like: at once after a plain word, else when the next letter shows that it is safe."""
    core = view[_chunk_start(view, at) : at]
    if _inside_link(view, at):
        return Verdict.UNSAFE, None
    plain = _ORDINARY.match(core)
    if plain and not _is_doubtful(plain.group(1), view[at], habits):
        return Verdict.SAFE, Boundary(at + 1, ending)
    after = _CLOSERS.match(view, at + 1)
    end = after.end() if after else at + 1
    if end == len(view):
        return (Verdict.SAFE, Boundary(end, ending)) if final else (Verdict.OPEN, None)
    if view[end] != " ":
        if is_unspaced(view[end]):
            return Verdict.SAFE, Boundary(end, ending)
        return Verdict.UNSAFE, None
    following = _next_visible(view, end)
    if following == len(view):
        return (Verdict.SAFE, Boundary(end, ending)) if final else (Verdict.OPEN, None)
    if _is_safe_after_mark(view, at, core, view[following], habits):
        return Verdict.SAFE, Boundary(end, ending)
    return Verdict.UNSAFE, None


def _is_doubtful(word: str, mark: str, habits: Habits) -> bool:
    lower = word.lower()
    return lower in habits.weekdays or (mark == ":" and lower in SCHEMES)


def _is_safe_after_mark(view: str, at: int, core: str, following: str, habits: Habits) -> bool:
    word = core.lstrip(_OPENERS).rstrip("\"')]*_`~")
    if not word or word.lower() in habits.weekdays:
        return False
    if not following.isdigit():
        return True
    if view[at] == ":":
        return not word[-1].isdigit()
    return not _MONTH_DAY.search(view, 0, at)


def _spaced_dash(view: str, at: int, final: bool) -> tuple[Verdict, Boundary | None]:
    """A dash between blanks is a pause, unless it stands between numbers or begins a line."""
    before = view[:at].rstrip(" —") if view[max(at - 1, 0)] in " —" else ""
    if not before or before[-1] == "\n":
        return Verdict.UNSAFE, None
    following = _next_visible(view, at + 1, skipped=" —-–")
    if following == len(view):
        return Verdict.UNSAFE if final else Verdict.OPEN, None
    spaced = view[at] == "—" or view[at + 1] == " "
    if not spaced or not view[following].isalpha() or not before[-1].isalpha() or _inside_link(view, at):
        return Verdict.UNSAFE, None
    return Verdict.SAFE, Boundary(at + 1, Ending.CLAUSE)


def _inside_link(view: str, at: int) -> bool:
    opened = view.rfind("[", max(0, at - LONGEST_LINK_TEXT), at)
    return opened > view.rfind("]", 0, at)


def _chunk_start(view: str, at: int) -> int:
    return max(view.rfind(" ", 0, at), view.rfind("\n", 0, at), view.rfind("—", 0, at)) + 1


def _next_visible(view: str, at: int, skipped: str = " \n") -> int:
    while at < len(view) and view[at] in skipped:
        at += 1
    return at
