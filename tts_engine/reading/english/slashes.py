"""Rules of the slash: fractions, scores, steps, dates without a year, spans of years, alternatives.

Between two words or times a slash is read as "or", and between the years of a season as "to".
Source: GOV.UK style guide A to Z, which writes "or" for the slash and "to" in spans of years.
"""

import re

from ..tokenizer import ScanState, any_of, compile_rules
from . import number_words as numbers
from . import vocabulary
from .dates import day_and_month
from .number_words import amount_words
from .units import UNIT, end_of_unit
from .word_context import note_english_word

_UNIT_AHEAD = re.compile(rf"( ?|-)({UNIT})(?![\w'/])")
_PARTS_AHEAD = re.compile(r" (?:complete|completed|done|finished|steps|tasks|uploaded|remaining)\b")
_OFFERS = re.compile(
    r"\b(?:offer|coupon|promo\w*|quote|sale|trial|discount|deal|session|voucher|reservation|hold|code|link)s?\b",
    re.IGNORECASE,
)
_WORD_BEHIND = re.compile(r"([^\s/]+) ?\Z")
_TOKEN_BEHIND = re.compile(r"[^\s()\"',;]{0,80}\Z")
_TOKEN = re.compile(r"[^\s()\"',;]{0,80}")
# "moved to 3/9", "as of 1/5"
_DATE_BEHIND = re.compile(
    rf"\b(?:{any_of(vocabulary.WORDS_OF_NEW_DATES)})\b[^.;!?]{{0,60}} to \Z"
    r"|\b(?:as|week|night|morning|evening|day) of \Z"
)
_STOP_BEFORE_WORD = re.compile(r"\. [a-z]")
_FILE_NAME = re.compile(r"_|/[\w-]{2,}\.[a-z]")
_MAX_WORD_CHARACTERS = 40  # of the word before a slash


def _fraction_words(numerator: int, denominator: int) -> str:
    part = numbers.FRACTIONS[denominator]
    if numerator == 1:
        return f"one {part}"
    return f"{numbers.cardinal(numerator)} {'halves' if part == 'half' else numbers.plural(part)}"


def _emit_unit_after_fraction(scan: ScanState, end: int, *, plural: bool) -> int:
    """Read the unit of "1/2 tsp", and return where the reading ends."""
    if scan.view[end : end + 1] == '"' and scan.view.count('"', 0, end) % 2 == 0:
        scan.emit("inches" if plural else "inch", end, end + 1)
        return end + 1
    unit = _UNIT_AHEAD.match(scan.view, end)
    if unit is None or (unit.group(2) in vocabulary.UNITS_WITHOUT_SPACE and not _is_inch(scan, unit)):
        return end
    is_adjective = unit.group(1) == "-" or scan.context.previous_word in ("a", "an")
    form = 1 if plural and not is_adjective else 0
    scan.emit(vocabulary.UNITS[unit.group(2)][form], unit.start(2), unit.end())
    return end_of_unit(scan, unit.end())


def _is_inch(scan: ScanState, unit: re.Match[str]) -> bool:
    """Whether the unit is that of "3/8-in" or "5/8 in. bolts", and not the word "in"."""
    return unit.group(1) == "-" or bool(_STOP_BEFORE_WORD.match(scan.view, unit.end()))


def _read_mixed_fraction(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "3 1/2"."""
    numerator, denominator = int(match.group(2)), int(match.group(3))
    if denominator not in numbers.FRACTIONS or not 0 < numerator < denominator:
        return None
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    tail = _fraction_words(numerator, denominator)
    spoken = f"and {tail}" if numerator > 1 or denominator != 2 else "and a half"
    scan.emit(spoken, match.start(2), match.end())
    end = _emit_unit_after_fraction(scan, match.end(), plural=True)
    scan.context.note_number()
    return end


def _read_slashed_numbers(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "1/2", a half, "5/10", out of ten, "3/14", a date, "120/80", a blood pressure, or "step 1/3"."""
    first, second = int(match.group(1)), int(match.group(2))
    context = scan.context
    if _is_part_of_sequence(scan, match):
        words = f"{numbers.cardinal(first)} of {numbers.cardinal(second)}"
    elif _is_expiry(scan, match):
        words = f"{vocabulary.MONTHS[first - 1]} {numbers.year(2000 + second)}"
    elif _is_code(scan, match):
        return None
    else:
        words = _slashed_words(scan, match)
    scan.emit(words, match.start(), match.end())
    is_fraction = second in numbers.FRACTIONS and words == _fraction_words(first, second)
    end = match.end()
    if is_fraction or words == _both_words(first, second) or scan.next_word(end) == "mmHg":
        end = _emit_unit_after_fraction(scan, end, plural=not is_fraction)
    context.note_number()
    return end


def _slashed_words(scan: ScanState, match: re.Match[str]) -> str:
    first, second = int(match.group(1)), int(match.group(2))
    date = _date_words(scan, first, second)
    date_expected = (
        scan.context.previous_word in vocabulary.WORDS_BEFORE_DATES | vocabulary.WORDS_BEFORE_EXPIRY
    ) or _DATE_BEHIND.search(scan.view, 0, match.start())
    if match.group() in ("24/7", "9/11", "20/20") or first + second == 100:
        return f"{numbers.cardinal(first)} {numbers.cardinal(second)}"
    if (unit := _UNIT_AHEAD.match(scan.view, match.end())) and unit.group(2) != "mmHg":
        is_fraction = second in numbers.FRACTIONS and 0 < first < second
        return _fraction_words(first, second) if is_fraction else _both_words(first, second)
    if second > 99 and first <= second:
        return f"{numbers.house_number(first)} out of {numbers.house_number(second)}"
    if first > 99:
        return f"{numbers.house_number(first)} over {numbers.cardinal(second)}"
    if date and date_expected:
        return date
    if scan.next_word(match.end()) in ("stars", "rating"):
        return f"{numbers.cardinal(first)} out of {numbers.cardinal(second)}"
    if second in numbers.FRACTIONS and 0 < first < second:
        return _fraction_words(first, second)
    if second in (10, 100) and first <= second:
        return f"{numbers.cardinal(first)} out of {numbers.cardinal(second)}"
    if date:
        return date
    return _both_words(first, second)


def _both_words(first: int, second: int) -> str:
    return f"{numbers.cardinal(first)} slash {numbers.cardinal(second)}"


def _is_part_of_sequence(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "1/3" counts the steps, pages or messages of a sequence."""
    if not 0 < int(match.group(1)) <= int(match.group(2)):
        return False
    in_brackets = (
        scan.view[max(0, match.start() - 1)] == "(" and scan.view[match.end() : match.end() + 1] == ")"
    )
    named = scan.context.previous_word in vocabulary.SEQUENCE_NOUNS
    return in_brackets or named or bool(_PARTS_AHEAD.match(scan.view, match.end()))


def _is_code(scan: ScanState, match: re.Match[str]) -> bool:
    context = scan.context
    if context.previous_word in vocabulary.WORDS_BEFORE_EXPIRY | vocabulary.WORDS_BEFORE_DATES:
        return False
    return context.code_words_left > 0 or (context.identifier_expected and len(match.group()) > 3)


def _is_expiry(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "08/27" is the month and year until which a card is valid; an offer ends on a day."""
    month, year = match.group(1), match.group(2)
    if not (1 <= int(month) <= 12 and len(year) == 2 and int(year) > 12):
        return False
    if scan.context.previous_word in vocabulary.NOUNS_OF_EXPIRY:
        return True
    return scan.context.previous_word in vocabulary.WORDS_BEFORE_EXPIRY and not _OFFERS.search(
        scan.view, 0, match.start()
    )


def _date_words(scan: ScanState, first: int, second: int) -> str:
    """Return the date in the order of the style, or in the other order; "" if it is none."""
    if scan.style.day_first and 1 <= second <= 12 and 1 <= first <= 31:
        return day_and_month(scan, first, second)
    if 1 <= first <= 12 and 1 <= second <= 31:
        return f"{vocabulary.MONTHS[first - 1]} {numbers.ordinal(second)}"
    return ""


def _read_rating(scan: ScanState, match: re.Match[str]) -> int:
    """Read "4.5/5"."""
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit(f"out of {numbers.cardinal(int(match.group(2)))}", match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_season(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "1999/2000" and "2024/25"."""
    first, last = match.group(1), match.group(2)
    if scan.context.code_words_left or scan.context.identifier_expected:
        return None
    if int(first) >= int(first[: 4 - len(last)] + last) and not (first.endswith("99") and last == "00"):
        return None
    scan.emit(numbers.year(int(first)), match.start(), match.end(1))
    scan.emit("to", match.end(1), match.start(2))
    is_short = len(last) == 2
    scan.emit(
        numbers.short_year(int(last)) if is_short else numbers.year(int(last)), match.start(2), match.end()
    )
    scan.context.note_number()
    return match.end()


def _read_or_before_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the slash of "6 a.m./8 a.m." and "500 ml/16 oz"."""
    if not scan.context.after_number:
        return None
    scan.emit("or", match.start(), match.end())
    scan.context.previous_word, scan.context.after_number = "or", False
    return match.end()


def _read_slash_between_words(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the slash of "he/she" as "or"; a path keeps its slashes, and "TCP/IP" needs no word."""
    behind = _WORD_BEHIND.search(scan.view, max(0, match.start() - _MAX_WORD_CHARACTERS), match.start())
    if behind is None:
        return None
    left, right = behind.group(1).strip("\"'(.").lower(), scan.next_word(match.end()).lower()
    pair = f"{left}/{right}"
    if not left[-1:].isalpha() or not right:
        return None
    if left in vocabulary.WEEKDAY_NAMES:
        scan.punctuate(",")
    elif _is_in_path(scan, match.start()):
        scan.emit("slash", match.start(), match.end())
    elif not (
        pair in vocabulary.JOINED_PAIRS or len(left) == len(right) == 1 or {left, right} & {"and", "or"}
    ):
        scan.emit("or", match.start(), match.end())
        note_english_word(scan.context, "or")
    return match.end()


def _is_in_path(scan: ScanState, at: int) -> bool:
    """Whether the slash at ``at`` is part of a path: three slashes, a file type or an underscore show it."""
    behind = _TOKEN_BEHIND.search(scan.view, max(0, at - 80), at)
    ahead = _TOKEN.match(scan.view, at)
    token = (behind.group() if behind else "") + (ahead.group() if ahead else "")
    return token.count("/") > 2 or bool(_FILE_NAME.search(token))


def _read_path(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "/help" and "/settings/profile"."""
    if match.start() and scan.view[match.start() - 1] not in " (\"'":
        return None
    for part in re.finditer(r"/|[^/]+", match.group()):
        start, stop = match.start() + part.start(), match.start() + part.end()
        scan.emit("slash" if part.group() == "/" else part.group().replace("-", " "), start, stop)
    note_english_word(scan.context, "path")
    return match.end()


def _read_slash_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    """Read "w/", "c/o", "and/or" or "N/A"."""
    word = vocabulary.SLASH_ABBREVIATIONS[match.group().lower()]
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


_SLASH_ABBREVIATION = any_of(vocabulary.SLASH_ABBREVIATIONS)
LETTER_RULES = compile_rules(
    (
        rf"(?i:{_SLASH_ABBREVIATION})(?<=/)(?!\w)|(?i:{_SLASH_ABBREVIATION})(?<!/)(?![\w/])",
        _read_slash_abbreviation,
    ),
)
DIGIT_RULES = compile_rules(
    (r"(\d{1,3}) +(\d{1,2})/(\d{1,2})(?![\w/])", _read_mixed_fraction),
    # "4.5/5", then "1/2"
    (r"(\d\.\d)/(5|10)(?![\w/])", _read_rating),
    (r"(\d{1,3})/(\d{1,3})(?![\w/])", _read_slashed_numbers),
    (r"((?:19|20)\d\d)/((?:19|20)\d\d|\d\d)(?![\w/])", _read_season),
)
SYMBOL_RULES = compile_rules(
    (r"/(?=[$£€]?\d)", _read_or_before_number),
    (r"/[a-z][a-z-]*(?:/[a-z][a-z-]*)*(?![\w/])", _read_path),
    (r" ?/ ?(?=[^\W\d])", _read_slash_between_words),
)
