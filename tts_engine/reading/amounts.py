"""Recognisers of numbers that say how much: integers, decimals, fractions, units, versions, ranges.

American English: no "and" inside numbers, month before day where a fraction is a date.
"""

import re

from . import number_words as say
from . import vocabulary
from .codes import group_sizes, is_counted
from .dates import MONTH, SUFFIX, WEEKDAY
from .scan import Scan, rules

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?!\d)"
DECIMAL = rf"(?:{_INTEGER}(?:\.\d+)?)"


def number_words(text: str) -> str:
    """An amount: "1,234.50" is "one thousand two hundred thirty four point five zero"."""
    whole, _, fraction = text.replace(",", "").partition(".")
    if len(whole) > 18:
        return say.digits(text)
    words = say.cardinal(int(whole)) if whole else ""
    return f"{words} point {say.digits(fraction)}".strip() if fraction else words


def is_one(text: str) -> bool:
    """Whether a noun after this amount is singular."""
    return text in ("1", "1.0")


def _read_amount(scan: Scan, match: re.Match[str]) -> int:
    if scan.memory.previous == "version" and "," not in match.group():
        return _read_version(scan, match)
    scan.say(number_words(match.group()), match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_integer(scan: Scan, match: re.Match[str]) -> int:
    text, start, stop = match.group(), match.start(), match.end()
    following = scan.next_word(stop)
    if (text.startswith("0") and len(text) > 1) or _is_identifier(text):
        sizes = (1, 3, 3, 4) if len(text) == 11 and text[0] == "1" else group_sizes(len(text))
        scan.spell_groups(start, stop, sizes)
    elif text in ("911", "988", "411", "311") and following.lower() not in vocabulary.COUNTED:
        scan.spell(start, stop)
    elif len(text) in (3, 4) and _STREET_AHEAD.match(scan.view, stop):
        scan.say(say.house_number(int(text)), start, stop)
        scan.memory.house_words_left = 6
    elif len(text) == 3 and _is_paired(scan, following):
        scan.say(say.house_number(int(text)), start, stop)
    elif len(text) == 4 and _is_year(int(text), scan.memory.previous, following):
        scan.say(say.year(int(text)), start, stop)
    else:
        scan.say(number_words(text), start, stop)
    house = _STREET_AHEAD.match(scan.view, stop)
    scan.memory.hear_number()
    if house:
        scan.memory.house_words_left = 6
    return stop


def _is_paired(scan: Scan, following: str) -> bool:
    """Route 101, a 404 error, a Boeing 747."""
    paired = scan.memory.previous in vocabulary.PAIRED_WORDS or following == "error"
    return paired or (scan.memory.capital and not is_counted(following))


def _is_identifier(text: str) -> bool:
    """Five digits and more without commas are a number to write down, unless it is round."""
    return len(text) > 4 and not text.endswith("000")


_STREET_AHEAD = re.compile(
    r"(?: +(?:[NSEW]\.?|[A-Z][\w'-]*|\d+(?:st|nd|rd|th))){1,3} +(?:"
    + "|".join(sorted(vocabulary.STREET_WORDS, key=len, reverse=True))
    + r")\b",
    re.IGNORECASE,
)


def _read_house_letter(scan: Scan, match: re.Match[str]) -> int | None:
    """221B Baker Street."""
    if not _STREET_AHEAD.match(scan.view, match.end()):
        return None
    number = match.group(1)
    words = say.house_number(int(number)) if len(number) > 2 else say.cardinal(int(number))
    scan.say(words, match.start(), match.end(1))
    scan.spell(match.end(1), match.end())
    scan.memory.hear_number()
    scan.memory.house_words_left = 6
    return match.end()


def _is_year(number: int, previous: str, following: str) -> bool:
    if 1900 <= number <= 2099:
        return previous in vocabulary.YEAR_WORDS or not is_counted(following)
    return 1100 <= number < 1900 and previous in vocabulary.YEAR_WORDS


def _read_percent(scan: Scan, match: re.Match[str]) -> int:
    scan.say(number_words(match.group(1)), match.start(), match.end(1))
    scan.say("percent", match.end(1), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_degrees(scan: Scan, match: re.Match[str]) -> int:
    number, scale = match.group(1), match.group(2)
    scan.say(number_words(number), match.start(), match.end(1))
    scale_word = {"C": "Celsius", "F": "Fahrenheit", "K": "kelvin"}.get(scale or "", "")
    scan.say(f"{'degree' if is_one(number) else 'degrees'} {scale_word}", match.end(1), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_unit(scan: Scan, match: re.Match[str]) -> int | None:
    """5 lbs is five pounds, and a 5 lb bag, or a 5-lb one, a five pound bag."""
    number, gap, unit = match.group(1), match.group(2), match.group(3)
    if gap and unit in vocabulary.TIGHT_UNITS:
        return None
    describes = gap == "-" or (
        scan.memory.previous in ("a", "an") and scan.next_visible(match.end()).isalpha()
    )
    scan.say(number_words(number), match.start(), match.end(1))
    scan.say(vocabulary.UNITS[unit][0 if describes or is_one(number) else 1], match.start(3), match.end(3))
    scan.memory.hear_number()
    return _after_unit(scan, match.end())


def _after_unit(scan: Scan, end: int) -> int:
    """A full stop after "5 lbs" or "10 min" is the unit's own when the sentence goes on."""
    if scan.view[end : end + 2] == ". " and scan.next_visible(end + 1).islower():
        return end + 1
    return end


def _read_ordinal(scan: Scan, match: re.Match[str]) -> int:
    scan.say(say.ordinal(int(match.group(1).replace(",", ""))), match.start(), match.end())
    scan.memory.hear_number()
    scan.memory.house_words_left = 1
    return match.end()


def _read_decade(scan: Scan, match: re.Match[str]) -> int:
    number = int(match.group(1))
    words = say.year(number) if number >= 1000 else say.cardinal(number)
    head, _, last = words.rpartition(" ")
    scan.say(f"{head} {say.plural(last)}", match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _fraction_words(above: int, below: int) -> str:
    part = say.FRACTIONS[below]
    if above == 1:
        return f"one {part}"
    return f"{say.cardinal(above)} {'halves' if part == 'half' else say.plural(part)}"


def _read_mixed_fraction(scan: Scan, match: re.Match[str]) -> int | None:
    above, below = int(match.group(2)), int(match.group(3))
    if below not in say.FRACTIONS or not 0 < above < below:
        return None
    scan.say(number_words(match.group(1)), match.start(), match.end(1))
    tail = _fraction_words(above, below)
    spoken = f"and {tail}" if above > 1 or below != 2 else "and a half"
    scan.say(spoken, match.start(2), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_slash(scan: Scan, match: re.Match[str]) -> int | None:
    """1/2 is a half, 5/10 five out of ten, 3/14 a date, 120/80 a blood pressure; 24/7 is said so."""
    above, below = int(match.group(1)), int(match.group(2))
    date_expected = scan.memory.previous in vocabulary.DATE_WORDS
    is_date = 1 <= above <= 12 and 1 <= below <= 31
    if match.group() in ("24/7", "9/11", "20/20") or above + below == 100:
        words = f"{say.cardinal(above)} {say.cardinal(below)}"
    elif above > 99:
        words = f"{say.house_number(above)} over {say.cardinal(below)}"
    elif date_expected and is_date:
        words = f"{vocabulary.MONTHS[above - 1]} {say.ordinal(below)}"
    elif scan.next_word(match.end()) in ("stars", "rating"):
        words = f"{say.cardinal(above)} out of {say.cardinal(below)}"
    elif below in say.FRACTIONS and 0 < above < below:
        words = _fraction_words(above, below)
    elif below in (10, 100) and above <= below:
        words = f"{say.cardinal(above)} out of {say.cardinal(below)}"
    elif is_date:
        words = f"{vocabulary.MONTHS[above - 1]} {say.ordinal(below)}"
    else:
        words = f"{say.cardinal(above)} slash {say.cardinal(below)}"
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_rating(scan: Scan, match: re.Match[str]) -> int:
    scan.say(number_words(match.group(1)), match.start(), match.end(1))
    scan.say(f"out of {say.cardinal(int(match.group(2)))}", match.end(1), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_ratio(scan: Scan, match: re.Match[str]) -> int:
    """3:2, where no time of day was recognised."""
    scan.say(say.cardinal(int(match.group(1))), match.start(), match.end(1))
    scan.say("to", match.end(1), match.start(2))
    scan.say(say.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_figure(scan: Scan, match: re.Match[str]) -> int | None:
    """A number that has a name of its own, unless it is somebody's number."""
    if scan.memory.named or scan.memory.code_words_left:
        return None
    scan.say(vocabulary.FIGURES[match.group(1)], match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_version(scan: Scan, match: re.Match[str]) -> int:
    """2.1.3 point by point; four parts are an Internet address, dot by dot."""
    parts = list(re.finditer(r"\d+", match.group()))
    separator = "dot" if len(parts) == 4 else "point"
    for number, part in enumerate(parts):
        start, stop = match.start() + part.start(), match.start() + part.end()
        if number:
            scan.say(separator, start - 1, start)
        if len(part.group()) < 3 and not part.group().startswith("0"):
            scan.say(say.cardinal(int(part.group())), start, stop)
        else:
            scan.spell(start, stop)
    scan.memory.hear_number()
    return match.end()


def _read_v_version(scan: Scan, match: re.Match[str]) -> int:
    if scan.memory.previous != "version":
        scan.say("version", match.start(), match.start() + 1)
        scan.memory.hear("version")
    return _read_version(scan, _NUMBERS.match(scan.view, match.start(1)) or match)


def _read_magnitude(scan: Scan, match: re.Match[str]) -> int | None:
    """10k, 2.5M; but 4B after "room" is a room, a 4K TV a name, and 3M that counts nothing a company."""
    if match.group(3) and (scan.memory.named or scan.next_word(match.end()).lower() in vocabulary.NAMED_BY_K):
        return None
    counts = is_counted(scan.next_word(match.end())) and not scan.memory.sentence_start
    if match.group() == "3M" and not counts:
        return None
    scan.say(number_words(match.group(1)), match.start(), match.end(1))
    scan.say(vocabulary.MAGNITUDES[match.group(2) or match.group(3)], match.end(1), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_feet_and_inches(scan: Scan, match: re.Match[str]) -> int:
    scan.say(f"{say.cardinal(int(match.group(1)))} feet", match.start(), match.end(1))
    scan.say(f"{say.cardinal(int(match.group(2)))} inches", match.start(2), match.end())
    scan.memory.hear_number()
    return _after_unit(scan, match.end())


def _read_feet(scan: Scan, match: re.Match[str]) -> int:
    scan.say(f"{say.cardinal(int(match.group(1)))} foot", match.start(), match.end(1))
    scan.say(say.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_range(scan: Scan, match: re.Match[str]) -> int | None:
    if not scan.memory.numeric or (scan.words and scan.words[-1].punctuation):
        return None
    dash = match.start() + len(match.group()) - len(match.group().lstrip())
    scan.say("to", dash, dash + 1)
    scan.memory.previous = "to"
    scan.memory.numeric = False
    return match.end()


def _read_minus(scan: Scan, match: re.Match[str]) -> int | None:
    if match.start() and scan.view[match.start() - 1] not in ' ("[\n':
        return None
    scan.say("minus", match.start(), match.end())
    scan.memory.hear("minus")
    return match.end()


def _read_by(scan: Scan, match: re.Match[str]) -> int | None:
    """30 cm x 20 cm, 3 x $5."""
    if scan.memory.after_phone or not scan.memory.numeric:
        return None
    word = "times" if scan.next_visible(match.end()) in "$£€" else "by"
    scan.say(word, match.start(), match.end())
    scan.memory.hear(word)
    return match.end()


def _read_by_number(scan: Scan, match: re.Match[str]) -> int:
    scan.say(number_words(match.group(1)), match.start(), match.end(1))
    scan.say("by", match.end(1), match.end())
    scan.memory.hear("by")
    return match.end()


def _read_power(scan: Scan, match: re.Match[str]) -> int:
    power = int(match.group(1))
    words = {2: "squared", 3: "cubed"}.get(power, f"to the power of {say.cardinal(power)}")
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_comparison(scan: Scan, match: re.Match[str]) -> int | None:
    if match.group(1) == "*" and not scan.memory.numeric:
        return None
    words = {"<": "less than", ">": "more than", "~": "about", "*": "times"}[match.group(1)]
    scan.say(words, match.start(1), match.end(1))
    scan.memory.hear(words)
    return match.end()


def _read_rate(scan: Scan, match: re.Match[str]) -> int | None:
    unit = vocabulary.RATES[match.group(1)]
    scan.say("per", match.start(), match.start() + 1)
    scan.say(unit, match.start(1), match.end(1))
    scan.memory.hear(unit)
    return match.end()


_UNIT = "|".join(re.escape(unit) for unit in sorted(vocabulary.UNITS, key=len, reverse=True))
_RATE = "|".join(sorted(vocabulary.RATES, key=len, reverse=True))
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_FIGURE = "|".join(re.escape(figure) for figure in sorted(vocabulary.FIGURES, key=len, reverse=True))
LETTER_RULES = rules(
    (r"x(?= ?[$£€]?\d)", _read_by),
    (r"[vV]\.? ?(\d+(?:\.\d+)*)(?!\w)", _read_v_version),
)
DIGIT_RULES = rules(
    (rf"({_FIGURE})(?![\w%-]|[.,:/]\d)", _read_figure),
    (r"([1-9]\d{0,3})[A-Z](?!\w)", _read_house_letter),
    (r"([1-9]\d{0,4})x(?=[1-9]\d{0,4}(?!\w))", _read_by_number),
    (r"(\d{1,3}) +(\d{1,2})/(\d{1,2})(?![\w/])", _read_mixed_fraction),
    (r"(\d\.\d)/(5|10)(?![\w/])", _read_rating),
    (r"(\d{1,3})/(\d{1,3})(?![\w/])", _read_slash),
    (r"(\d{1,3}):(\d{1,3})(?![\w:])", _read_ratio),
    (r"(\d)'(\d{1,2})(?:\"|'')", _read_feet),
    (r"(\d{1,2}) ?(?:ft|feet)\.? (\d{1,2}) ?in(?!\w)", _read_feet_and_inches),
    (rf"({DECIMAL}) ?%", _read_percent),
    (rf"({DECIMAL}) ?° ?([CFK])?(?!\w)", _read_degrees),
    (r"\d{1,5}(?:\.\d{1,5}){2,5}(?!\w|\.\d)", _read_version),
    (r"(\d{0,3}0)'?s(?!\w)", _read_decade),
    (rf"({DECIMAL})( ?|-)({_UNIT})(?![\w']|/(?!(?:{_RATE})\b))", _read_unit),
    (rf"({DECIMAL})(?: (thousand|million|billion|trillion)|([kKMB]|bn))(?!\w)", _read_magnitude),
    (rf"(\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}}){SUFFIX}(?!\w)", _read_ordinal),
)
PLAIN_NUMBER_RULES = rules(
    (r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.\d+", _read_amount),
    (r"\d{1,300}", _read_integer),
)
SYMBOL_RULES = rules(
    (rf" ?[-–] ?(?=[$£€]?\d|(?:{MONTH}|{WEEKDAY})(?!\w))", _read_range),
    (r"-(?= ?[$£€]?\.?\d)", _read_minus),
    (r"\.\d+(?!\w)", _read_amount),
    (r"'(\d0)s(?!\w)", _read_decade),
    (rf"/ ?({_RATE})(?!\w)", _read_rate),
    (r"\^(\d{1,3})(?!\d)", _read_power),
    (r" ?([<>~*]) ?(?=[$£€]?\d)", _read_comparison),
)
