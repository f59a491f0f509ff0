"""Rules of weekdays: "Tue", "Mon-Fri", and the letters of opening hours and timetables: "M-Th", "MWF"."""

import re

from ...kit.tokenizer import ScanState, any_of, compile_capital_rules
from . import vocabulary
from .dates import MONTH, WEEKDAY
from .word_context import note_english_word

_FULL_WEEKDAY = r"(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)s?"
_BETWEEN_WEEKDAYS = r"(?:, ?|,? ?(?:and|or|&) ?)"
_WEEKDAY_AHEAD = re.compile(rf"\.?{_BETWEEN_WEEKDAYS}{WEEKDAY}(?!\w)")
_WEEKDAY_BEHIND = re.compile(rf"\b{WEEKDAY}\.?{_BETWEEN_WEEKDAYS}\Z")
_BEFORE_WEEKDAY = frozenset(("next", "last", "every", "until", "through", "by", "each", "coming", "past"))
_BEFORE_HOURS = frozenset(("hours", "hrs", "meets", "class", "classes", "lecture", "lab", "open"))
_AFTER_WEEKDAY = re.compile(
    r" (?:(?:at|around|from|before|after) (?:\d|noon)|(?:morning|afternoon|evening|night|noon|closed|open)\b)"
)
# Letters of weekdays: one is a day beside another, and two are where a time follows.
_DAY = any_of(vocabulary.WEEKDAY_LETTERS)
_TWO_LETTER_DAY = any_of(letters for letters in vocabulary.WEEKDAY_LETTERS if len(letters) > 1)
_TIME = r"\d{1,2}(?::\d\d)?(?: ?[AaPp]\.?[Mm]?\.?)?"
_TIME_AHEAD = rf"(?=:?,? +(?:from )?{_TIME}(?: ?[-–]|[,.;)]| to|$)|[,.:]? ?$)"
_LETTERS = re.compile(_DAY)
# "M-F 9-5"; "Tu-Sa" without a time
_LETTER_RANGE = (
    rf"(?:{_DAY})[-–](?:{_DAY})(?!\w){_TIME_AHEAD}"
    rf"|(?:(?:{_DAY})[-–](?:{_TWO_LETTER_DAY})|(?:{_TWO_LETTER_DAY})[-–](?:{_DAY}))(?![\w-])"
)
# "M/W 9-10"; "Tu/Th", "M/W/F"; "MWF", "MW 9:00-9:50"; "Sa 9-5"
_LETTER_LIST = (
    rf"(?:{_DAY})(?:/(?:{_DAY}))+(?![\w/]){_TIME_AHEAD}"
    rf"|(?:(?:{_DAY})/(?:{_TWO_LETTER_DAY})|(?:{_TWO_LETTER_DAY})/(?:{_DAY})|M/W/F)(?:/(?:{_DAY}))*(?![\w/])"
    r"|(?:MWF|M?TT[Hh]|M?TuW?Th|MTWT[Hh]F?|M(?:Tu?)?WThF?)(?!\w)"
    rf"|(?:MW|WF|TWT[Hh])(?= {_TIME} ?[-–])"
    r"|(?:Tu|Th|Sa|Su)(?=:? +\d{1,2}(?::\d\d)?(?: ?[AaPp][Mm]?)? ?[-–] ?\d|: ?$"
    r"| \d{1,2}/\d{1,2}(?![\w/])| (?:closed|open)\b)"
)


def _read_weekday(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "Tue" before a date or with a full stop; "far from the Sun." is of the star."""
    ends = match.end() > match.end(1) and not (scan.next_visible(match.end()) or " ").islower()
    if match.group() == "Sun." and ends and scan.context.previous_word == "the":
        return None
    name = vocabulary.WEEKDAY_NAMES[match.group(1).lower()]
    scan.emit(name, match.start(), match.end())
    note_english_word(scan.context, name)
    return match.end()


def _read_weekday_in_context(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the days of "Mon, Wed and Sat", "next Wed" and "Sat closed"; "Sun" and "Sat" are words too."""
    is_day = (
        scan.context.previous_word in _BEFORE_WEEKDAY
        or _AFTER_WEEKDAY.match(scan.view, match.end())
        or _WEEKDAY_AHEAD.match(scan.view, match.end())
        or _WEEKDAY_BEHIND.search(scan.view, 0, match.start())
    )
    return _read_weekday(scan, match) if is_day else None


def _read_letter_before_time(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "W" of "office hours: W 3-5" and the "F" of "M–Th 8–6, F 8–4"."""
    if not (scan.context.previous_word in _BEFORE_HOURS or scan.context.after_comma):
        return None
    name = vocabulary.WEEKDAY_LETTERS[match.group()]
    scan.emit(name, *match.span())
    note_english_word(scan.context, name)
    return match.end()


def _read_weekday_range(scan: ScanState, match: re.Match[str]) -> int:
    """Read "Mon-Fri" and "Monday - Friday"."""
    first, last = (vocabulary.WEEKDAY_NAMES.get(name.lower(), name) for name in match.groups())
    scan.emit(first, match.start(1), match.end(1))
    scan.emit("to", match.end(1), match.start(2))
    scan.emit(last, match.start(2), match.end(2))
    note_english_word(scan.context, "day")
    return match.end()


def _read_letter_range(scan: ScanState, match: re.Match[str]) -> int:
    """Read "M-F 9-5" and "Tu-Sa"."""
    _emit_days(scan, match, joined="to")
    return match.end()


def _read_letter_list(scan: ScanState, match: re.Match[str]) -> int:
    """Read "Tu/Th", "M/W 2-3:30" and "MWF" with a pause between the days."""
    _emit_days(scan, match, joined="")
    return match.end()


def _emit_days(scan: ScanState, match: re.Match[str], joined: str) -> None:
    days = list(_LETTERS.finditer(scan.view, match.start(), match.end()))
    for index, day in enumerate(days):
        if index and joined:
            scan.emit(joined, days[index - 1].end(), day.start())
        elif index:
            scan.punctuate(",")
        scan.emit(vocabulary.WEEKDAY_LETTERS[day.group()], day.start(), day.end())
    note_english_word(scan.context, "day")


LETTER_RULES = compile_capital_rules(
    (rf"({WEEKDAY})\.? ?[-–] ?({WEEKDAY})(?!\w)", _read_weekday_range),
    (rf"({_FULL_WEEKDAY}) ?[-–—] ?({_FULL_WEEKDAY})(?!\w)", _read_weekday_range),
    (rf"(?=[MTWFS][\w/–-])(?:{_LETTER_RANGE})", _read_letter_range),
    (rf"(?=[MTWFS][\w/])(?:{_LETTER_LIST})", _read_letter_list),
    (rf"[MTWF](?= {_TIME} ?[-–] ?{_TIME}(?:[,;.)]|$))", _read_letter_before_time),
    # Abbreviated weekdays are words too ("sun", "sat"): a full stop or a date must follow.
    (
        rf"({WEEKDAY})(?:\.(?=\s|$|[,:;)])|(?=[,:]? +(?:{MONTH}|\d)(?!\w*[a-z]{{9}}))"
        r"|(?=: +(?:closed|open|noon|midnight|by appointment)\b)"
        rf"|(?= ?/ ?{WEEKDAY}\b))",
        _read_weekday,
    ),
    (rf"(?<=/)({WEEKDAY})(?!\w)", _read_weekday),
    # The others are no words.
    (r"(Tues?|Weds|Thu(?:rs?)?|Fri)(?![\w.'])", _read_weekday),
    (rf"({WEEKDAY})(?![\w'])", _read_weekday_in_context),
)
