"""Rules of numbers that tell how much: integers, decimals, fractions, units, versions, ranges.

American English: no "and" inside numbers, and the month first where a fraction is a date.
"""

import re

from ..tokenizer import ScanState, any_of, compile_rules
from . import number_words as numbers
from . import vocabulary
from .codes import is_counted
from .dates import MONTH, ORDINAL_SUFFIX, WEEKDAY
from .number_words import amount_words, is_one
from .spelling import ENGLISH_SPELLER, phone_group_sizes
from .word_context import note_english_word

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?!\d)"
DECIMAL = rf"(?:{_INTEGER}(?:\.\d+)?)"
_STREET_WORD_WINDOW = 6  # words after a house number in which "St" is a street
_SERVICE_NUMBERS = ("911", "988", "411", "311")
_STREET_AHEAD = re.compile(
    r"(?: +(?:[NSEW]\.?|[A-Z][\w'-]*|\d+(?:st|nd|rd|th))){1,3} +(?:"
    + any_of(vocabulary.STREET_WORDS)
    + r")\b",
    re.IGNORECASE,
)
_UNIT = any_of(vocabulary.UNITS)
_RATE = any_of(vocabulary.RATE_UNITS)
_VERSION_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_IDIOMATIC_NUMBER = any_of(vocabulary.IDIOMATIC_NUMBERS)


def _read_amount(scan: ScanState, match: re.Match[str]) -> int:
    if scan.context.previous_word == "version" and "," not in match.group():
        return ENGLISH_SPELLER.read_version(scan, match)
    scan.emit(amount_words(match.group()), match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_integer(scan: ScanState, match: re.Match[str]) -> int:
    text, start, stop = match.group(), match.start(), match.end()
    following = scan.next_word(stop)
    street_follows = _STREET_AHEAD.match(scan.view, stop)
    if (text.startswith("0") and len(text) > 1) or _is_written_down(text):
        ENGLISH_SPELLER.spell_in_groups(scan, start, stop, phone_group_sizes(text))
    elif text in _SERVICE_NUMBERS and following.lower() not in vocabulary.COUNTED_NOUNS:
        ENGLISH_SPELLER.spell(scan, start, stop)
    elif (len(text) in (3, 4) and street_follows) or (len(text) == 3 and _is_said_in_pairs(scan, following)):
        scan.emit(numbers.house_number(int(text)), start, stop)
    elif len(text) == 4 and _is_year(int(text), scan.context.previous_word, following):
        scan.emit(numbers.year(int(text)), start, stop)
    else:
        scan.emit(amount_words(text), start, stop)
    scan.context.note_number()
    if street_follows:
        scan.context.address_words_left = _STREET_WORD_WINDOW
    return stop


def _is_said_in_pairs(scan: ScanState, following: str) -> bool:
    """Whether the number of three digits is one of "route 101", "a 404 error" or "a Boeing 747"."""
    paired = scan.context.previous_word in vocabulary.WORDS_BEFORE_PAIRED_DIGITS or following == "error"
    return paired or (scan.context.previous_capitalized and not is_counted(following))


def _is_written_down(text: str) -> bool:
    """Whether a listener writes the number down: five digits or more, without commas, not round."""
    return len(text) > 4 and not text.endswith("000")


def _read_house_letter(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the number of "221B Baker Street"."""
    if not _STREET_AHEAD.match(scan.view, match.end()):
        return None
    number = match.group(1)
    words = numbers.house_number(int(number)) if len(number) > 2 else numbers.cardinal(int(number))
    scan.emit(words, match.start(), match.end(1))
    ENGLISH_SPELLER.spell(scan, match.end(1), match.end())
    scan.context.note_number()
    scan.context.address_words_left = _STREET_WORD_WINDOW
    return match.end()


def _is_year(number: int, previous: str, following: str) -> bool:
    if 1900 <= number <= 2099:
        return previous in vocabulary.WORDS_BEFORE_YEARS or not is_counted(following)
    return 1100 <= number < 1900 and previous in vocabulary.WORDS_BEFORE_YEARS


def _read_percent(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit("percent", match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_degrees(scan: ScanState, match: re.Match[str]) -> int:
    number, scale = match.group(1), match.group(2)
    scan.emit(amount_words(number), match.start(), match.end(1))
    scale_word = {"C": "Celsius", "F": "Fahrenheit", "K": "kelvin"}.get(scale or "", "")
    scan.emit(f"{'degree' if is_one(number) else 'degrees'} {scale_word}", match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_unit(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "5 lbs" as "five pounds", and "5 lb" in "a 5 lb bag" or "5-lb" in the singular."""
    number, gap, unit = match.group(1), match.group(2), match.group(3)
    if gap and unit in vocabulary.UNITS_WITHOUT_SPACE:
        return None
    is_adjective = gap == "-" or (
        scan.context.previous_word in ("a", "an") and scan.next_visible(match.end()).isalpha()
    )
    scan.emit(amount_words(number), match.start(), match.end(1))
    scan.emit(
        vocabulary.UNITS[unit][0 if is_adjective or is_one(number) else 1], match.start(3), match.end(3)
    )
    scan.context.note_number()
    return _end_of_unit(scan, match.end())


def _end_of_unit(scan: ScanState, end: int) -> int:
    """Return the end of a unit; the full stop after it belongs to it if the sentence continues."""
    if scan.view[end : end + 2] == ". " and scan.next_visible(end + 1).islower():
        return end + 1
    return end


def _read_ordinal(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(numbers.ordinal(int(match.group(1).replace(",", ""))), match.start(), match.end())
    scan.context.note_number()
    scan.context.address_words_left = 1
    return match.end()


def _read_decade(scan: ScanState, match: re.Match[str]) -> int:
    """Read "1990s" or "90s"."""
    number = int(match.group(1))
    words = numbers.year(number) if number >= 1000 else numbers.cardinal(number)
    head, _, last = words.rpartition(" ")
    scan.emit(f"{head} {numbers.plural(last)}", match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _fraction_words(numerator: int, denominator: int) -> str:
    part = numbers.FRACTIONS[denominator]
    if numerator == 1:
        return f"one {part}"
    return f"{numbers.cardinal(numerator)} {'halves' if part == 'half' else numbers.plural(part)}"


def _read_mixed_fraction(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "3 1/2"."""
    numerator, denominator = int(match.group(2)), int(match.group(3))
    if denominator not in numbers.FRACTIONS or not 0 < numerator < denominator:
        return None
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    tail = _fraction_words(numerator, denominator)
    spoken = f"and {tail}" if numerator > 1 or denominator != 2 else "and a half"
    scan.emit(spoken, match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_slashed_numbers(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "1/2", a half, "5/10", out of ten, "3/14", a date, "120/80", a blood pressure, or "24/7"."""
    first, second = int(match.group(1)), int(match.group(2))
    date_expected = scan.context.previous_word in vocabulary.WORDS_BEFORE_DATES
    is_date = 1 <= first <= 12 and 1 <= second <= 31
    is_rating = scan.next_word(match.end()) in ("stars", "rating")
    if match.group() in ("24/7", "9/11", "20/20") or first + second == 100:
        words = f"{numbers.cardinal(first)} {numbers.cardinal(second)}"
    elif first > 99:
        words = f"{numbers.house_number(first)} over {numbers.cardinal(second)}"
    elif is_date and date_expected:
        words = _month_and_day(first, second)
    elif is_rating:
        words = f"{numbers.cardinal(first)} out of {numbers.cardinal(second)}"
    elif second in numbers.FRACTIONS and 0 < first < second:
        words = _fraction_words(first, second)
    elif second in (10, 100) and first <= second:
        words = f"{numbers.cardinal(first)} out of {numbers.cardinal(second)}"
    elif is_date:
        words = _month_and_day(first, second)
    else:
        words = f"{numbers.cardinal(first)} slash {numbers.cardinal(second)}"
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _month_and_day(month: int, day: int) -> str:
    return f"{vocabulary.MONTHS[month - 1]} {numbers.ordinal(day)}"


def _read_rating(scan: ScanState, match: re.Match[str]) -> int:
    """Read "4.5/5"."""
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit(f"out of {numbers.cardinal(int(match.group(2)))}", match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_ratio(scan: ScanState, match: re.Match[str]) -> int:
    """Read "3:2", which was not recognised as a time of day, as a ratio."""
    scan.emit(numbers.cardinal(int(match.group(1))), match.start(), match.end(1))
    scan.emit("to", match.end(1), match.start(2))
    scan.emit(numbers.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_idiomatic_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "401k" and its like, unless a code or an identifier is expected."""
    if scan.context.identifier_expected or scan.context.code_words_left:
        return None
    scan.emit(vocabulary.IDIOMATIC_NUMBERS[match.group(1)], match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_version_with_v(scan: ScanState, match: re.Match[str]) -> int:
    """Read "v2.1"."""
    if scan.context.previous_word != "version":
        scan.emit("version", match.start(), match.start() + 1)
        note_english_word(scan.context, "version")
    return ENGLISH_SPELLER.read_version(scan, _VERSION_NUMBER.match(scan.view, match.start(1)) or match)


def _read_magnitude(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "10k" or "2.5M"; not "room 4B", "a 4K TV", or "3M" where it counts nothing: the company."""
    if match.group(3) and (
        scan.context.identifier_expected or scan.next_word(match.end()).lower() in vocabulary.NOUNS_AFTER_K
    ):
        return None
    counts = is_counted(scan.next_word(match.end())) and not scan.context.sentence_start
    if match.group() == "3M" and not counts:
        return None
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit(vocabulary.MAGNITUDES[match.group(2) or match.group(3)], match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_feet_and_inches(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(f"{numbers.cardinal(int(match.group(1)))} feet", match.start(), match.end(1))
    scan.emit(f"{numbers.cardinal(int(match.group(2)))} inches", match.start(2), match.end())
    scan.context.note_number()
    return _end_of_unit(scan, match.end())


def _read_height(scan: ScanState, match: re.Match[str]) -> int:
    """Read 5'10"."""
    scan.emit(f"{numbers.cardinal(int(match.group(1)))} foot", match.start(), match.end(1))
    scan.emit(numbers.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_range(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a dash between numbers as "to"."""
    if not scan.context.after_number or (scan.words and scan.words[-1].punctuation):
        return None
    dash = match.start() + len(match.group()) - len(match.group().lstrip())
    scan.emit("to", dash, dash + 1)
    scan.context.previous_word = "to"
    scan.context.after_number = False
    return match.end()


def _read_minus(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a hyphen at the start of a number as "minus"."""
    if match.start() and scan.view[match.start() - 1] not in ' ("[\n':
        return None
    scan.emit("minus", match.start(), match.end())
    note_english_word(scan.context, "minus")
    return match.end()


def _read_times_sign(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the x of "30 cm x 20 cm" and "3 x $5"."""
    if scan.context.after_phone or not scan.context.after_number:
        return None
    word = "times" if scan.next_visible(match.end()) in "$£€" else "by"
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_number_times(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "2x" of "2x4"."""
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit("by", match.end(1), match.end())
    note_english_word(scan.context, "by")
    return match.end()


def _read_power(scan: ScanState, match: re.Match[str]) -> int:
    power = int(match.group(1))
    words = {2: "squared", 3: "cubed"}.get(power, f"to the power of {numbers.cardinal(power)}")
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_comparison(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a sign before a number: < > ~, and * after another number."""
    if match.group(1) == "*" and not scan.context.after_number:
        return None
    words = {"<": "less than", ">": "more than", "~": "about", "*": "times"}[match.group(1)]
    scan.emit(words, match.start(1), match.end(1))
    note_english_word(scan.context, words)
    return match.end()


def _read_rate(scan: ScanState, match: re.Match[str]) -> int:
    """Read "/month" as "per month"."""
    unit = vocabulary.RATE_UNITS[match.group(1)]
    scan.emit("per", match.start(), match.start() + 1)
    scan.emit(unit, match.start(1), match.end(1))
    note_english_word(scan.context, unit)
    return match.end()


LETTER_RULES = compile_rules(
    (r"x(?= ?[$£€]?\d)", _read_times_sign),
    (r"[vV]\.? ?(\d+(?:\.\d+)*)(?!\w)", _read_version_with_v),
)
DIGIT_RULES = compile_rules(
    (rf"({_IDIOMATIC_NUMBER})(?![\w%-]|[.,:/]\d)", _read_idiomatic_number),
    (r"([1-9]\d{0,3})[A-Z](?!\w)", _read_house_letter),
    # "2x4"
    (r"([1-9]\d{0,4})x(?=[1-9]\d{0,4}(?!\w))", _read_number_times),
    (r"(\d{1,3}) +(\d{1,2})/(\d{1,2})(?![\w/])", _read_mixed_fraction),
    # "4.5/5", then "1/2"
    (r"(\d\.\d)/(5|10)(?![\w/])", _read_rating),
    (r"(\d{1,3})/(\d{1,3})(?![\w/])", _read_slashed_numbers),
    (r"(\d{1,3}):(\d{1,3})(?![\w:])", _read_ratio),
    # 5'10", "6 ft 2 in"
    (r"(\d)'(\d{1,2})(?:\"|'')", _read_height),
    (r"(\d{1,2}) ?(?:ft|feet)\.? (\d{1,2}) ?in(?!\w)", _read_feet_and_inches),
    (rf"({DECIMAL}) ?%", _read_percent),
    (rf"({DECIMAL}) ?° ?([CFK])?(?!\w)", _read_degrees),
    # "2.1.3", "192.168.1.1"
    (r"\d{1,5}(?:\.\d{1,5}){2,5}(?!\w|\.\d)", ENGLISH_SPELLER.read_version),
    (r"(\d{0,3}0)'?s(?!\w)", _read_decade),
    # "5 km", "10-ft"; not before a slash unless a rate follows, as in "5 MB/s"
    (rf"({DECIMAL})( ?|-)({_UNIT})(?![\w']|/(?!(?:{_RATE})\b))", _read_unit),
    # "5 million", "10k"
    (rf"({DECIMAL})(?: (thousand|million|billion|trillion)|([kKMB]|bn))(?!\w)", _read_magnitude),
    (rf"(\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}}){ORDINAL_SUFFIX}(?!\w)", _read_ordinal),
)
PLAIN_NUMBER_RULES = compile_rules(
    (r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.\d+", _read_amount),
    (r"\d{1,300}", _read_integer),  # bounded, so that no reading is longer than a clause
)
SYMBOL_RULES = compile_rules(
    (rf" ?[-–] ?(?=[$£€]?\d|(?:{MONTH}|{WEEKDAY})(?!\w))", _read_range),
    (r"-(?= ?[$£€]?\.?\d)", _read_minus),
    # ".75", "'90s"
    (r"\.\d+(?!\w)", _read_amount),
    (r"'(\d0)s(?!\w)", _read_decade),
    (rf"/ ?({_RATE})(?!\w)", _read_rate),
    (r"\^(\d{1,3})(?!\d)", _read_power),
    (r" ?([<>~*]) ?(?=[$£€]?\d)", _read_comparison),
)
