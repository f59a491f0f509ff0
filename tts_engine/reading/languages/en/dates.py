"""Rules of dates and times of day; those of weekdays are in ``weekdays.py``.

American English: the month first, as "March third"; the day first only where it is written first.
"""

import re

from ...kit.patterns import PatternBehind
from ...kit.reading_context import CODE_WINDOW
from ...kit.tokenizer import ScanState, compile_rules, end_sentence_if_capital_follows
from . import vocabulary
from .quantities import number_words as numbers
from .spelling import ENGLISH_SPELLER
from .word_context import note_english_word

MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?|january|february|april|june|july|august|september|october|november|december)"
)
ORDINAL_SUFFIX = r"(?:st|nd|rd|th)"
WEEKDAY = r"(?:Mon|Tues?|Weds?|Thu(?:rs?)?|Fri|Sat|Sun)"
# "Dec. 24 and ", "May 3, 5, and "
_DAYS_BEHIND = PatternBehind(
    rf"\b{MONTH}\.? (?:\d{{1,2}}{ORDINAL_SUFFIX}?,? (?:(?:and|or|&) )?){{0,3}}"
    rf"(\d{{1,2}}){ORDINAL_SUFFIX}?,? (?:and |or |& )?\Z"
)
# "Mon–Sat 9–", "open 8.30–", "Sat "
_OPENING_BEHIND = PatternBehind(
    rf"(?:\b{WEEKDAY}s?\.?|day|days|[Oo]pen|[Hh]ours):?(?: from)? (?:\d{{1,2}}(?:\.\d\d)? ?(?:[-–]|to) ?)?\Z"
)
_DATE_AFTER_DASH = re.compile(rf" ?[-–—] ?(?:{WEEKDAY}\.?,? )?{MONTH}(?![\w])")
_HOUR_AFTER_DASH = re.compile(r" ?[-–] ?\d{1,2}(?::[0-5]\d)?[ap](?!\w)")
_LONG_WEEKDAYS = frozenset(name.lower() for name in vocabulary.WEEKDAY_NAMES.values())
_WORDS_BEFORE_HOURS = frozenset(
    ("check in", "check out", "in", "out", "due", "open", "opens", "close", "closes", "eta")
)
_AM_PM = r"[AaPp]\.[Mm]\.?|[AaPp]\.?[Mm](?!\w)"
_PART_OF_DATE_PATTERN = re.compile(r"[Mm]+|[Dd]+|[Yy]+")
_PARTS_OF_DATES = {"D": "day", "M": "month", "Y": "year"}
_LIVES = {"b": "born", "d": "died"}
_FIRST_YEAR_OF_1900S = 51  # years of two digits: 51 to 99 are of the 1900s


# The other end of a range that shows a clock of 24 hours: "22:00-06:00".
_RANGE_WORD = r" ?(?:[-–]|to|until|till) ?"
_AFTERNOON = r"(?:1[3-9]|2[0-4]):[0-5]\d"
_ZONE_AHEAD = re.compile(r" (?:UTC|GMT|BST|CES?T|EES?T|IST|A[CE][DS]T|AWST|NZ[DS]T)\b")  # "06:00 AEDT"
_AFTERNOON_TIME = re.compile(rf"(?<!\d){_AFTERNOON}(?!\d)")
_AFTERNOON_AHEAD = re.compile(rf"{_RANGE_WORD}{_AFTERNOON}(?!\d)")
_AFTERNOON_BEHIND = re.compile(rf"(?<!\d){_AFTERNOON}{_RANGE_WORD}\Z")


def _hour_words(hour: int, minute: int, am_pm: bool) -> str:
    if minute:
        return f"{numbers.cardinal(hour)} {'oh ' if minute < 10 else ''}{numbers.cardinal(minute)}"
    if am_pm:
        return numbers.cardinal(hour)
    return f"{numbers.cardinal(hour)} o'clock" if 1 <= hour <= 12 else f"{numbers.cardinal(hour)} hundred"


def _read_time(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "3:05 pm" or "23:59:07"."""
    hour, minute, second = int(match.group(1)), int(match.group(2)), match.group(3)
    if hour > 24 or minute > 59:
        return None
    words = _hour_words(hour, minute, bool(match.group(4)))
    if words.endswith("o'clock") and _is_on_24_hour_clock(scan, match):
        words = f"{'oh ' if hour < 10 else ''}{numbers.cardinal(hour)} hundred"
    if second and int(second):
        words += f" and {numbers.cardinal(int(second))} second{'' if int(second) == 1 else 's'}"
    scan.emit(words, match.start(), match.end(3) if second else match.end(2))
    return _finish_time(scan, match, 4)


def _read_time_of_log(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "14:05:09.123", with parts of a second."""
    hour, minute, second = (int(match.group(place)) for place in (1, 2, 3))
    if hour > 24 or minute > 59:
        return None
    scan.emit(_hour_words(hour, minute, True), match.start(), match.end(2))
    scan.emit(f"and {numbers.cardinal(second)}", match.start(3), match.end(3))
    if match.group(4).strip("0"):
        scan.emit(f"point {' '.join(numbers.DIGITS[int(digit)] for digit in match.group(4))}", *match.span(4))
    scan.emit("second" if second == 1 and not match.group(4).strip("0") else "seconds", *match.span(4))
    scan.context.note_number()
    return match.end()


def _is_on_24_hour_clock(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a time is the morning's end of a range such as "22:00-06:00"."""
    behind = _AFTERNOON_BEHIND.search(scan.view, max(0, match.start() - 14), match.start())
    beside_afternoon = match.group(1)[0] == "0" and (
        _AFTERNOON_TIME.search(scan.view) or _ZONE_AHEAD.match(scan.view, match.end())
    )
    return bool(behind or beside_afternoon or _AFTERNOON_AHEAD.match(scan.view, match.end()))


def _read_hours_and_minutes(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the time of "at 19h30", and "takes 1h30" as a duration."""
    hour, minute = int(match.group(1)), int(match.group(2))
    if hour > 23:
        return None
    is_time = hour > 5 or scan.context.previous_word in vocabulary.WORDS_BEFORE_TIMES
    duration = f"{numbers.cardinal(hour)} hour{'' if hour == 1 else 's'} {numbers.cardinal(minute)} minutes"
    scan.emit(_hour_words(hour, minute, False) if is_time else duration, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_hour(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "9am"."""
    hour = int(match.group(1))
    if not 1 <= hour <= 12:
        return None
    scan.emit(numbers.cardinal(hour), match.start(), match.end(1))
    return _finish_time(scan, match, 2)


def _read_first_hour_of_range(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the 4 of "4-5pm"."""
    if not 1 <= int(match.group()) <= 12:
        return None
    scan.emit(numbers.cardinal(int(match.group())), match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_hour_with_letter(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "8a-6:30p" and "by 5p"."""
    hour, minute = int(match.group(1)), int(match.group(2) or 0)
    announced = scan.context.previous_word in vocabulary.WORDS_BEFORE_TIMES | _WORDS_BEFORE_HOURS
    if not 1 <= hour <= 12 or not (
        announced or match.group(2) or _HOUR_AFTER_DASH.match(scan.view, match.end())
    ):
        return None
    scan.emit(_hour_words(hour, minute, True), match.start(), match.start(3))
    ENGLISH_SPELLER.spell(scan, match.start(3), match.end())
    scan.emit("M", match.start(3), match.end())
    scan.context.note_number()
    return match.end()


def _finish_time(scan: ScanState, match: re.Match[str], am_pm: int) -> int:
    """Read the letters in group ``am_pm`` of the match, if there are any, and end the number."""
    scan.context.note_number()
    letters = match.group(am_pm)
    if not letters:
        return match.end()
    ENGLISH_SPELLER.spell(scan, match.start(am_pm), match.end())
    if letters.endswith(".") and scan.next_word(match.end()) not in vocabulary.WORDS_AFTER_AM_PM:
        end_sentence_if_capital_follows(scan, match.end())
    return match.end()


def _month_name(written: str) -> str:
    return vocabulary.MONTH_NAMES.get(written.lower(), written)


def _read_month_day(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "March 3", "March 3-5" or "March 3, 2026"."""
    month, day, last_day, year = match.groups()
    days = [int(one[:2].rstrip("snrt")) for one in (day, last_day) if one]
    if not all(1 <= one <= 31 for one in days):
        return None
    scan.emit(_month_name(month), match.start(1), match.end(1))
    scan.emit(numbers.ordinal(days[0]), match.start(2), match.end(2))
    if last_day:
        scan.emit(f"to {numbers.ordinal(days[1])}", match.start(3), match.end(3))
    if year:
        scan.punctuate(",")
        scan.emit(numbers.year(int(year)), match.start(4), match.end(4))
    scan.context.note_number()
    scan.context.after_number = not year or bool(_DATE_AFTER_DASH.match(scan.view, match.end()))
    return match.end()


def _read_other_day(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "25" of "Dec. 24 and 25"; not that of "Dec. 24 and 25 guests"."""
    behind = _DAYS_BEHIND.search(scan.view, match.start())
    following = scan.next_word(match.end())
    counts = following.islower() and following not in vocabulary.WORDS_AFTER_PRICES
    if behind is None or counts or not int(behind.group(1)) < int(match.group()) <= 31:
        return None
    scan.emit(numbers.ordinal(int(match.group())), *match.span())
    scan.context.note_number()
    return match.end()


def _read_month_year(scan: ScanState, match: re.Match[str]) -> int:
    """Read "March 2026" and "Sep '27"."""
    month, year = match.groups()
    scan.emit(_month_name(month), match.start(1), match.end(1))
    scan.emit(numbers.year(_full_year(int(year))), match.start(2), match.end(2))
    scan.context.note_number()
    return match.end()


def _read_month_of_year(scan: ScanState, match: re.Match[str]) -> int:
    """Read "04/2027"."""
    scan.emit(vocabulary.MONTHS[int(match.group(1)) - 1], match.start(), match.end(1))
    scan.emit(numbers.year(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_month_range(scan: ScanState, match: re.Match[str]) -> int:
    """Read "Oct-Dec"."""
    scan.emit(_month_name(match.group(1)), match.start(1), match.end(1))
    scan.emit("to", match.end(1), match.start(2))
    scan.emit(_month_name(match.group(2)), match.start(2), match.end(2))
    note_english_word(scan.context, match.group(2))
    return match.end()


def _read_date_pattern(scan: ScanState, match: re.Match[str]) -> int:
    """Read "MM/DD/YYYY", the order in which a date is written."""
    for part in _PART_OF_DATE_PATTERN.finditer(scan.view, match.start(), match.end()):
        scan.emit(_PARTS_OF_DATES[part.group()[0].upper()], part.start(), part.end())
        scan.punctuate(",")
    scan.words[-1].punctuation = ""
    note_english_word(scan.context, "date")
    return match.end()


def _read_period(scan: ScanState, match: re.Match[str]) -> int:
    """Read "3Q25" and "1H 2026"."""
    part = {"Q": "quarter", "H": "half"}[match.group(2)]
    scan.emit(f"{numbers.ordinal(int(match.group(1)))} {part}", match.start(), match.end(2))
    scan.emit(numbers.year(_full_year(int(match.group(3)))), *match.span(3))
    scan.context.note_number()
    return match.end()


def _read_fiscal_year(scan: ScanState, match: re.Match[str]) -> int:
    """Read "FY 2025" or "FY '25"."""
    number = int(match.group(1))
    scan.emit("fiscal year", match.start(), match.start(1))
    scan.emit(numbers.year(number) if number > 99 else numbers.cardinal(number), match.start(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_week_of_year(scan: ScanState, match: re.Match[str]) -> int:
    """Read "2026-W48"."""
    scan.emit(numbers.year(int(match.group(1))), *match.span(1))
    scan.emit(f"week {numbers.cardinal(int(match.group(2)))}", match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_year_of_life(scan: ScanState, match: re.Match[str]) -> int:
    """Read "b. 1650" and "d. 1702"."""
    scan.emit(_LIVES[match.group(1)], match.start(), match.end(1) + 1)
    scan.emit(numbers.year(int(match.group(2))), *match.span(2))
    scan.context.note_number()
    return match.end()


def _read_life(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "d." of "Ann Lee (d. Aug. 2, 1922)"; not the "b." of "plan b. May 3 is fine"."""
    context = scan.context
    begins = match.start() == 0 or scan.view[match.start() - 1] == "("
    if not (begins or context.previous_capitalized or context.after_comma):
        return None
    word = _LIVES[match.group(1)]
    scan.emit(word, *match.span())
    note_english_word(scan.context, word)
    return match.end()


def _read_day_month(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "3 March 2026"."""
    day, month, year = match.groups()
    if not 1 <= int(day) <= 31:
        return None
    article = "" if scan.context.previous_word in ("the", "happy") else "the "
    scan.emit(f"{article}{numbers.ordinal(int(day))} of", match.start(1), match.start(2) - 1)
    scan.emit(_month_name(month), match.start(2), match.end(2))
    if year:
        scan.emit(numbers.year(_full_year(int(year))), match.start(3), match.end(3))
    scan.context.note_number()
    return match.end()


def _read_days_of_month(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "13-15 Nov" and "the 3rd to 5th of May"."""
    first, last, month, year = match.groups()
    if not 1 <= int(first) < int(last) <= 31:
        return None
    article = "" if scan.context.previous_word == "the" else "the "
    scan.emit(f"{article}{numbers.ordinal(int(first))}", match.start(), match.end(1))
    scan.emit(f"to the {numbers.ordinal(int(last))} of", match.end(1), match.start(3) - 1)
    scan.emit(_month_name(month), match.start(3), match.end(3))
    if year:
        scan.emit(numbers.year(int(year)), match.start(4), match.end(4))
    scan.context.note_number()
    return match.end()


def _read_month_first(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "Feb-09-2026" and "2026-Feb-09"."""
    groups = match.groupdict()
    day, year = int(groups["day"]), _full_year(int(groups["year"]))
    if not 1 <= day <= 31:
        return None
    words = f"{_month_name(groups['month'])} {numbers.ordinal(day)} {numbers.year(year)}"
    return _finish_date(scan, match, words)


def _full_year(year: int) -> int:
    """Return ``year`` with its century; one of two digits is from 1951 to 2050."""
    return year if year > 99 else year + (1900 if year >= _FIRST_YEAR_OF_1900S else 2000)


def _read_abbreviated_month(scan: ScanState, match: re.Match[str]) -> int:
    """Read a month's abbreviation outside a date, with its full stop."""
    name = _month_name(match.group(1))
    scan.emit(name, match.start(), match.end())
    note_english_word(scan.context, name)
    if match.group().endswith("."):
        end_sentence_if_capital_follows(scan, match.end())
    return match.end()


def day_and_month(scan: ScanState, day: int, month: int) -> str:
    """Return "the third of April", without the article if one was read last. ``month``: 1 to 12."""
    article = "" if scan.context.previous_word == "the" else "the "
    return f"{article}{numbers.ordinal(day)} of {vocabulary.MONTHS[month - 1]}"


def _date_words(year: int, month: int, day: int) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31 and 1000 <= year <= 2999):
        return None
    return f"{vocabulary.MONTHS[month - 1]} {numbers.ordinal(day)} {numbers.year(year)}"


def _read_iso_date(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "2026-03-14"."""
    year, month, day = (int(match.group(place)) for place in (1, 3, 4))
    return _finish_date(scan, match, _date_words(year, month, day))


def _read_year_and_month(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "2026-03"; "2003-04" is a season, and after the word for a code it is one."""
    month, year = int(match.group(2)), int(match.group(1))
    if month >= year % 100 or scan.context.code_words_left or scan.context.identifier_expected:
        return None
    return _finish_date(scan, match, f"{vocabulary.MONTHS[month - 1]} {numbers.year(year)}")


def _read_offset_of_zone(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "UTC-" of "UTC-5", which is no code."""
    ENGLISH_SPELLER.spell(scan, *match.span(1))
    scan.emit("minus", match.end(1), match.end())
    note_english_word(scan.context, "minus")
    return match.end()


def _read_iso_time(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "2026-03-14T09:30:00Z"."""
    year, month, day, hour, minute = (int(match.group(place)) for place in range(1, 6))
    date = _date_words(year, month, day)
    if hour > 24 or minute > 59 or date is None:
        return None
    scan.emit(date, match.start(), match.end(3))
    scan.punctuate(",")
    scan.emit(_hour_words(hour, minute, False), match.start(4), match.end(5))
    if match.group(6):
        scan.emit(_zone_words(match.group(6)), match.start(6), match.end())
    scan.context.note_number()
    return match.end()


def _zone_words(offset: str) -> str:
    if offset == "Z":
        return "U T C"
    hours, minutes = int(offset[1:3]), int(offset[-2:] if len(offset) > 3 else 0)
    sign = "plus" if offset[0] == "+" else "minus"
    return f"U T C {sign} {numbers.cardinal(hours)}" + (f" {numbers.cardinal(minutes)}" if minutes else "")


def _read_slash_date(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "3/14/2026" in the order of the style, or in the other if the month were more than 12."""
    if _is_grouped_code(scan, match.group()):
        return None
    first, second, year = int(match.group(1)), int(match.group(2)), _full_year(int(match.group(3)))
    if scan.style.day_first and second <= 12 and 1 <= first <= 31:
        return _finish_date(scan, match, f"{day_and_month(scan, first, second)} {numbers.year(year)}")
    month, day = (first, second) if first <= 12 else (second, first)
    return _finish_date(scan, match, _date_words(year, month, day))


def _is_grouped_code(scan: ScanState, text: str) -> bool:
    """Whether "20-11-07" is a code: it follows "sort code" or "sort code is"."""
    context = scan.context
    just_announced = context.code_words_left >= CODE_WINDOW - 1
    return just_announced and context.previous_word in vocabulary.CODE_WORDS | {"is"} and text[2::3] == "--"


def _read_dotted_date(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "18.11.2025", day first; the month first if the second number is no month."""
    if scan.context.previous_word in ("version", "v", "build", "release", "firmware"):
        return None
    first, second, year = int(match.group(1)), int(match.group(2)), _full_year(int(match.group(3)))
    day, month = (first, second) if second <= 12 else (second, first)
    return _finish_date(scan, match, _date_words(year, month, day))


def _read_opening_time(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "5.30" of "Mon–Sat 9–5.30"."""
    if not _OPENING_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit(_hour_words(int(match.group(1)), int(match.group(2)), True), *match.span())
    scan.context.note_number()
    return match.end()


def _read_day_with_stop(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "26.11" of "on 26.11", a day and a month if nothing else can be meant."""
    day, month = int(match.group(1)), int(match.group(2))
    announced = scan.context.previous_word in ("on", "dated", *_LONG_WEEKDAYS)
    if announced and match.group(1)[0] == "0" and 1 <= day <= 12 < month <= 31:  # "on 03.15"
        return _finish_date(scan, match, f"{vocabulary.MONTHS[day - 1]} {numbers.ordinal(month)}")
    if not announced or not (12 < day <= 31 or match.group(1)[0] == "0") or not 1 <= month <= 12:
        return None
    return _finish_date(scan, match, day_and_month(scan, day, month))


def _finish_date(scan: ScanState, match: re.Match[str], words: str | None) -> int | None:
    if words is None:
        return None
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_countdown(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "T-" of "T-24h"."""
    ENGLISH_SPELLER.spell(scan, match.start(), match.start() + 1)
    word = "plus" if match.group(1) == "+" else "minus"
    scan.emit(word, match.start(1), match.end())
    note_english_word(scan.context, word)
    return match.end()


LETTER_RULES = compile_rules(
    (r"([bd])\. ?([12]\d{3})(?!\w)", _read_year_of_life),
    (rf"([bd])\.(?= {MONTH}\.? \d)", _read_life),
    (r"T([-–+])(?=\d{1,3} ?(?:h|hrs?|hours?|d|days?|mins?|minutes?|wks?|weeks?)\b)", _read_countdown),
    (r"(UTC|GMT)[-–](?=\d{1,2}(?:\D|\Z))", _read_offset_of_zone),
    # "March 3", "March 3rd–5th", "March 3, 2026"
    (
        rf"({MONTH})\.? +(\d{{1,2}}{ORDINAL_SUFFIX}?)(?: ?[-–] ?(\d{{1,2}}{ORDINAL_SUFFIX}?))?"
        r"(?![\d%]|[:.,]\d|/)(?:,? +([12]\d{3})(?![\w-]))?",
        _read_month_day,
    ),
    (rf"({MONTH})\.?,? +'?((?<!')[12]\d{{3}}(?![\w,-])|(?<=')\d\d(?![\w']))", _read_month_year),
    (r"(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\.(?=\s|$|,)", _read_abbreviated_month),
    (r"(Sept)(?:\.|(?!\w))", _read_abbreviated_month),
    (rf"({MONTH})\.? ?[-–] ?({MONTH})(?!\w|\.? \d)(?:\.(?= [a-z]))?", _read_month_range),
    (r"FY ?'?((?:19|20)?\d\d)(?!\w)", _read_fiscal_year),
    (
        r"(?=[MmDdYy]{1,4}[/. -]?[MmDdYy])(?i:MM([/. -]?)DD(?:\1YY(?:YY)?)?|DD([/. -]?)MM(?:\2YY(?:YY)?)?"
        r"|YYYY([/. -]?)MM(?:\3DD)?|MM[/-]YY(?:YY)?|M/D/YY(?:YY)?|D/M/YY(?:YY)?)(?![\w/-])",
        _read_date_pattern,
    ),
    # "Feb-09-2026"
    (rf"(?P<month>{MONTH})-(?P<day>\d{{1,2}})-(?P<year>[12]\d{{3}}|\d\d)(?![\w-])", _read_month_first),
)
DIGIT_RULES = compile_rules(
    (
        r"([12]\d{3})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::\d\d(?:[.,]\d{1,9})?)?(Z|[+-]\d\d(?::?\d\d)?)?(?!\w)",
        _read_iso_time,
    ),
    (r"([12]\d{3})([-/])(\d{1,2})\2(\d{1,2})(?![\w/-])", _read_iso_date),
    (r"((?:19|20)\d\d)-(0[1-9]|1[0-2])(?![\w/-]|[.,:]\d)", _read_year_and_month),
    (r"((?:[12](?=H)|[1-4](?=Q)))([QH]) ?'?((?:20)?\d\d)(?!\w)", _read_period),
    (r"((?:19|20)\d\d)-?W([0-5]\d)(?!\w)", _read_week_of_year),
    (r"(\d{1,2})\.(\d{1,2})\.((?:19|20)\d\d)(?!\w|\.\d)", _read_dotted_date),
    (r"([0-3]\d)\.([0-3]\d)\.([0-4]\d)(?!\w|\.\d)", _read_dotted_date),
    (r"(\d{1,2})\.(00|15|30|45)(?![\w%]|[.,]\d)", _read_opening_time),
    (r"(\d{1,2})\.(\d{2})(?![\w%°/–:-]|[.,]\d| ?%| ?[AaPp]\.?[Mm])", _read_day_with_stop),
    (
        rf"(\d{{1,2}}){ORDINAL_SUFFIX}? ?[-–] ?(\d{{1,2}}){ORDINAL_SUFFIX}? (?:of )?({MONTH})\.?(?!\w)"
        r"(?:,? +([12]\d{3})(?!\w))?",
        _read_days_of_month,
    ),
    # "09-Feb-2026", "09/Feb/26"; then "2026-Feb-09"
    (rf"(\d{{1,2}})[-/ ]({MONTH})[-/ ]([12]\d{{3}}|\d\d(?![\w:]|\.\d))(?![\w-])", _read_day_month),
    (rf"(?P<year>[12]\d{{3}})-(?P<month>{MONTH})-(?P<day>\d{{1,2}})(?![\w-])", _read_month_first),
    (r"(0?[1-9]|1[0-2])/((?:19|20)\d\d)(?![\w/])", _read_month_of_year),
    (r"(\d{1,2})[/-](\d{1,2})[/-](\d{4}|\d{2})(?![\w/]|-(?!\d{1,2}/\d{1,2}/\d{2}))", _read_slash_date),
    (r"(\d{1,2})(?::([0-5]\d))?([ap])(?!\w| (?:per|an?|each)\b)", _read_hour_with_letter),
    (r"(\d{1,2}):(\d{2}):(\d{2})[.,](\d{1,9})(?!\w|[.,:]\d)", _read_time_of_log),
    (rf"(\d{{1,2}}):(\d{{2}})(?::(\d{{2}}))?(?!\d)(?: ?({_AM_PM}))?", _read_time),
    (rf"(\d{{1,2}})\.([0-5]\d)() ?({_AM_PM})", _read_time),
    (r"(\d{1,2})h([0-5]\d)(?!\w)", _read_hours_and_minutes),
    (r"\d{1,2}(?![\w%/°:]| ?[-–]|[.,]\d)", _read_other_day),
    # "9am"; then the "4" of "4-5pm"
    (rf"(\d{{1,2}})(?<!\d\d\d) ?({_AM_PM})", _read_hour),
    (rf"\d{{1,2}}(?= ?[-–] ?\d{{1,2}}(?::\d\d)? ?(?:{_AM_PM}))", _read_first_hour_of_range),
    # "3 March 2026", "4th of July"
    (
        rf"(\d{{1,2}})(?:{ORDINAL_SUFFIX})? +(?:of +)?({MONTH})\.?(?![\w])(?:,? +([12]\d{{3}})(?!\w))?",
        _read_day_month,
    ),
)
