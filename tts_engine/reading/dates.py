"""Recognisers of dates and times of day.

American English: the month first, as "March third", and the day first only where that is written out.
"""

import re

from . import number_words as say
from . import vocabulary
from .scan import Scan, end_if_sentence, rules


def _hour_words(hour: int, minute: int, half_day: bool) -> str:
    if minute:
        return f"{say.cardinal(hour)} {'oh ' if minute < 10 else ''}{say.cardinal(minute)}"
    if half_day:
        return say.cardinal(hour)
    return f"{say.cardinal(hour)} o'clock" if 1 <= hour <= 12 else f"{say.cardinal(hour)} hundred"


def _read_time(scan: Scan, match: re.Match[str]) -> int | None:
    hour, minute, second = int(match.group(1)), int(match.group(2)), match.group(3)
    if hour > 24 or minute > 59:
        return None
    words = _hour_words(hour, minute, bool(match.group(4) or second))
    if second:
        words += f" and {say.cardinal(int(second))} second{'' if int(second) == 1 else 's'}"
    scan.say(words, match.start(), match.end(3) if second else match.end(2))
    return _finish_time(scan, match, 4)


def _read_hour(scan: Scan, match: re.Match[str]) -> int | None:
    hour = int(match.group(1))
    if not 1 <= hour <= 12:
        return None
    scan.say(say.cardinal(hour), match.start(), match.end(1))
    return _finish_time(scan, match, 2)


def _read_first_hour(scan: Scan, match: re.Match[str]) -> int | None:
    """The 4 of 4-5pm."""
    if not 1 <= int(match.group()) <= 12:
        return None
    scan.say(say.cardinal(int(match.group())), match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _finish_time(scan: Scan, match: re.Match[str], half_day: int) -> int:
    scan.memory.hear_number()
    letters = match.group(half_day)
    if not letters:
        return match.end()
    for at in range(match.start(half_day), match.end(half_day)):
        if scan.view[at].isalpha():
            scan.say(scan.letter(scan.view[at]), at, at + 1)
    scan.words[-1].stop = match.end()
    if letters.endswith(".") and scan.next_word(match.end()) not in vocabulary.AFTER_HALF_DAY:
        end_if_sentence(scan, match.end())
    return match.end()


MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?|january|february|april|june|july|august|september|october|november|december)"
)
SUFFIX = r"(?:st|nd|rd|th)"
WEEKDAY = r"(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)"


def _month_name(written: str) -> str:
    return vocabulary.MONTH_OF.get(written.lower(), written)


def _read_month_day(scan: Scan, match: re.Match[str]) -> int | None:
    month, day, last_day, year = match.groups()
    days = [int(one[:2].rstrip("snrt")) for one in (day, last_day) if one]
    if not all(1 <= one <= 31 for one in days):
        return None
    scan.say(_month_name(month), match.start(1), match.end(1))
    scan.say(say.ordinal(days[0]), match.start(2), match.end(2))
    if last_day:
        scan.say(f"to {say.ordinal(days[1])}", match.start(3), match.end(3))
    if year:
        scan.pause(",")
        scan.say(say.year(int(year)), match.start(4), match.end(4))
    scan.memory.hear_number()
    scan.memory.numeric = not year
    return match.end()


def _read_month_year(scan: Scan, match: re.Match[str]) -> int:
    scan.say(_month_name(match.group(1)), match.start(1), match.end(1))
    scan.say(say.year(int(match.group(2))), match.start(2), match.end(2))
    scan.memory.hear_number()
    return match.end()


def _read_month_of_year(scan: Scan, match: re.Match[str]) -> int:
    """04/2027."""
    scan.say(vocabulary.MONTHS[int(match.group(1)) - 1], match.start(), match.end(1))
    scan.say(say.year(int(match.group(2))), match.start(2), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_month_range(scan: Scan, match: re.Match[str]) -> int:
    scan.say(_month_name(match.group(1)), match.start(1), match.end(1))
    scan.say("to", match.end(1), match.start(2))
    scan.say(_month_name(match.group(2)), match.start(2), match.end(2))
    scan.memory.hear(match.group(2))
    return match.end()


def _read_fiscal_year(scan: Scan, match: re.Match[str]) -> int:
    number = int(match.group(1))
    scan.say("fiscal year", match.start(), match.start(1))
    scan.say(say.year(number) if number > 99 else say.cardinal(number), match.start(1), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_day_month(scan: Scan, match: re.Match[str]) -> int | None:
    day, month, year = match.groups()
    if not 1 <= int(day) <= 31:
        return None
    article = "" if scan.memory.previous == "the" else "the "
    scan.say(f"{article}{say.ordinal(int(day))} of", match.start(1), match.start(2) - 1)
    scan.say(_month_name(month), match.start(2), match.end(2))
    if year:
        scan.say(say.year(int(year)), match.start(3), match.end(3))
    scan.memory.hear_number()
    return match.end()


def _read_month(scan: Scan, match: re.Match[str]) -> int | None:
    """A month's abbreviation with its full stop, outside a date."""
    name = _month_name(match.group(1))
    scan.say(name, match.start(), match.end())
    scan.memory.hear(name)
    if match.group().endswith("."):
        end_if_sentence(scan, match.end())
    return match.end()


def _read_weekday(scan: Scan, match: re.Match[str]) -> int:
    name = vocabulary.WEEKDAY_OF[match.group(1).lower()]
    scan.say(name, match.start(), match.end())
    scan.memory.hear(name)
    return match.end()


def _read_weekday_range(scan: Scan, match: re.Match[str]) -> int:
    scan.say(vocabulary.WEEKDAY_OF[match.group(1).lower()], match.start(1), match.end(1))
    scan.say("to", match.end(1), match.start(2))
    scan.say(vocabulary.WEEKDAY_OF[match.group(2).lower()], match.start(2), match.end(2))
    scan.memory.hear("day")
    return match.end()


def _read_working_week(scan: Scan, match: re.Match[str]) -> int:
    scan.say("Monday to Friday", match.start(), match.end())
    scan.memory.hear("day")
    return match.end()


def _date_words(year: int, month: int, day: int) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31 and 1000 <= year <= 2999):
        return None
    return f"{vocabulary.MONTHS[month - 1]} {say.ordinal(day)} {say.year(year)}"


def _read_iso_date(scan: Scan, match: re.Match[str]) -> int | None:
    year, month, day = (int(match.group(place)) for place in (1, 3, 4))
    return _finish_date(scan, match, _date_words(year, month, day))


def _read_slash_date(scan: Scan, match: re.Match[str]) -> int | None:
    """Month first, as in the United States; the day first where only that is possible."""
    first, second, year = int(match.group(1)), int(match.group(2)), int(match.group(3))
    if len(match.group(3)) == 2:
        year += 1900 if year > 50 else 2000
    month, day = (first, second) if first <= 12 else (second, first)
    return _finish_date(scan, match, _date_words(year, month, day))


def _read_dotted_date(scan: Scan, match: re.Match[str]) -> int | None:
    """18.11.2025: the day first, as where dates have dots."""
    if scan.memory.previous == "version":
        return None
    day, month, year = (int(group) for group in match.groups())
    return _finish_date(scan, match, _date_words(year, month, day))


def _finish_date(scan: Scan, match: re.Match[str], words: str | None) -> int | None:
    if words is None:
        return None
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


_HALF_DAY = r"[AaPp]\.[Mm]\.?|[AaPp]\.?[Mm](?!\w)"
LETTER_RULES = rules(
    (
        rf"({MONTH})\.? +(\d{{1,2}}{SUFFIX}?)(?: ?[-–] ?(\d{{1,2}}{SUFFIX}?))?(?![\d%]|[:.,]\d|/)"
        r"(?:,? +([12]\d{3})(?![\w-]))?",
        _read_month_day,
    ),
    (rf"({MONTH})\.?,? +([12]\d{{3}})(?![\w,-])", _read_month_year),
    (r"(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\.(?=\s|$|,)", _read_month),
    (r"(Sept)(?:\.|(?!\w))", _read_month),
    (rf"({MONTH})\.? ?[-–] ?({MONTH})(?![\w.]| \d)", _read_month_range),
    (r"FY ?'?((?:19|20)?\d\d)(?!\w)", _read_fiscal_year),
    (rf"({WEEKDAY})\.? ?[-–] ?({WEEKDAY})(?!\w)", _read_weekday_range),
    (r"M[-–]F(?=,? +\d)", _read_working_week),
    (rf"({WEEKDAY})(?:\.(?=\s|$|,)|(?=,? +(?:{MONTH}|\d)(?!\w*[a-z]{{9}})))", _read_weekday),
)
DIGIT_RULES = rules(
    (r"([12]\d{3})([-/])(\d{1,2})\2(\d{1,2})(?![\w/-])", _read_iso_date),
    (r"(\d{1,2})\.(\d{1,2})\.((?:19|20)\d\d)(?!\w|\.\d)", _read_dotted_date),
    (r"(0?[1-9]|1[0-2])/((?:19|20)\d\d)(?![\w/])", _read_month_of_year),
    (r"(\d{1,2})[/-](\d{1,2})[/-](\d{4}|\d{2})(?![\w/-])", _read_slash_date),
    (rf"(\d{{1,2}}):(\d{{2}})(?::(\d{{2}}))?(?!\d)(?: ?({_HALF_DAY}))?", _read_time),
    (rf"(\d{{1,2}})(?<!\d\d\d) ?({_HALF_DAY})", _read_hour),
    (rf"\d{{1,2}}(?= ?[-–] ?\d{{1,2}}(?::\d\d)? ?(?:{_HALF_DAY}))", _read_first_hour),
    (
        rf"(\d{{1,2}})(?:{SUFFIX})? +(?:of +)?({MONTH})\.?(?![\w])(?:,? +([12]\d{{3}})(?!\w))?",
        _read_day_month,
    ),
)
