"""Recognisers of numbers that say how much: integers, decimals, fractions, units, versions, ranges.

American English: no "and" inside numbers, month before day where a fraction is a date.
"""

import re

from ..tokenizer import ScanState, compile_rules, digit_group_sizes
from . import number_words as numbers
from . import vocabulary
from .codes import is_counted
from .dates import MONTH, ORDINAL_SUFFIX, WEEKDAY

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?!\d)"
DECIMAL = rf"(?:{_INTEGER}(?:\.\d+)?)"


def amount_words(text: str) -> str:
    """An amount: "1,234.50" is "one thousand two hundred thirty four point five zero"."""
    whole, _, fraction = text.replace(",", "").partition(".")
    if len(whole) > 18:
        return numbers.digits(text)
    words = numbers.cardinal(int(whole)) if whole else ""
    return f"{words} point {numbers.digits(fraction)}".strip() if fraction else words


def is_one(text: str) -> bool:
    """Whether a noun after this amount is singular."""
    return text in ("1", "1.0")


def _read_amount(scan: ScanState, match: re.Match[str]) -> int:
    if scan.context.previous_word == "version" and "," not in match.group():
        return _read_version(scan, match)
    scan.emit(amount_words(match.group()), match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_integer(scan: ScanState, match: re.Match[str]) -> int:
    text, start, stop = match.group(), match.start(), match.end()
    following = scan.next_word(stop)
    if (text.startswith("0") and len(text) > 1) or _is_written_down(text):
        sizes = (1, 3, 3, 4) if len(text) == 11 and text[0] == "1" else digit_group_sizes(len(text))
        scan.spell_groups(start, stop, sizes)
    elif text in ("911", "988", "411", "311") and following.lower() not in vocabulary.COUNTED_NOUNS:
        scan.spell(start, stop)
    elif len(text) in (3, 4) and _STREET_AHEAD.match(scan.view, stop):
        scan.emit(numbers.house_number(int(text)), start, stop)
        scan.context.address_words_left = 6
    elif len(text) == 3 and _is_said_in_pairs(scan, following):
        scan.emit(numbers.house_number(int(text)), start, stop)
    elif len(text) == 4 and _is_year(int(text), scan.context.previous_word, following):
        scan.emit(numbers.year(int(text)), start, stop)
    else:
        scan.emit(amount_words(text), start, stop)
    street = _STREET_AHEAD.match(scan.view, stop)
    scan.context.note_number()
    if street:
        scan.context.address_words_left = 6
    return stop


def _is_said_in_pairs(scan: ScanState, following: str) -> bool:
    """Route 101, a 404 error, a Boeing 747."""
    paired = scan.context.previous_word in vocabulary.WORDS_BEFORE_PAIRED_DIGITS or following == "error"
    return paired or (scan.context.previous_capitalized and not is_counted(following))


def _is_written_down(text: str) -> bool:
    """Five digits and more without commas are a number to write down, unless it is round."""
    return len(text) > 4 and not text.endswith("000")


_STREET_AHEAD = re.compile(
    r"(?: +(?:[NSEW]\.?|[A-Z][\w'-]*|\d+(?:st|nd|rd|th))){1,3} +(?:"
    + "|".join(sorted(vocabulary.STREET_WORDS, key=len, reverse=True))
    + r")\b",
    re.IGNORECASE,
)


def _read_house_letter(scan: ScanState, match: re.Match[str]) -> int | None:
    """221B Baker Street."""
    if not _STREET_AHEAD.match(scan.view, match.end()):
        return None
    number = match.group(1)
    words = numbers.house_number(int(number)) if len(number) > 2 else numbers.cardinal(int(number))
    scan.emit(words, match.start(), match.end(1))
    scan.spell(match.end(1), match.end())
    scan.context.note_number()
    scan.context.address_words_left = 6
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
    """5 lbs is five pounds, and a 5 lb bag, or a 5-lb one, a five pound bag."""
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
    """A full stop after "5 lbs" or "10 min" is the unit's own when the sentence goes on."""
    if scan.view[end : end + 2] == ". " and scan.next_visible(end + 1).islower():
        return end + 1
    return end


def _read_ordinal(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(numbers.ordinal(int(match.group(1).replace(",", ""))), match.start(), match.end())
    scan.context.note_number()
    scan.context.address_words_left = 1
    return match.end()


def _read_decade(scan: ScanState, match: re.Match[str]) -> int:
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
    """1/2 is a half, 5/10 five out of ten, 3/14 a date, 120/80 a blood pressure; 24/7 is said so."""
    numerator, denominator = int(match.group(1)), int(match.group(2))
    date_expected = scan.context.previous_word in vocabulary.WORDS_BEFORE_DATES
    is_date = 1 <= numerator <= 12 and 1 <= denominator <= 31
    if match.group() in ("24/7", "9/11", "20/20") or numerator + denominator == 100:
        words = f"{numbers.cardinal(numerator)} {numbers.cardinal(denominator)}"
    elif numerator > 99:
        words = f"{numbers.house_number(numerator)} over {numbers.cardinal(denominator)}"
    elif date_expected and is_date:
        words = f"{vocabulary.MONTHS[numerator - 1]} {numbers.ordinal(denominator)}"
    elif scan.next_word(match.end()) in ("stars", "rating"):
        words = f"{numbers.cardinal(numerator)} out of {numbers.cardinal(denominator)}"
    elif denominator in numbers.FRACTIONS and 0 < numerator < denominator:
        words = _fraction_words(numerator, denominator)
    elif denominator in (10, 100) and numerator <= denominator:
        words = f"{numbers.cardinal(numerator)} out of {numbers.cardinal(denominator)}"
    elif is_date:
        words = f"{vocabulary.MONTHS[numerator - 1]} {numbers.ordinal(denominator)}"
    else:
        words = f"{numbers.cardinal(numerator)} slash {numbers.cardinal(denominator)}"
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_rating(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit(f"out of {numbers.cardinal(int(match.group(2)))}", match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_ratio(scan: ScanState, match: re.Match[str]) -> int:
    """3:2, where no time of day was recognised."""
    scan.emit(numbers.cardinal(int(match.group(1))), match.start(), match.end(1))
    scan.emit("to", match.end(1), match.start(2))
    scan.emit(numbers.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_idiomatic_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """A number that has a name of its own, unless it is somebody's number."""
    if scan.context.identifier_expected or scan.context.code_words_left:
        return None
    scan.emit(vocabulary.IDIOMATIC_NUMBERS[match.group(1)], match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_version(scan: ScanState, match: re.Match[str]) -> int:
    """2.1.3 point by point; four parts are an Internet address, dot by dot."""
    parts = list(re.finditer(r"\d+", match.group()))
    separator = "dot" if len(parts) == 4 else "point"
    for number, part in enumerate(parts):
        start, stop = match.start() + part.start(), match.start() + part.end()
        if number:
            scan.emit(separator, start - 1, start)
        if len(part.group()) < 3 and not part.group().startswith("0"):
            scan.emit(numbers.cardinal(int(part.group())), start, stop)
        else:
            scan.spell(start, stop)
    scan.context.note_number()
    return match.end()


def _read_version_with_v(scan: ScanState, match: re.Match[str]) -> int:
    if scan.context.previous_word != "version":
        scan.emit("version", match.start(), match.start() + 1)
        scan.context.note_word("version")
    return _read_version(scan, _VERSION_NUMBER.match(scan.view, match.start(1)) or match)


def _read_magnitude(scan: ScanState, match: re.Match[str]) -> int | None:
    """10k, 2.5M; but 4B after "room" is a room, a 4K TV a name, and 3M that counts nothing a company."""
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


def _read_feet(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(f"{numbers.cardinal(int(match.group(1)))} foot", match.start(), match.end(1))
    scan.emit(numbers.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_range(scan: ScanState, match: re.Match[str]) -> int | None:
    if not scan.context.after_number or (scan.words and scan.words[-1].punctuation):
        return None
    dash = match.start() + len(match.group()) - len(match.group().lstrip())
    scan.emit("to", dash, dash + 1)
    scan.context.previous_word = "to"
    scan.context.after_number = False
    return match.end()


def _read_minus(scan: ScanState, match: re.Match[str]) -> int | None:
    if match.start() and scan.view[match.start() - 1] not in ' ("[\n':
        return None
    scan.emit("minus", match.start(), match.end())
    scan.context.note_word("minus")
    return match.end()


def _read_times_sign(scan: ScanState, match: re.Match[str]) -> int | None:
    """30 cm x 20 cm, 3 x $5."""
    if scan.context.after_phone or not scan.context.after_number:
        return None
    word = "times" if scan.next_visible(match.end()) in "$£€" else "by"
    scan.emit(word, match.start(), match.end())
    scan.context.note_word(word)
    return match.end()


def _read_number_times(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit("by", match.end(1), match.end())
    scan.context.note_word("by")
    return match.end()


def _read_power(scan: ScanState, match: re.Match[str]) -> int:
    power = int(match.group(1))
    words = {2: "squared", 3: "cubed"}.get(power, f"to the power of {numbers.cardinal(power)}")
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_comparison(scan: ScanState, match: re.Match[str]) -> int | None:
    if match.group(1) == "*" and not scan.context.after_number:
        return None
    words = {"<": "less than", ">": "more than", "~": "about", "*": "times"}[match.group(1)]
    scan.emit(words, match.start(1), match.end(1))
    scan.context.note_word(words)
    return match.end()


def _read_rate(scan: ScanState, match: re.Match[str]) -> int | None:
    unit = vocabulary.RATE_UNITS[match.group(1)]
    scan.emit("per", match.start(), match.start() + 1)
    scan.emit(unit, match.start(1), match.end(1))
    scan.context.note_word(unit)
    return match.end()


_UNIT = "|".join(re.escape(unit) for unit in sorted(vocabulary.UNITS, key=len, reverse=True))
_RATE = "|".join(sorted(vocabulary.RATE_UNITS, key=len, reverse=True))
_VERSION_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_IDIOMATIC_NUMBER = "|".join(
    re.escape(figure) for figure in sorted(vocabulary.IDIOMATIC_NUMBERS, key=len, reverse=True)
)
LETTER_RULES = compile_rules(
    (r"x(?= ?[$£€]?\d)", _read_times_sign),
    (r"[vV]\.? ?(\d+(?:\.\d+)*)(?!\w)", _read_version_with_v),
)
DIGIT_RULES = compile_rules(
    (rf"({_IDIOMATIC_NUMBER})(?![\w%-]|[.,:/]\d)", _read_idiomatic_number),
    (r"([1-9]\d{0,3})[A-Z](?!\w)", _read_house_letter),
    (r"([1-9]\d{0,4})x(?=[1-9]\d{0,4}(?!\w))", _read_number_times),
    (r"(\d{1,3}) +(\d{1,2})/(\d{1,2})(?![\w/])", _read_mixed_fraction),
    (r"(\d\.\d)/(5|10)(?![\w/])", _read_rating),
    (r"(\d{1,3})/(\d{1,3})(?![\w/])", _read_slashed_numbers),
    (r"(\d{1,3}):(\d{1,3})(?![\w:])", _read_ratio),
    (r"(\d)'(\d{1,2})(?:\"|'')", _read_feet),
    (r"(\d{1,2}) ?(?:ft|feet)\.? (\d{1,2}) ?in(?!\w)", _read_feet_and_inches),
    (rf"({DECIMAL}) ?%", _read_percent),
    (rf"({DECIMAL}) ?° ?([CFK])?(?!\w)", _read_degrees),
    (r"\d{1,5}(?:\.\d{1,5}){2,5}(?!\w|\.\d)", _read_version),
    (r"(\d{0,3}0)'?s(?!\w)", _read_decade),
    (rf"({DECIMAL})( ?|-)({_UNIT})(?![\w']|/(?!(?:{_RATE})\b))", _read_unit),
    (rf"({DECIMAL})(?: (thousand|million|billion|trillion)|([kKMB]|bn))(?!\w)", _read_magnitude),
    (rf"(\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}}){ORDINAL_SUFFIX}(?!\w)", _read_ordinal),
)
PLAIN_NUMBER_RULES = compile_rules(
    (r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.\d+", _read_amount),
    (r"\d{1,300}", _read_integer),
)
SYMBOL_RULES = compile_rules(
    (rf" ?[-–] ?(?=[$£€]?\d|(?:{MONTH}|{WEEKDAY})(?!\w))", _read_range),
    (r"-(?= ?[$£€]?\.?\d)", _read_minus),
    (r"\.\d+(?!\w)", _read_amount),
    (r"'(\d0)s(?!\w)", _read_decade),
    (rf"/ ?({_RATE})(?!\w)", _read_rate),
    (r"\^(\d{1,3})(?!\d)", _read_power),
    (r" ?([<>~*]) ?(?=[$£€]?\d)", _read_comparison),
)
