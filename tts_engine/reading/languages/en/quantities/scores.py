"""Rules of scores with a hyphen that are no ranges: sets of tennis, draws."""

import re

from ....kit.patterns import PatternBehind
from ....kit.tokenizer import ScanState, compile_rules
from . import number_words as numbers

_SET = r"(?:6[-–][0-4]|[0-4][-–]6|7[-–][56]|[56][-–]7)(?: ?\(\d{1,2}(?:[-–]\d{1,2})?\))?"
_NUMBER = re.compile(r"\d+")
_TIE_BREAK = re.compile(r"7[-–]6 ?\(")
_NEXT_SET_AHEAD = re.compile(rf",(?!\d)| (?:and )?{_SET}(?![\w/-]|[.,:]\d)")
_PLAYED = re.compile(r"\b(?:w[io]ns?|los(?:t|es|ing)|beats?|def(?:eat(?:ed|s)?|\.)|sets?|fell|falls)(?!\w)")
_MAX_HOUR = 12
_MAX_BEHIND = 60  # characters before a score in which it is said that it was played
_DRAW_AHEAD = re.compile(r" (?:draw|tie|stalemate|deadlock)\b")
_DRAWN_BEHIND = PatternBehind(
    r"\b(?:drew|draw(?:s|n|ing)?|tie[ds]?|level|deadlocked|(?:end|finish)(?:ed|s)?)(?: (?:it|at|in))? \Z"
)


def _read_set(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "6-4" and "7-6 (5)" of a match; "ages 4-6" is a range."""
    context = scan.context
    follows_set = context.previous_word == "0" and context.word_before_number == "set"
    is_first = _NEXT_SET_AHEAD.match(scan.view, match.end()) and _PLAYED.search(
        scan.view, max(0, match.start() - _MAX_BEHIND), match.start()
    )
    if not (follows_set or is_first or _TIE_BREAK.match(match.group())):
        return None
    for number in _NUMBER.finditer(scan.view, *match.span()):
        scan.emit(numbers.cardinal(int(number.group())), *number.span())
    context.previous_word = "set"
    context.note_number()
    return match.end()


def _read_draw(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "a 2-2 draw", "they drew 2-2" and "20-20 vision"; "open 8-8" is a range."""
    is_drawn = _DRAWN_BEHIND.search(scan.view, match.start())
    if int(match.group(1)) <= _MAX_HOUR and not (is_drawn or _DRAW_AHEAD.match(scan.view, match.end())):
        return None
    number = numbers.cardinal(int(match.group(1)))
    scan.emit(f"{number} {'all' if is_drawn and number != 'zero' else number}", *match.span())
    scan.context.note_number()
    return match.end()


DIGIT_RULES = compile_rules(
    (rf"{_SET}(?![\w/-]|[.,:]\d)", _read_set),
    (r"(\d{1,3})[-–]\1(?![\w-]|[.,:/]\d)", _read_draw),
)
