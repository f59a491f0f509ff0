"""Rules of quantities: numbers with units, rates, percentages, temperatures, heights, powers.

Source: Unicode CLDR 44 for the names of units.
"""

import re

from ....kit.patterns import PatternBehind
from ....kit.tokenizer import Recognizer, ScanState, any_of, compile_rules
from .. import vocabulary
from ..codes import is_counted
from ..word_context import note_english_word
from . import number_words as numbers
from .number_words import DECIMAL, amount_words, is_one

UNIT = any_of(vocabulary.UNITS)
_LONG_UNIT = any_of(unit for unit in vocabulary.UNITS if len(unit) > 1)
# "kWh", "Mbps": no words
_MIXED_CASE_UNITS = [
    unit
    for unit in vocabulary.UNITS
    if len(unit) > 2 and unit.isalpha() and unit.isascii() and unit.upper() != unit != unit.lower()
]
_BINARY_SIZES = {"Ki": "kibibyte", "Mi": "mebibyte", "Gi": "gibibyte", "Ti": "tebibyte"}
_RATE = any_of(vocabulary.RATE_UNITS)
LENGTH_WORDS = rf"(?:in diameter|{any_of(vocabulary.LENGTH_WORDS)})"
_SCREENS = any_of(vocabulary.SCREEN_NOUNS)
_SCREEN_ADJECTIVES = any_of(vocabulary.SCREEN_ADJECTIVES)
# Also before another length or after words such as "OLED": "the 10" or the 14" pizza".
_SCREEN_AHEAD = re.compile(
    rf"(?:,? (?:or|and|to|vs\.?)(?: an?| the)? {DECIMAL}\")*"
    rf"(?: (?:[A-Z\d][\w+-]*|{_SCREEN_ADJECTIVES})){{0,3}} (?:{_SCREENS})\b"
)
_PICTURE_AHEAD = re.compile(r" (?:\d{3,4}p|[48]K|\d{2,3} ?Hz|OLED|QLED|LED|LCD|IPS|Retina)\b")
_FEET_BEHIND = re.compile(r"\d'(?: ?\d{1,2}\")?(?!\w)")
_OPEN_QUOTE_BEHIND = re.compile(r"(?<![^\s(\[])\"[^\"]*\Z")
_END_OF_LENGTH = re.compile(rf" (?:{_SCREENS}|and|or|to|by|of|in|above|below|from|at|per)\b|[,.;:!?)]|\Z")
_DIMENSION_AHEAD = re.compile(rf" ?x ?\d| {LENGTH_WORDS}\b")
WORDS_AFTER_LENGTHS = vocabulary.WORDS_AFTER_PRICES | vocabulary.LENGTH_WORDS | {"of", "x"}
_RANGE_BEHIND = re.compile(rf"\b([A-Za-z]+) ~?{DECIMAL} ?(?:[-–]|to) ?\Z")
_CAPITAL_AHEAD = re.compile(r" [A-Z]")
# "the 64GB or the 128GB version"
_OTHER_SIZE_AHEAD = re.compile(
    rf"(?:,? (?:or|and|to|vs\.?)(?: an?| the| your)? {DECIMAL}[ -]?(?:{UNIT}))+"
    rf" (?:version|model|option|one|{any_of(vocabulary.MEASURED_NOUNS)})\b"
)
_SPOON_AHEAD = re.compile(r"\. [a-z]")  # "1 t. sugar"
_COUNT_BEHIND = PatternBehind(r"(?:\d|\b(?:[Aa]n?|[Tt]he|[Oo]ne|[Tt]wo|[Tt]hree|[Ee]ach)) \([^()]{0,12}\Z")
_BRACKET_AHEAD = re.compile(r"\.?\) ")
_COUNTS = vocabulary.WORDS_BEFORE_UNITS - vocabulary.WORDS_BEFORE_ONE - {"of", "some"} | {"one"}
_SIZE_BEHIND = re.compile(r"\d ?[x×] ?\Z")  # "12 x 16 ft. deck"
_NAME_AHEAD = re.compile(r" +[A-Z\d]")
_INITIAL_AHEAD = re.compile(r"\. *[A-Z\d]")  # "45 W. Oak St."
_HOMES = vocabulary.HOME_NOUNS
_CURRENT_AHEAD = re.compile(r" (?:DC|AC)\b")  # "24 V DC"
_OIL_GRADE_AHEAD = re.compile(r"-\d\d(?!\w)")  # "5W-30"
_SPACED_LETTERS = frozenset("dghlmstLVW")  # units of one letter that are no words
_AMP_NOUN_AHEAD = re.compile(rf" (?:{any_of(vocabulary.AMP_NOUNS)})s?\b")
_MILLION_AHEAD = re.compile(rf" (?:{any_of(vocabulary.NOUNS_OF_MILLIONS)})\b")
_POPULATION_BEHIND = PatternBehind(r"\b[Pp]op(?:ulation|\.)[^;!?]{0,30}\Z")
# The x of "3x = 12" and "y = 3x" is a variable.
_EQUATION_AHEAD = re.compile(r" ?[=^]")
_EQUATION_BEHIND = PatternBehind(r"\b[a-z](?:\^\d)? ?[=+-] ?\Z")
# "12-pt. font", "a 10-pt lead"; "a 1-pt. carton"
_TYPE_AHEAD = re.compile(
    r"\.? (?:font|type|text|Arial|Times|Helvetica|Calibri|Courier|leads?|leading|scale|inspection)\b"
)
_WORDS_BEFORE_KELVIN = frozenset("at below above near is of about equals temperature temp".split())
_WORDS_OF_PLACE = frozenset(
    "above below beyond inside outside near total overall away high long deep".split()
)
_WORDS_AFTER_QUOTES = frozenset("he she said says they we it who which but so or nor not".split())
# "2 L O2", "1 g PO"
_GIVEN_AHEAD = re.compile(r" (?:O2|O\^?2|NS|LR|NC|NRB|D5W|IV|PO|IM|SC|SQ|SL|PR|QD|[BTQ]ID|QHS|PRN)\b")
_PATH_AHEAD = re.compile(r"/\w|\.\w")  # "assets/img/logo.png"
_HOLDERS_OF_PINTS = frozenset("basket bottle can carton container glass jar milk mug box pack".split())
# "3.5L V6"
_ENGINE_AHEAD = re.compile(
    r" (?:[IVWH]-?(?:[2-68]|10|12|16)|[Tt]urbo\w*|[Dd]iesel|EcoBoost|Hemi|inline|flat)\b"
)
_DRUGS = any_of(vocabulary.DRUGS_IN_UNITS)
_WAY_OF_DRUG_AHEAD = re.compile(
    rf"/(?:kg|mL|ml)\b| (?:SC|SQ|IM|IV|subQ|subcut\w{{0,12}}|q[AP]M|qHS)\b"
    rf"| (?:of )?(?:\w{{2,12}} )?(?i:{_DRUGS})\b"
)
_DRUG_BEHIND = PatternBehind(rf"\b(?i:{_DRUGS})\b[^.;!?]{{0,30}}\Z")
_POWER_BEHIND = PatternBehind(r"(?:\^-?\d{1,3}|\d[kKMB]) \Z")
_UNIT_AFTER_POWER = re.compile(rf" ?({UNIT})(?![\w'-])")


def _read_open_amount(scan: ScanState, match: re.Match[str]) -> int:
    """Read "45+ mph"."""
    scan.emit(f"{amount_words(match.group(1))} plus", match.start(), match.end(1) + 1)
    scan.emit(vocabulary.UNITS[match.group(2)][1], *match.span(2))
    scan.context.note_number()
    return end_of_unit(scan, match.end())


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


def _read_kelvin(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "at 298 K"."""
    if scan.context.previous_word not in _WORDS_BEFORE_KELVIN:
        return None
    scan.emit(f"{amount_words(match.group(1))} kelvin", *match.span())
    scan.context.note_number()
    return match.end()


def _read_oven_heat(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "heat to 200C"."""
    if scan.context.previous_word not in ("to", "at", "about", "around", "fan", "oven"):
        return None
    return _read_degrees(scan, match)


def _read_unit(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "5 lbs" as "five pounds", and "5 lb" in "a 5 lb bag" or "5-lb" in the singular."""
    number, gap, unit = match.group(1), match.group(2), match.group(3)
    is_rate = scan.view[match.end() : match.end() + 1] == "/"  # "2.5 in/hr"
    may_be_word = gap and unit in vocabulary.UNITS_WITHOUT_SPACE and not is_rate
    if may_be_word and not _is_spaced_unit(scan, match.end(), unit):
        return None
    if not gap and (scan.context.after_code or (len(unit) == 1 and _is_other_letter(scan, match))):
        return None
    is_adjective = gap == "-" or _is_before_measured_noun(scan, match)
    if unit == "pt" and (gap == "-" or _TYPE_AHEAD.match(scan.view, match.end())):
        unit = "pt" if scan.next_word(_after_stop(scan, match.end())) in _HOLDERS_OF_PINTS else "pts"
    name = vocabulary.UNITS[unit][0 if is_adjective or is_one(number) else 1]
    scan.emit(amount_words(number), match.start(), match.end(1))
    scan.emit("million" if _is_millions(scan, match) else name, match.start(3), match.end(3))
    scan.context.note_number()
    return end_of_unit(scan, match.end())


def _after_stop(scan: ScanState, end: int) -> int:
    return end + 1 if scan.view[end : end + 2] == ". " else end


def _read_years(scan: ScanState, match: re.Match[str]) -> int:
    """Read "the 10y yield" and "fixed for 30y"."""
    following = scan.next_word(match.end())
    is_adjective = following.islower() and following not in ("ago", "old")
    one = is_adjective or is_one(match.group(1))
    scan.emit(f"{amount_words(match.group(1))} year{'' if one else 's'}", *match.span())
    scan.context.note_number()
    return match.end()


def _read_binary_size(scan: ScanState, match: re.Match[str]) -> int:
    """Read "512Mi", as the limits of containers are written."""
    name = _BINARY_SIZES[match.group(2)]
    scan.emit(amount_words(match.group(1)), *match.span(1))
    scan.emit(name if is_one(match.group(1)) else f"{name}s", *match.span(2))
    scan.context.note_number()
    return match.end()


def _is_other_letter(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether the letter after a number is no unit: "exit 4L", "5W-30", "3x = 12"."""
    context, letter, end = scan.context, match.group(3), match.end()
    if letter == "x":
        in_equation = _EQUATION_BEHIND.search(scan.view, match.start())
        return bool(in_equation or _EQUATION_AHEAD.match(scan.view, end))
    is_named = context.identifier_expected or context.previous_word in vocabulary.NOUNS_BEFORE_LETTERS
    is_oil = letter == "W" and _OIL_GRADE_AHEAD.match(scan.view, end)
    return letter.isupper() and bool(is_named or is_oil)


def _is_millions(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a number with "m" counts people or copies, as in "1.3m users", and is no length."""
    ahead = _MILLION_AHEAD.match(scan.view, match.end())
    return match.group(3) == "m" and bool(ahead or _POPULATION_BEHIND.search(scan.view, match.start()))


def _is_before_measured_noun(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a noun follows that has the quantity: "a 5 lb bag", "your 15 GB plan", "two 5 mL doses"."""
    end, previous = match.end(), scan.context.previous_word
    if scan.view[end : end + 2] == ". ":
        end += 1
    if previous == "to" and (
        low := _RANGE_BEHIND.search(scan.view, max(0, match.start() - 40), match.start())
    ):
        previous = low.group(1).lower()  # "a 20-25 min. drive"
    if previous in ("a", "an"):
        return scan.next_visible(end).isalpha()
    following = scan.next_word(end)
    if following in vocabulary.MEASURED_NOUNS and scan.view[end : end + 1] == " ":
        return True
    bracketed = _BRACKET_AHEAD.match(scan.view, match.end())  # "1 (15 oz.) can"
    if (
        bracketed
        and _COUNT_BEHIND.search(scan.view, match.start())
        and scan.next_word(bracketed.end()) in vocabulary.MEASURED_NOUNS
    ):
        return True
    if _OTHER_SIZE_AHEAD.match(scan.view, end) or (
        match.group(3) == "L" and _ENGINE_AHEAD.match(scan.view, end)
    ):
        return True
    if previous in _COUNTS and is_counted(following):  # "two 30 min. sets"
        return True
    is_size = _SIZE_BEHIND.search(scan.view, max(0, match.start() - 4), match.start())
    determined = is_size or previous in vocabulary.DETERMINERS | {"per"}
    is_noun = following.islower() and len(following) > 1
    return bool(determined) and is_noun and following not in WORDS_AFTER_LENGTHS


def _is_spaced_unit(scan: ScanState, end: int, unit: str) -> bool:
    """Whether a letter after a number and a blank is a unit, as in "340 g"; not in "apartment 5 L"."""
    context = scan.context
    after_name = context.previous_capitalized and not (context.after_colon or context.after_comma)
    named = context.identifier_expected or context.code_words_left or after_name
    is_direction = unit == "W" and _INITIAL_AHEAD.match(scan.view, end)
    if unit in ("L", "g") and _GIVEN_AHEAD.match(scan.view, end):
        return True
    continues = scan.view[end : end + 1] == "-" or _NAME_AHEAD.match(scan.view, end)  # "5 t-shirts"
    if unit == "t" and _SPOON_AHEAD.match(scan.view, end):
        return False
    is_voltage = unit == "V" and _CURRENT_AHEAD.match(scan.view, end)
    return unit in _SPACED_LETTERS and not (named or is_direction or (continues and not is_voltage))


def end_of_unit(scan: ScanState, end: int) -> int:
    """Return the end of a unit; the full stop after it belongs to it if the sentence continues."""
    follows = scan.view[end : end + 2]
    continues = follows in (".,", ".;", ".:") or (follows == ". " and scan.next_visible(end + 1).islower())
    return end + 1 if continues else end


def _read_feet_and_inches(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(f"{numbers.cardinal(int(match.group(1)))} feet", match.start(), match.end(1))
    scan.emit(f"{numbers.cardinal(int(match.group(2)))} inches", match.start(2), match.end())
    scan.context.note_number()
    return end_of_unit(scan, match.end())


def _read_height(scan: ScanState, match: re.Match[str]) -> int:
    """Read 5'10"."""
    scan.emit(f"{numbers.cardinal(int(match.group(1)))} foot", match.start(), match.end(1))
    scan.emit(numbers.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_power(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "^2" of "x^2", and the "^8 m/s" of "3×10^8 m/s"."""
    power = int(match.group(1))
    words = {2: "squared", 3: "cubed"}.get(power, f"to the power of {numbers.cardinal(power)}")
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    unit = _UNIT_AFTER_POWER.match(scan.view, match.end())
    after_digit = scan.view[max(0, match.start() - 1)].isdigit()
    if unit is None or not after_digit or unit.group(1) in vocabulary.UNITS_WITHOUT_SPACE - _SPACED_LETTERS:
        return match.end()
    scan.emit(vocabulary.UNITS[unit.group(1)][1], unit.start(1), unit.end())
    return end_of_unit(scan, unit.end())


def _read_rate(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "/month" as "per month"."""
    if len(match.group(1)) == 1 and not scan.context.after_number:  # "S/M/L"
        return None
    if not scan.context.after_number and _PATH_AHEAD.match(scan.view, match.end()):
        return None
    unit = vocabulary.RATE_UNITS[match.group(1)]
    if unit != "each":  # "$3/ea"
        scan.emit("per", match.start(), match.start() + 1)
    scan.emit(unit, match.start(1), match.end(1))
    note_english_word(scan.context, unit)
    return end_of_unit(scan, match.end())


def _read_unit_without_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "kWh" of "your kWh usage", and of "in kWh" in the plural."""
    if scan.context.after_number:
        return None
    following = scan.next_word(match.end())
    before_noun = following.islower() and following not in vocabulary.WORDS_AFTER_PRICES
    one = before_noun or scan.context.previous_word in vocabulary.WORDS_BEFORE_ONE
    scan.emit(vocabulary.UNITS[match.group(1)][0 if one else 1], *match.span())
    note_english_word(scan.context, match.group(1))
    return match.end()


def _read_units_of_drug(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "8 U" of "insulin aspart 8 U SC", "20 U heparin" and "12 U/kg"."""
    is_drug = _WAY_OF_DRUG_AHEAD.match(scan.view, match.end()) or _DRUG_BEHIND.search(
        scan.view, match.start()
    )
    if not is_drug:
        return None
    number = match.group(1)
    scan.emit(f"{amount_words(number)} unit{'' if is_one(number) else 's'}", *match.span())
    scan.context.note_number()
    return match.end()


def _read_amount_of(name: str) -> Recognizer:
    """Return a recognizer of amounts that says ``name`` after each."""

    def read(scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(f"{amount_words(match.group(1))} {name}", *match.span())
        scan.context.note_number()
        return match.end()

    return read


def _read_volts_and_amps(scan: ScanState, match: re.Match[str]) -> int:
    """Read "5V/2A"."""
    after_article = scan.context.previous_word in ("a", "an") and scan.next_visible(match.end()).isalpha()
    is_adjective = after_article or bool(_AMP_NOUN_AHEAD.match(scan.view, match.end()))
    for group, one in ((1, "volt"), (2, "amp")):
        number = match.group(group)
        plural = "" if is_adjective or is_one(number) else "s"
        scan.emit(f"{amount_words(number)} {one}{plural}", match.start(group), match.end(group) + 1)
    scan.context.note_number()
    return match.end()


def _read_rooms(scan: ScanState, match: re.Match[str]) -> int:
    """Read "3BR/2.5BA" and "2 bd", without the slash."""
    number, letters, slash = match.groups()
    beside_slash = slash or scan.view[match.start() - 1 : match.start()] == "/"
    after_article = scan.context.previous_word in ("a", "an")
    is_adjective = beside_slash or after_article or scan.next_word(match.end()) in _HOMES
    room = "bath" if letters[1] in "Aa" else "bedroom"
    plural = "" if is_adjective or is_one(number) else "s"
    scan.emit(f"{amount_words(number)} {room}{plural}", match.start(), match.end(2))
    scan.context.note_number()
    return match.end()


def _read_amps(scan: ScanState, match: re.Match[str]) -> int:
    """Read "2.5A" or "15A breaker"."""
    number = match.group(1)
    is_adjective = bool(_AMP_NOUN_AHEAD.match(scan.view, match.end()))
    unit = "amp" if is_adjective or is_one(number) else "amps"
    scan.emit(f"{amount_words(number)} {unit}", match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_length_sign(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the sign of 12" x 8" x 4", 84" wide and "a 6' ladder"; elsewhere it may end a quotation."""
    number, sign = match.groups()
    end, previous = match.end(), scan.context.previous_word
    following = scan.next_word(end)
    before_noun = following.islower() and following not in WORDS_AFTER_LENGTHS
    quoted = (
        sign == "'"
        or scan.view[match.start() - 1] == '"'
        or _OPEN_QUOTE_BEHIND.search(scan.view, 0, match.end(1))
    )
    on_screen = sign == '"' and (_SCREEN_AHEAD.match(scan.view, end) or _PICTURE_AHEAD.match(scan.view, end))
    after_article = previous in ("a", "an") and (following.islower() or on_screen)
    # 'two 16" pizzas', 'the 65" Samsung'
    counted = not quoted and (
        (before_noun and previous in _COUNTS)
        or (previous in vocabulary.DETERMINERS and bool(_CAPITAL_AHEAD.match(scan.view, end)))
    )
    after_size = previous in ("by", "to") and (sign == "'" or not quoted)
    is_length = after_size or _DIMENSION_AHEAD.match(scan.view, end) or after_article or counted
    if sign == "'" and previous not in ("at", "is"):
        is_length = is_length or _is_in_feet(scan, match)
    # "climbs 2,340'", '0.2" of rain'
    is_length = is_length or (sign == "'" and "," in number) or ("." in number and not quoted)
    # "(5.9')", '38" pitch'
    is_length = is_length or (sign == "'" and "." in number and scan.view[match.start() - 1] != "'")
    is_length = is_length or (not quoted and before_noun and following not in _WORDS_AFTER_QUOTES)
    if not is_length and (quoted or not (on_screen or _END_OF_LENGTH.match(scan.view, end))):
        return None
    is_adjective = after_article or on_screen or counted
    is_adjective = is_adjective or (
        before_noun and (previous == "by" or not quoted) and following not in _WORDS_OF_PLACE
    )
    one, many = vocabulary.UNITS["ft" if sign == "'" else "in"]
    scan.emit(amount_words(number), match.start(), match.end(1))
    scan.emit(one if is_adjective or is_one(number) else many, match.end(1), end)
    scan.context.note_number()
    return end


def _is_in_feet(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "8'" is a length: another length is before it, or a word of place follows."""
    following = scan.next_word(match.end())
    return following in vocabulary.WORDS_AFTER_FEET or bool(_FEET_BEHIND.search(scan.view, 0, match.start()))


def _read_coordinates(scan: ScanState, match: re.Match[str]) -> int:
    """Read "18.2N 64.9W", a place on earth."""
    for group in (1, 3):
        scan.emit(amount_words(match.group(group)), *match.span(group))
        scan.emit(vocabulary.DIRECTIONS[match.group(group + 1)], *match.span(group + 1))
        scan.punctuate("," if group == 1 else "")
    note_english_word(scan.context, "west")
    return match.end()


def _read_games(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "2.5 GB" of "2.5 GB behind", of a league."""
    number = match.group(1)
    scan.emit(f"{amount_words(number)} {'game' if is_one(number) else 'games'}", *match.span())
    scan.context.note_number()
    return match.end()


def _read_carats(scan: ScanState, match: re.Match[str]) -> int:
    """Read "0.5 ct" and "18 ct gold"."""
    is_adjective = scan.next_word(match.end()).islower()
    scan.emit(f"{amount_words(match.group(1))} {'carat' if is_adjective else 'carats'}", *match.span())
    scan.context.note_number()
    return end_of_unit(scan, match.end())


def _read_angle(scan: ScanState, match: re.Match[str]) -> int:
    """Read the 40°42'46" of "40°42'46"N", in degrees, minutes and seconds."""
    for group, one in ((1, "degree"), (2, "minute"), (3, "second")):
        number = match.group(group)
        if number:
            words = f"{amount_words(number)} {one}{'' if is_one(number) else 's'}"
            scan.emit(words, match.start(group), match.end(group) + 1)
    scan.context.note_number()
    if match.group(4):
        scan.emit(vocabulary.DIRECTIONS[match.group(4)], *match.span(4))
        note_english_word(scan.context, match.group(4))
    return match.end()


def _read_part_of_size(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "6.1/" of "6.1/8 GB", of which so much is used."""
    scan.emit(f"{amount_words(match.group(1))} of", *match.span())
    scan.context.note_number()
    return match.end()


def _read_times_range(scan: ScanState, match: re.Match[str]) -> int:
    """Read "2-3x"."""
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit(f"to {amount_words(match.group(2))}", match.end(1), match.end(2))
    scan.emit("times", match.end(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_decimal_comma(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "1,5 m"."""
    unit = match.group(3)
    if match.group(2) and unit in vocabulary.UNITS_WITHOUT_SPACE - _SPACED_LETTERS - {"m"}:
        return None
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit(vocabulary.UNITS[unit][1], match.start(3), match.end(3))
    scan.context.note_number()
    return end_of_unit(scan, match.end())


def _read_unit_after_formula(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "kg" of "5.97 × 10^24 kg", the "km" of "1.5M km" and the "mi" of "41k mi"."""
    if not scan.context.after_number or not _POWER_BEHIND.search(scan.view, match.start()):
        return None
    is_adjective = scan.next_word(match.end()) in vocabulary.MEASURED_NOUNS
    scan.emit(vocabulary.UNITS[match.group(1)][0 if is_adjective else 1], *match.span(1))
    scan.context.note_number()
    return end_of_unit(scan, match.end())


LETTER_RULES = compile_rules(
    (
        r"(kg|km|cm|mm|mg|g|ly|m|s|W|V|Hz|kcal|mi|ft|sq\.? ?ft|sqft|gal|lbs|kWh|IU|mAh)(?![\w'])",
        _read_unit_after_formula,
    ),
    (rf"({any_of(_MIXED_CASE_UNITS)})(?![\w'/-])", _read_unit_without_number),
)
DIGIT_RULES = compile_rules(
    # 5'10", "6 ft 2 in"
    (r"(\d{1,2})' ?(\d{1,2})(?:\"|'')", _read_height),
    (r"(\d{1,2}) ?(?:ft|feet)\.? (\d{1,2}) ?in(?!\w)", _read_feet_and_inches),
    (r"(\d)-(?:ft|foot)-(\d{1,2})(?!\w)", _read_height),
    (r"(\d{1,3})° ?(\d{1,2})' ?(?:(\d{1,2}(?:\.\d{1,4})?)(?:\"|'') ?)?([NSEW](?!\w))?", _read_angle),
    # "40' HC", a container
    (
        r"(20|40|45|53)'(?= (?:HC|HQ|FCL|GP|containers?|trailers?|reefers?|dry|standard|high cube)\b)",
        _read_amount_of("foot"),
    ),
    (r"(\d{1,2}(?:\.\d{1,4})?)([NS]),? ?(\d{1,3}(?:\.\d{1,4})?)([EW])(?!\w)", _read_coordinates),
    # "954 mb", the pressure of a storm
    (r"(9\d\d|10[0-6]\d) mb(?![\w/])", _read_amount_of("millibars")),
    (r"(\d{0,2}\.\d{1,2}|\d{1,2}(?= ct\.? (?:\w{4,7} )?(?:gold|diamonds?)\b)) ?ct(?![\w'])", _read_carats),
    (rf"({DECIMAL})([\"'])(?!\w)", _read_length_sign),
    (r"(\d{1,4}(?:\.\d{1,2})?)/(?=\d{1,4}(?:\.\d{1,2})? ?[KMGT]i?B(?!\w))", _read_part_of_size),
    (r"(\d{1,3})[-–](\d{1,3})x(?!\w)", _read_times_range),
    (rf"(\d{{1,3}},\d{{1,2}})( ?)({UNIT})(?![\w'/])", _read_decimal_comma),
    (rf"({DECIMAL}) ?%", _read_percent),
    (rf"({DECIMAL}) ?° ?([CFK])?(?!\w)", _read_degrees),
    (r"([1-4]\d\d)([CF])(?!\w)", _read_oven_heat),
    (r"(\d{2,3}\.\d)(F)(?!\w)", _read_degrees),
    (r"(\d{3}|\d{1,2}\.\d{1,3}) K(?![\w'-])", _read_kelvin),
    (
        rf"({DECIMAL})\+ ?({_LONG_UNIT})(?![\w/])",
        _read_open_amount,
    ),
    (
        r"(\d{1,2})y(?= (?:ago|bonds?|fixed|loan|mortgage|notes?|old|swaps?|term|treasury|warranty|yields?)\b"
        r"|[.,;)]|\Z)",
        _read_years,
    ),
    (rf"({DECIMAL})({any_of(_BINARY_SIZES)})(?!\w)", _read_binary_size),
    (rf"({DECIMAL}) GB(?= (?:behind|back|ahead|of first)\b)", _read_games),
    # "0.5 M NaOH"
    (rf"({DECIMAL}) ?M(?= (?=[A-Z]{{0,4}}[a-z\d])(?:[A-Z][a-z]?\d?){{2,6}}(?!\w))", _read_amount_of("molar")),
    (rf"({DECIMAL}) ?(?:U(?![\w.'-])|u\.|u(?= (?:SC|SQ|IM|IV)\b))", _read_units_of_drug),
    (rf"({DECIMAL}) ?V(?:DC|AC)? ?[/,x@-]? ?({DECIMAL}) ?A(?!\w)", _read_volts_and_amps),
    (r"(\d(?:\.\d)?)[ -]?(B[RDA]|bdr?m?|br|ba)s?(/(?=\d))?(?!(?<!/)[\w/]|(?<!/) \d)", _read_rooms),
    (r"(\d+\.\d+) ?A(?!\w)", _read_amps),
    (rf"(\d+)-?A(?={_AMP_NOUN_AHEAD.pattern})", _read_amps),
    # "5 km", "10-ft"; not before a slash unless a rate or another quantity follows, as in "5 MB/s"
    (rf"({DECIMAL})( ?|-)({UNIT})(?![\w']|/(?!(?:{_RATE})\b| ?\d))", _read_unit),
)
SYMBOL_RULES = compile_rules(
    (rf"(\.\d{{1,6}})( ?|-)({UNIT})(?![\w']|/(?!(?:{_RATE})\b| ?\d))", _read_unit),  # ".5 oz"
    (r"(\.\d{1,4})(\")(?!\w)", _read_length_sign),
    (rf"/ ?({_RATE})(?!\w)", _read_rate),
    (r"\^(\d{1,3})(?!\d)", _read_power),
)
