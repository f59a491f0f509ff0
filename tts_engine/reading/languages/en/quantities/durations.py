"""Rules of durations: hours, minutes and seconds, on a clock and with units, and minutes of a match."""

import re

from ....kit.patterns import PatternBehind
from ....kit.tokenizer import ScanState, any_of, compile_rules
from .. import vocabulary
from . import number_words as numbers
from .number_words import amount_words
from .units import end_of_unit

# Parts of a duration, by what they are called; a duration names them in this order.
_DURATION_UNITS = {"d": "day", "h": "hour", "m": "minute", "s": "second"}
_DAYS, _HOURS, _MINUTES, _SECONDS = (
    "d(?:ays?)?",
    "h(?:(?:ou)?rs?)?",
    "m(?:in(?:ute)?s?)?",
    "s(?:ec(?:ond)?s?)?",
)
_DURATION_PART = re.compile(rf"(\d+) ?({_DAYS}|{_HOURS}|{_MINUTES}|{_SECONDS})(?![^\W\d_])")
_RACES = frozenset("lap laps mile miles marathon half split splits relay pole".split())
_END_OF_RANGE_AHEAD = re.compile(r" ?[-–] ?\d")  # "runs 6:30–10 a.m."
_MINUTES_AHEAD = rf"(?= (?:{any_of(vocabulary.WORDS_AFTER_MINUTES)})\b)"
# "CPU > 90% for 10m", "no data for 5m", "errors in the last 5m", "rate[5m]"
_LEVEL = (
    r"\d[\d.,]{0,12} ?(?:%|[muμ]?s|[kMG]i?B(?:/s)?|[rq]ps|rpm|errors|requests|connections|messages)?(?:/s)?"
)
_MINUTES_BEHIND = PatternBehind(
    r"\b(?:\d{1,4}x|times|retry(?:ing)?|retries|restart(?:s|ed|ing)?|expires?|ready|back|again|starts?|ends?)"
    r" in \Z"
    rf"|(?:[<>]=?|\b(?:above|below|over|under|exceed(?:s|ed)|at)) {_LEVEL} for \Z"
    rf"|\b(?:{any_of(vocabulary.STATES_OF_SYSTEMS)}) for \Z"
    r"|(?:\A|[,;:(] ?|\b(?:is|are|was|were|been|'s|site|host|service|server|node|pod|target|instance) )"
    r"(?:up|down) for \Z"
    rf"|\b(?:{any_of(vocabulary.EVENTS_OF_SYSTEMS)})\b[^.;!?]{{0,20}}"
    r" (?:in|over|for|within) the (?:last|previous|next) \Z"
    r"|[a-z)}]\[\Z",
    re.IGNORECASE,
)
# "20'" after one of these is of minutes.
_COOKED = (
    rf"\b(?:{any_of(vocabulary.WORDS_OF_COOKING)})(?: (?:for|about|another|at least)){{0,2}}"
    r" (?:\d{1,2}[-–])?\Z"
)
_COOKED_BEHIND = PatternBehind(
    rf"{_COOKED}|\b(?:prep|active|hands-on|(?:cook(?:ing)?|prep|rest|total) time:?) \Z", re.IGNORECASE
)
_AFTER_COOKED = re.compile(
    r" ?(?:[|,;.)\]]|\Z)| (?:until|then|or|and|at|on|in|before|after|each|per|total)\b"
)
_MINUTES_SIGN_BEHIND = PatternBehind(
    rf"{_COOKED}"
    r"|\b(?:trains?|bus(?:es)?|trams?|ferr(?:y|ies)|shuttles?|metros?|subways?|flights?|stir|turn|flip|baste|check"
    r"|vitals|doses?|repeat|rotate|feed|water)\b[^.;!?]{0,30} every \Z"
    r"|\b(?:given|gave|give|infused?|infusing|administer(?:ed)?|bolus|drip|IV|run|pushed)\b"
    r"[^.;!?]{0,30} (?:over|for) \Z",
    re.IGNORECASE,
)
_FOOTBALL = re.compile(
    r"(?:45|90)'\+\d|\b(?:[FH]T \d|scor(?:ed|es|ing)|goals?|equali[sz]\w+|penalty|booked|(?:red|yellow) card"
    r"|sent off|kick-?off|header|free kick|stoppage|winner|offside|corner kick|substitut\w+)\b",
    re.IGNORECASE,
)


def _read_duration(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "2m 30s" or "1h 15m": each unit is smaller than the one before it."""
    parts = list(_DURATION_PART.finditer(scan.view, match.start(), match.end()))
    order = ["dhms".index(part.group(2)[0]) for part in parts]
    if order != sorted(set(order)):
        return None
    _emit_duration(scan, [(part.group(1), part.group(2)[0], part.start(), part.end()) for part in parts])
    return end_of_unit(scan, match.end())


def _emit_duration(scan: ScanState, parts: list[tuple[str, str, int, int]]) -> None:
    """Emit parts (number, letter of the unit, start, stop); "and" comes before the last of three or more."""
    for index, (number, letter, start, stop) in enumerate(parts):
        joined = "and " if index == len(parts) - 1 > 1 else ""
        unit = _DURATION_UNITS[letter]
        words = amount_words(number) if "." in number else numbers.cardinal(int(number))
        scan.emit(f"{joined}{words} {unit}{'' if float(number) == 1 else 's'}", start, stop)
    scan.context.note_number()


def _read_clock_duration(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "lasted 1:02:45.5" or "0:45 remaining" in hours, minutes and seconds, and decline times of day."""
    if not _is_clock_duration(scan, match):
        return None
    groups = [group for group in (1, 2, 3) if match.group(group)]
    if scan.next_word(match.end()) in _RACES:
        return _read_time_of_race(scan, match, groups)
    letters = "hms" if len(groups) == 3 or scan.next_word(match.end()) == "hours" else "ms"
    parts = [
        (match.group(group), letter, match.start(group), match.end(group))
        for group, letter in zip(groups, letters, strict=False)
    ]
    if match.group(4) and match.group(4)[1:].strip("0"):  # parts of a second
        number, letter, start, _ = parts[-1]
        parts[-1] = f"{int(number)}.{match.group(4)[1:]}", letter, start, match.end(4)
    _emit_duration(scan, [part for part in parts if float(part[0])] or parts[-1:])
    named = re.compile(r" (?:hours|minutes|seconds|hrs|mins?|secs?)\b").match(scan.view, match.end())
    return named.end() if named else match.end()


def _read_time_of_race(scan: ScanState, match: re.Match[str], groups: list[int]) -> int:
    """Read the "1:26.4" of "a 1:26.4 lap"."""
    for group in groups:
        number = int(match.group(group))
        zero = "oh " if group > 1 and number < 10 else ""
        scan.emit(f"{zero}{numbers.cardinal(number)}", *match.span(group))
    if match.group(4):
        digits = " ".join(numbers.DIGITS[int(digit)] for digit in match.group(4)[1:])
        scan.emit(f"point {digits}", *match.span(4))
    scan.context.note_number()
    return match.end()


def _is_clock_duration(scan: ScanState, match: re.Match[str]) -> bool:
    previous, following = scan.context.previous_word, scan.next_word(match.end())
    if match.group(4) and not match.group(3):  # "2:58.21"
        return True
    if previous in vocabulary.WORDS_BEFORE_TIMES or _END_OF_RANGE_AHEAD.match(scan.view, match.end()):
        return False
    is_duration = following in vocabulary.WORDS_AFTER_DURATIONS or following in _RACES
    if is_duration or previous in vocabulary.WORDS_BEFORE_DURATIONS:
        return True
    if not match.group(3):
        named = following in ("minutes", "hours", "mins", "hrs", "min")
        within = previous == "within" or (previous == "in" and not scan.context.after_colon)
        return named or (match.group(1) in ("0", "00") and previous != "0") or within
    is_short = len(match.group(1)) == 1 or match.group(1) == "00" or int(match.group(1)) > 24
    return is_short


def _read_minutes(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "5m" of "5m ago"."""
    _emit_duration(scan, [(match.group(1), "m", match.start(), match.end())])
    return match.end()


def _read_announced_minutes(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "5m" of "wait 5m" and "4x in 10m"; elsewhere it is a length."""
    announced = scan.context.previous_word in vocabulary.WORDS_BEFORE_MINUTES
    announced = announced or bool(_MINUTES_BEHIND.search(scan.view, match.start()))
    announced = announced or (scan.context.previous_word == "time" and scan.context.after_colon)
    if _AFTER_COOKED.match(scan.view, match.end()):  # not "a steep 20m drop"
        announced = announced or bool(_COOKED_BEHIND.search(scan.view, match.start()))
    is_part = scan.next_word(match.end()) == "of"  # "the last 50m of the race"
    return _read_minutes(scan, match) if announced and not is_part else None


def _read_minutes_sign(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "20'" of "bake 20'" and "trains run every 20' from 5:30"; elsewhere it is a length."""
    if not _MINUTES_SIGN_BEHIND.search(scan.view, match.start()):
        return None
    if scan.next_word(match.end()) in vocabulary.LENGTH_WORDS | vocabulary.WORDS_AFTER_FEET | {"of", "along"}:
        return None
    return _read_minutes(scan, match)


def _read_minute_of_match(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "23'" and "90+2'" of a football match."""
    minute, added = match.groups()
    around = scan.view[max(0, match.start() - 80) : match.end() + 60]
    if not _FOOTBALL.search(around):
        return None
    words = numbers.ordinal(int(minute)) if added is None else amount_words(minute)
    words += " minute" if added is None else f" plus {amount_words(added)} minutes"
    scan.emit(words, *match.span())
    scan.context.note_number()
    return match.end()


def _read_added_time(scan: ScanState, match: re.Match[str]) -> int:
    """Read "45'+2'" of a football match."""
    scan.emit(f"{amount_words(match.group(1))} plus {amount_words(match.group(2))}", *match.span())
    scan.context.note_number()
    return match.end()


def _read_weeks_and_days(scan: ScanState, match: re.Match[str]) -> int:
    """Read "32w4d", the age of a pregnancy."""
    for group, unit in ((1, "week"), (2, "day")):
        number = int(match.group(group))
        scan.emit(f"{numbers.cardinal(number)} {unit}{'' if number == 1 else 's'}", *match.span(group))
    scan.context.note_number()
    return match.end()


def _read_military_time(scan: ScanState, match: re.Match[str]) -> int:
    """Read "0900 hrs"."""
    hour, minute = int(match.group(1)), int(match.group(2))
    rest = numbers.cardinal(minute) if minute else "hundred"
    scan.emit(
        f"oh {numbers.cardinal(hour)} {'oh ' if 0 < minute < 10 else ''}{rest}", match.start(), match.end(2)
    )
    scan.emit("hours", match.end(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_dilution(scan: ScanState, match: re.Match[str]) -> int:
    """Read "1:10,000"."""
    for group, joined in ((1, ""), (2, "to ")):
        scan.emit(f"{joined}{amount_words(match.group(group))}", *match.span(group))
    scan.context.note_number()
    return match.end()


def _read_time_without_colon(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "at 0600"; elsewhere four digits are a code."""
    context = scan.context
    if context.previous_word != "at" or context.code_words_left or context.identifier_expected:
        return None
    hour, minute = int(match.group(1)), int(match.group(2))
    rest = f"{'oh ' if minute < 10 else ''}{numbers.cardinal(minute)}" if minute else "hundred"
    scan.emit(f"oh {numbers.cardinal(hour)} {rest}", *match.span())
    context.note_number()
    return match.end()


CLOCK_RULES = compile_rules(
    (r"(\d{1,3}):(\d{1,3}(?:,\d{3}){1,3})(?![\w:]|,\d)", _read_dilution),
    (
        r"(\d{1,3}):([0-5]\d)(?::([0-5]\d))?([.,]\d{1,6}(?!\w|[.,:]\d))?(?![\d:]| ?[AaPp]\.?[Mm])",
        _read_clock_duration,
    ),
)
# The sign of 5' 10" is of feet.
_SIGN = r"'(?!\w| ?\d{1,2}(?:\"|''))"
DIGIT_RULES = compile_rules(
    (r"(45|90|105|120)'\+(\d{1,2})'?(?!\w)", _read_added_time),
    (rf"(\d{{1,3}})(?:\+(\d{{1,2}}))?{_SIGN}", _read_minute_of_match),
    (rf"(\d{{1,3}}){_SIGN}", _read_minutes_sign),
    (r"(0[1-9])([0-5]\d) ?(?:hrs|hours|h)(?!\w)", _read_military_time),
    (r"(0[1-9])([0-5]\d)(?![\w:/-]|[.,]\d)", _read_time_without_colon),
    # "2m 30s"; then "5m ago"
    (
        rf"\d{{1,4}} ?(?:{_DAYS}|{_HOURS}|{_MINUTES}),?"
        rf"(?: ?\d{{1,4}} ?(?:{_HOURS}|{_MINUTES}|{_SECONDS})(?![^\W\d_])){{1,3}}",
        _read_duration,
    ),
    (r"(\d{1,2})w ?(\d{1,2})d(?!\w)", _read_weeks_and_days),
    (rf"(\d{{1,3}}) ?m{_MINUTES_AHEAD}", _read_minutes),
    (r"(\d{1,3})m(?![\w/^])", _read_announced_minutes),
)
