"""Rules of the slash beside numbers: fractions, scores, steps, dates without a year, spans of years, prices.

Between two times a slash is read as "or", and between the years of a season as "to".
Source: GOV.UK style guide A to Z, which writes "or" for the slash and "to" in spans of years.
"""

import re

from ....kit.patterns import PatternBehind
from ....kit.tokenizer import ScanState, any_of, compile_rules
from .. import vocabulary
from ..codes import is_counted
from ..dates import day_and_month
from ..spelling import ENGLISH_SPELLER
from ..word_context import note_english_word
from . import number_words as numbers
from .amounts import STREET_AHEAD
from .number_pairs import pair_words, read_limits
from .number_words import amount_words
from .units import UNIT, WORDS_AFTER_LENGTHS, end_of_unit

_UNIT_AHEAD = re.compile(rf"( ?|-)({UNIT})(?![\w'/])")
_PARTS_AHEAD = re.compile(
    r" (?P<noun>(?!to |of |in |on )[a-z-]{2,20} (?:are |is |were )?)?"
    rf"(?:(?i:{any_of(vocabulary.WORDS_AFTER_PARTS)})\b"
    rf"|(?P<last>{any_of(vocabulary.LAST_WORDS_AFTER_PARTS)})(?=[.,;:!?)]|\Z))"
)
_OFFERS = re.compile(
    r"\b(?:offer|coupon|promo\w*|quote|sale|trial|discount|deal|session|voucher|reservation|hold|code|link)s?\b",
    re.IGNORECASE,
)
_ONE_OF_MONEY_AHEAD = re.compile(r"/[$£€¥]1(?!\d|[.,]\d)")
# The other end of "15/08–14/09".
_RANGE_END_AHEAD = re.compile(r" ?(?:[-–]|to) ?(\d{1,2})/(\d{1,2})(?![\w/])")
_RANGE_START_BEHIND = re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2}) ?(?:[-–]|to) ?\Z")
# "moved to 3/9", "as of 1/5"
_DATE_BEHIND = PatternBehind(
    rf"\b(?:{any_of(vocabulary.WORDS_OF_NEW_DATES)})\b[^.;!?]{{0,60}} to \Z"
    r"|\b(?:as|week|night|morning|evening|day) of \Z"
)
# "reduced by 1/3" is a fraction, not a date.
_CHANGE_BEHIND = PatternBehind(
    rf"\b(?:{any_of(vocabulary.WORDS_OF_CHANGE)})\b[^.;!?]{{0,20}} by \Z", re.IGNORECASE
)
# "250 mg/5 ml"
_CONCENTRATION_BEHIND = PatternBehind(r"(?:g|μg|mcg|IU|mEq|mmol|units?) ?\Z")
_VOLUME_AHEAD = re.compile(r"/ ?\d+(?:\.\d+)? ?(?:[md]?[lL]|kg|h|hr|hours?)(?!\w)")
_TIME_AHEAD = re.compile(
    r"\d{1,3} ?(?:h|hrs?|hours?|days?|d|wks?|weeks?|mo|mos|mths?|months?|yrs?|years?|min|mins)\b"
)
_MIN_YEAR_OF_EXPIRY = 20  # "12/15" is a day
_VALID_BEHIND = re.compile(r"\b(?:valid|good|card|expir\w*)\b", re.IGNORECASE)
_HALF_NOUN_AHEAD = re.compile(rf"[ -](?:{any_of(vocabulary.NOUNS_AFTER_HALF)})\b")
_HOUR_AHEAD = re.compile(r"[ -]?h(?:ou)?rs?\b")
_STOP_BEFORE_WORD = re.compile(r"\. [a-z]")
# "7/16 of an inch"
_PART_AHEAD = re.compile(
    r" of an? (?:inch|foot|yard|mile|acre|(?:kilo|centi|milli)?met[er]{2}|second|minute|hour|day|year|percent"
    r"|point|degree|cent|gallon|pint|cup|teaspoon|tablespoon|ounce|pound|lit[er]{2}|turn|page|tank)\b"
)
# Of an inch or another part, or after a whole number.
_FRACTIONS = numbers.FRACTIONS | {
    10: "tenth",
    12: "twelfth",
    16: "sixteenth",
    20: "twentieth",
    32: "thirty second",
    64: "sixty fourth",
    100: "hundredth",
}
_UNITS_IN_PARTS = frozenset(("mi", "km", "lb", "lbs"))  # "three quarters of a mile"
_INCH_AHEAD = re.compile(r"\"|-?(?: ?in\.| ?inch)")
_ARM_AHEAD = re.compile(r" [LR] (?:arm|leg)\b")  # "142/90 L arm"
_ACUITIES = frozenset((15, 20, 25, 30, 40, 50, 60, 70, 80, 100, 200, 400))
_DWELLINGS = frozenset(("flat", "unit", "apt", "apartment", "suite", "shop"))
_PRICE_BEHIND = re.compile(r"[$£€][\d.,]{1,12}\Z")
_MANY_AHEAD = re.compile(r"/[\d,]{1,9}[kKM]? (?:[a-z]{3}|(?:in|out)(?![a-z]))")
_FEW_BEHIND = re.compile(r"(?<![\w.,$£€])\d{1,2}\Z")  # "3/$10"
_SIZE_OF_MEMORY_BEHIND = re.compile(r"\d ?(?:[GTM]B|[KMG]bps)\Z")  # "16GB/512GB", "1 Gbps/500 Mbps"
_SIZE_OF_MEMORY_AHEAD = re.compile(r"/\d{1,4} ?(?:[GTM]B|[KMG]bps)\b")
_BINARY_SIZE_BEHIND = re.compile(r"\d[KMGT]i\Z")  # "412Mi/2Gi"
_PICTURE_BEHIND = re.compile(r"\d0p\Z")  # "1080p/60"
_BINARY_SIZE_AHEAD = re.compile(r"/\d{1,5}(?:\.\d)?[KMGT]i\b")
_MAX_MARKS = (20, 50, 100)  # "(88/100)" is a mark out of a hundred, "(1/3)" a part of a sequence
_ARTICLE_AHEAD = re.compile(r" an? [a-z]")
# Points, rebounds and assists; kills, deaths and assists. "We had 31/8/11" alone is a date.
_SCORE_LINE_BEHIND = PatternBehind(
    r"\b(?:(?:score|stat|box)[ -]?(?:line|score)s?|h(?:is|er) line|stats|k/?d/?a|averag(?:ed|ing|es?)"
    r"|scor(?:ed|ing|es?)|tall(?:ied|ies)"
    r"|post(?:ed|ing|s)|notch(?:ed|es)|put(?:s|ting)? up|dropp(?:ed|ing))\b[^.;!?]{0,20}\Z",
    re.IGNORECASE,
)
_SCORE_LINE_AHEAD = re.compile(
    r" (?:in |of |for |as )?(?:an? )?(?:(?:score |stat |box )?line|score|game|night|performance|KDA|K/D/A"
    r"|split|triple-double|double-double)\b",
    re.IGNORECASE,
)
_PERFORMED = PatternBehind(
    r"\b(?:had|ha[sd] had|went|going|finish(?:ed|es|ing)|end(?:ed|s|ing)|with|record(?:ed|s)|at|is|was|goes)"
    r"(?: up)?(?: with)?(?: an?)? \Z",
    re.IGNORECASE,
)
_SCORE_LINE_NOUNS = frozenset(("line", "score", "stats", "kda"))  # of "Stat line: 28/10/7"
_GAME = re.compile(
    r"\b(?:games?|match(?:es)?|quarter|half-time|halftime|playoffs?|NBA|rebounds?|assists?|steals?|kills?|deaths?|minutes"
    r"|triple-double|ranked|carry|mid lane|top lane|jungler?|overtime)\b"
)


def _fraction_words(numerator: int, denominator: int) -> str:
    part = _FRACTIONS[denominator]
    if numerator == 1:
        return f"one {part}"
    return f"{numbers.cardinal(numerator)} {'halves' if part == 'half' else numbers.plural(part)}"


def _emit_unit_after_fraction(scan: ScanState, end: int, *, plural: bool) -> int:
    """Read the unit of "1/2 tsp", and return where the reading ends."""
    if scan.view[end : end + 1] == '"' and scan.view.count('"', 0, end) % 2 == 0:
        following = scan.next_word(end + 1)
        is_adjective = following.islower() and following not in WORDS_AFTER_LENGTHS
        scan.emit("inches" if plural and not is_adjective else "inch", end, end + 1)
        return end + 1
    unit = _UNIT_AHEAD.match(scan.view, end)
    if unit is None or (unit.group(2) in vocabulary.UNITS_WITHOUT_SPACE and not _is_inch(scan, unit)):
        return end
    is_adjective = unit.group(1) == "-" or scan.context.previous_word in ("a", "an")
    form = 1 if plural and not is_adjective else 0
    name = vocabulary.UNITS[unit.group(2)][form]
    is_part = (
        unit.group(2) in _UNITS_IN_PARTS and not (plural or is_adjective) and scan.words[-1].text[-1] == "s"
    )
    scan.emit(f"of a {name}" if is_part else name, unit.start(2), unit.end())
    return end_of_unit(scan, unit.end())


def _is_inch(scan: ScanState, unit: re.Match[str]) -> bool:
    """Whether the unit is that of "3/8-in" or "5/8 in. bolts", and not the word "in"."""
    return unit.group(1) == "-" or bool(_STOP_BEFORE_WORD.match(scan.view, unit.end()))


def _read_mixed_fraction(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "3 1/2"."""
    numerator, denominator = int(match.group(2)), int(match.group(3))
    if denominator not in _FRACTIONS or not 0 < numerator < denominator:
        return None
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    tail = _fraction_words(numerator, denominator)
    spoken = f"and {tail}" if numerator > 1 or denominator != 2 else "and a half"
    scan.emit(spoken, match.start(2), match.end())
    end = _emit_unit_after_fraction(scan, match.end(), plural=True)
    scan.context.note_number()
    return end


def _read_fraction_with_ending(scan: ScanState, match: re.Match[str]) -> int:
    """Read "2/3rds"."""
    scan.emit(_fraction_words(int(match.group(1)), int(match.group(2))), *match.span())
    scan.context.note_number()
    return match.end()


def _read_slashed_numbers(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "1/2", a half, "5/10", out of ten, "3/14", a date, "120/80", a blood pressure, or "step 1/3"."""
    first, second = int(match.group(1)), int(match.group(2))
    context = scan.context
    if match.group() == "24/7":
        words = "twenty four seven"
    elif context.previous_word in _DWELLINGS and first <= 99 >= second:
        words = f"{numbers.cardinal(first)} slash {numbers.cardinal(second)}"
    elif _is_part_of_sequence(scan, match):
        words = f"{numbers.cardinal(first)} of {numbers.cardinal(second)}"
    elif _is_expiry(scan, match):
        words = f"{vocabulary.MONTHS[first - 1]} {numbers.year(2000 + second)}"
    elif _is_code(scan, match):
        return None
    else:
        words = _slashed_words(scan, match)
    if words and words == _date_words(scan, first, second):
        context.date_words_left = 2
    scan.emit(words, match.start(), match.end())
    is_half = words.startswith("half")
    is_fraction = is_half or (second in _FRACTIONS and words == _fraction_words(first, second))
    end = match.end()
    if is_fraction or words == _both_words(first, second) or scan.next_word(end) == "mmHg":
        end = _emit_unit_after_fraction(scan, end, plural=not is_fraction)
    context.note_number()
    return end


def _slashed_words(scan: ScanState, match: re.Match[str]) -> str:
    first, second = int(match.group(1)), int(match.group(2))
    if words := _end_of_range_of_days(scan, match):
        return words
    date, date_expected = _date_words(scan, first, second), _is_date_expected(scan, match)
    is_fraction = second in numbers.FRACTIONS and 0 < first < second
    if date_expected and not date and scan.context.previous_word != "is" and second <= 12 < first <= 31:
        date = day_and_month(scan, first, second)
    if words := pair_words(scan, match):
        return words
    is_part = (
        _INCH_AHEAD.match(scan.view, match.end())
        or _PART_AHEAD.match(scan.view, match.end())
        or scan.view[match.start() - 1 : match.start()] == "±"
    )
    if is_part and second in _FRACTIONS and 0 < first < second:
        return _fraction_words(first, second)
    if date and "0" in (match.group(1)[0], match.group(2)[0]):
        return date
    is_acuity = first == 20 and second in _ACUITIES  # "20/40 vision"
    if match.group() == "9/11" or is_acuity or first + second == 100:
        return f"{numbers.cardinal(first)} {numbers.cardinal(second)}"
    if (first, second) == (1, 2) and _HOUR_AHEAD.match(scan.view, match.end()):
        return "half" if scan.context.previous_word in vocabulary.WORDS_BEFORE_ONE else "half an"
    if first > 99 > second and _ARM_AHEAD.match(scan.view, match.end()):
        return f"{numbers.house_number(first)} over {numbers.cardinal(second)}"
    if (unit := _UNIT_AHEAD.match(scan.view, match.end())) and unit.group(2) != "mmHg":
        if second == 24 and unit.group(2) in ("h", "hr", "hrs"):
            return f"{numbers.cardinal(first)} per twenty four"
        return _fraction_words(first, second) if is_fraction else _both_words(first, second)
    if (first, second) == (1, 2) and _ARTICLE_AHEAD.match(scan.view, match.end()):
        return "half"
    if (first, second) == (1, 2) and _HALF_NOUN_AHEAD.match(scan.view, match.end()):
        return "half"
    if second > 99 and first <= second:
        return f"{numbers.house_number(first)} out of {numbers.house_number(second)}"
    if first > 99:
        return f"{numbers.house_number(first)} over {numbers.cardinal(second)}"
    if date and date_expected:
        return date
    if scan.next_word(match.end()) in ("stars", "rating"):
        return f"{numbers.cardinal(first)} out of {numbers.cardinal(second)}"
    if is_fraction:
        return _fraction_words(first, second)
    if second in (10, 100) and first <= second:
        return f"{numbers.cardinal(first)} out of {numbers.cardinal(second)}"
    counts = 0 < first <= second and is_counted(scan.next_word(match.end()))
    if (
        counts and scan.context.previous_word not in vocabulary.DETERMINERS
    ):  # "48/50 units"; "the 11/28 orders"
        return f"{numbers.cardinal(first)} of {numbers.cardinal(second)}"
    if date:
        return date
    return _both_words(first, second)


def _end_of_range_of_days(scan: ScanState, match: re.Match[str]) -> str:
    """The date of an end of "15/08–14/09" or "12/23–1/2", one of which has a day above 12; or ""."""
    other = _RANGE_END_AHEAD.match(scan.view, match.end()) or _RANGE_START_BEHIND.search(
        scan.view, max(0, match.start() - 10), match.start()
    )
    stop = max(match.end(), other.end() if other else 0)
    if other is None or _UNIT_AHEAD.match(scan.view, stop) or _INCH_AHEAD.match(scan.view, stop):
        return ""
    firsts, seconds = ([int(end.group(group)) for end in (match, other)] for group in (1, 2))
    if _is_range_in_month(scan, match, other):
        return _date_words(scan, firsts[0], seconds[0])
    if max(seconds) <= 12 < max(firsts) <= 31 and min(firsts + seconds) > 0:
        return day_and_month(scan, firsts[0], seconds[0])
    if max(firsts) <= 12 < max(seconds) <= 31 and min(firsts + seconds) > 0:
        return f"{vocabulary.MONTHS[firsts[0] - 1]} {numbers.ordinal(seconds[0])}"
    return ""


def _is_range_in_month(scan: ScanState, match: re.Match[str], other: re.Match[str]) -> bool:
    """Whether "3/8-3/11" is of days of a month; "1/4-1/2 cup" and "1/3-1/2 of" are parts."""
    (month, day), (last_month, last_day) = (
        (int(end.group(1)), int(end.group(2))) for end in sorted((match, other), key=lambda end: end.start())
    )
    stop = max(match.end(), other.end())
    return (
        not (scan.style.day_first or scan.next_word(stop) in ("of", "cup", "cups"))
        and month == last_month <= 12
        and 1 <= day < last_day <= 31
    )


def _is_date_expected(scan: ScanState, match: re.Match[str]) -> bool:
    if _CHANGE_BEHIND.search(scan.view, match.start()):
        return False
    # "6/3, 6/5, and 6/10"
    if scan.context.date_words_left and scan.context.previous_word in ("0", "and", "or"):
        return scan.next_word(match.end()) != "of"  # "on 5/6, 5/6 of voters"
    words_before = vocabulary.WORDS_BEFORE_DATES | vocabulary.WORDS_BEFORE_EXPIRY
    return scan.context.previous_word in words_before or bool(_DATE_BEHIND.search(scan.view, match.start()))


def _both_words(first: int, second: int) -> str:
    return f"{numbers.cardinal(first)} slash {numbers.cardinal(second)}"


def _is_part_of_sequence(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "1/3" counts the steps, pages or messages of a sequence."""
    first, last = int(match.group(1)), int(match.group(2))
    if not 0 < first <= last:
        return False
    around = scan.view[max(0, match.start() - 1)] + scan.view[match.end() : match.end() + 1]
    in_brackets = around in ("()", "[]") and last not in _MAX_MARKS
    if in_brackets or scan.context.previous_word in vocabulary.SEQUENCE_NOUNS:
        return True
    ahead = _PARTS_AHEAD.match(scan.view, match.end())
    if ahead is None or ahead["noun"]:
        return ahead is not None
    # "up on 3/3", "paid 1/2 down"
    return not (_is_date_expected(scan, match) or (ahead["last"] and first < last))


def _is_code(scan: ScanState, match: re.Match[str]) -> bool:
    context = scan.context
    if context.previous_word in vocabulary.WORDS_BEFORE_EXPIRY | vocabulary.WORDS_BEFORE_DATES:
        return False
    is_announced = context.previous_word in vocabulary.WORDS_BEFORE_CODES
    if context.code_words_left > 0 and not context.identifier_expected:
        return is_announced or not _date_words(scan, int(match.group(1)), int(match.group(2)))
    return context.code_words_left > 0 or (
        context.identifier_expected and len(match.group()) > (3 if is_announced else 5)
    )


def _is_expiry(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "08/27" is the month and year until which a card is valid; an offer ends on a day."""
    month, year = match.group(1), match.group(2)
    if not (1 <= int(month) <= 12 and len(year) == 2 and int(year) >= _MIN_YEAR_OF_EXPIRY):
        return False
    if scan.context.previous_word in ("thru", "through"):
        is_of_card = _VALID_BEHIND.search(scan.view, 0, match.start())
        # "02/28" is how a card has it
        if not is_of_card or (len(month) == 1 and "card" not in scan.view[: match.start()]):
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


def _read_score_line(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "31/8/11" of "his line was 31/8/11" and "31/8/11 KDA"."""
    if not _is_score_line(scan, match):
        return None
    for group in (1, 2, 3):
        scan.emit(numbers.cardinal(int(match.group(group))), *match.span(group))
        scan.punctuate("," if group < 3 else "")
    scan.context.note_number()
    return match.end()


def _is_score_line(scan: ScanState, match: re.Match[str]) -> bool:
    if _SCORE_LINE_BEHIND.search(scan.view, match.start()) or _SCORE_LINE_AHEAD.match(scan.view, match.end()):
        return True
    first, second, third = (int(match.group(group)) for group in (1, 2, 3))
    if max(first, second, third) < 60 and (max(first, second) > 31 or min(first, second) > 12):  # no date
        return True
    if scan.context.previous_word in _SCORE_LINE_NOUNS:
        return True
    performed = _PERFORMED.search(scan.view, match.start())
    return performed is not None and _GAME.search(scan.view) is not None


def _read_rating(scan: ScanState, match: re.Match[str]) -> int:
    """Read "4.5/5" and "3.7/4.0"."""
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit(f"out of {amount_words(match.group(2))}", match.end(1), match.end())
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


def _read_unit_of_street(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "4/" of "4/112 Beaumont St", the number of a unit."""
    announced = scan.context.previous_word in vocabulary.WORDS_BEFORE_UNITS_OF_STREETS
    if not announced or not STREET_AHEAD.match(scan.view, match.end(2)):
        return None
    ENGLISH_SPELLER.spell_in_groups(scan, match.start(1), match.end(1))
    scan.punctuate(",")
    scan.context.note_number()
    return match.end()


def _read_number_of_act(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the number of "Regulation 2016/679"."""
    if scan.context.code_words_left or scan.context.identifier_expected:
        return None
    scan.emit(numbers.year(int(match.group(1))), match.start(), match.end(1))
    scan.emit("slash", match.end(1), match.start(2))
    if match.group(2)[0] == "0":
        ENGLISH_SPELLER.spell(scan, match.start(2), match.end())
    else:
        scan.emit(numbers.house_number(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_slash_before_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the slash of "500 ml/16 oz" as "or", of "250 mg/5 ml" as "per", and between digits as "slash"."""
    if not scan.context.after_number:
        return _read_slash_before_time(scan, match)
    word, start = "or", match.start()
    is_concentration = _VOLUME_AHEAD.match(scan.view, start) and _CONCENTRATION_BEHIND.search(
        scan.view, start
    )
    if is_concentration or _is_price_of_many(scan, start):
        word = "per"
    elif scan.view[start - 1].isdigit() and scan.view[match.end()].isdigit():
        word = "slash"
    elif scan.view[start - 1] == "°":  # "41°/28°"
        word = "and"
    elif _ONE_OF_MONEY_AHEAD.match(scan.view, start):
        word = "per"
    elif _FEW_BEHIND.search(scan.view, max(0, start - 3), start):
        word = "for"
    elif _BINARY_SIZE_BEHIND.search(scan.view, max(0, start - 6), start) and _BINARY_SIZE_AHEAD.match(
        scan.view, start
    ):
        word = "of"
    elif _is_between_sizes_of_memory(scan, start) or _PICTURE_BEHIND.search(
        scan.view, max(0, start - 5), start
    ):
        scan.punctuate(",")
        return match.end()
    scan.emit(word, start, match.end())
    scan.context.previous_word, scan.context.after_number = word, False
    return match.end()


def _is_price_of_many(scan: ScanState, at: int) -> bool:
    """Whether a slash is that of "$15/1M tokens"."""
    behind = _PRICE_BEHIND.search(scan.view, max(0, at - 14), at)
    return behind is not None and _MANY_AHEAD.match(scan.view, at) is not None


def _is_between_sizes_of_memory(scan: ScanState, at: int) -> bool:
    behind = _SIZE_OF_MEMORY_BEHIND.search(scan.view, max(0, at - 6), at)
    return behind is not None and _SIZE_OF_MEMORY_AHEAD.match(scan.view, at) is not None


def _read_slash_before_time(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the slash of "4 doses/24 hrs" as "per"."""
    if not _TIME_AHEAD.match(scan.view, match.end()) or not scan.view[match.start() - 1].isalpha():
        return None
    scan.emit("per", match.start(), match.end())
    note_english_word(scan.context, "per")
    return match.end()


DIGIT_RULES = compile_rules(
    (r"(\d{1,3}) +(\d{1,2})/(\d{1,2})(?![\w/])", _read_mixed_fraction),
    (r"(\d{1,2})-(\d{1,2})/(2|3|4|8|16|32)(?![\w/-])", _read_mixed_fraction),
    (r"(\d{1,2})/([2-9]|1[026]|20|32|64|100)(?:rds?|ths?|nds?)(?!\w)", _read_fraction_with_ending),
    # "4.5/5", then "1/2"
    (r"(\d\.\d{1,2})/((?:4|5|10)(?:\.0)?)(?![\w/]|\.\d)", _read_rating),
    (r"([1-9]\d{0,3}[A-Z]?)/(?=([1-9]\d{1,3}) )", _read_unit_of_street),
    (r"(\d{1,3})/(\d{1,3})(?![\w/]|\.\d)", _read_slashed_numbers),
    (r"(\d{2,3})/(\d{2,3})/(\d{2,3})(?![\w/])", read_limits),
    (r"((?:19|20)\d\d)/((?:19|20)\d\d|\d\d)(?![\w/])", _read_season),
    (r"((?:19|20)\d\d)/(\d{3,4})(?![\w/-])", _read_number_of_act),
)
SCORE_LINE_RULES = compile_rules((r"(\d{1,2})/(\d{1,2})/(\d{1,2})(?![\w/]|\.\d)", _read_score_line))
SYMBOL_RULES = compile_rules((r"/(?=[$£€]?\d)", _read_slash_before_number))
