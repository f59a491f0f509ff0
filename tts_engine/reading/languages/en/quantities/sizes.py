"""Rules of sizes: "22 x 14 x 9 in.", "35 × 45 mm", "2x4", "225/65R17"; and the signs of products.

Source: ISO 4000-1 for the sizes of tires: width, ratio, construction, diameter of the rim.
"""

import re

from ....kit.patterns import PatternBehind
from ....kit.tokenizer import ScanState, compile_capital_rules, compile_rules
from .. import vocabulary
from ..spelling import ENGLISH_SPELLER
from ..word_context import note_english_word
from . import number_words as numbers
from .number_words import DECIMAL, amount_words, is_one
from .units import LENGTH_WORDS, WORDS_AFTER_LENGTHS, end_of_unit

_EQUATION_AHEAD = re.compile(r"(?:\d|[.,](?=\d)){1,12} ?=")
# "× 40 × 20 cm": sizes are read with "by", products with "times".
_SIZE_AHEAD = re.compile(
    rf"× ?{DECIMAL} ?(?:× ?{DECIMAL} ?)?-?(?:[ckm]?m|in|ft|px|inch(?:es)?|feet|met(?:er|re)s|[\"'])(?![\w^])"
)
_GRID_AHEAD = re.compile(
    r"×\d{1,4} (?:matri|grid|board|square|tile|table|pixel|image|with|array|block|cube|window)"
)
_TIMES_AHEAD = re.compile(r" ?[x×] ?\d")
_SIGNS_OF_LENGTH = {'"': "in", "'": "ft"}
_SIDES = {"W": "wide", "D": "deep", "H": "high", "L": "long"}
_LETTER_BEHIND = re.compile(r"\b[A-Z] ?\Z")
_TIRE = r"(\d{3})/(\d{2}) ?(Z?R) ?(\d{2})(?!\w)"
# "The shelf is 9 in."; not "put 20 in."
_VERB_WITH_IN_BEHIND = PatternBehind(
    r"\b(?:put|let|came|come|count|counted|type|typed|got|took|take|all) \Z", re.IGNORECASE
)


def _read_times_sign(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the x of "30 cm x 20 cm", "3 x $5" and "L x W x H"."""
    after_length = scan.context.after_number or scan.context.previous_word in vocabulary.LENGTH_WORDS
    if scan.next_visible(match.end()).isalpha():
        after_length = bool(_LETTER_BEHIND.search(scan.view, max(0, match.start() - 3), match.start()))
    if scan.context.after_phone or not after_length:
        return None
    priced = scan.next_visible(match.end()) in "$£€"
    first_digit = match.end() + (scan.view[match.end() : match.end() + 1] == " ")
    word = "times" if priced or _EQUATION_AHEAD.match(scan.view, first_digit) else "by"
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_multiplication_sign(scan: ScanState, match: re.Match[str]) -> int:
    """Read the × of "35 × 45 mm" as "by", and of "3 × 4" as "times"."""
    is_size = scan.context.after_number and (
        _SIZE_AHEAD.match(scan.view, match.start()) or _GRID_AHEAD.match(scan.view, match.start())
    )
    word = "by" if is_size else "times"
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_count(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "3x" of "3x 12-oz. cans" as a number."""
    scan.emit(numbers.cardinal(int(match.group(1))), *match.span())
    scan.context.note_number()
    return match.end()


def _read_number_times(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "2x" of "2x4"."""
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit("by", match.end(1), match.end())
    note_english_word(scan.context, "by")
    return match.end()


def _read_inches(scan: ScanState, match: re.Match[str]) -> int:
    """Read "6 in. wide", and "9x13 in. pan" in the singular."""
    number, following = match.group(1), scan.next_word(match.end())
    before_noun = following.islower() and following not in WORDS_AFTER_LENGTHS
    is_adjective = before_noun and scan.context.previous_word in ("a", "an", "by")
    scan.emit(amount_words(number), match.start(), match.end(1))
    scan.emit("inch" if is_adjective or is_one(number) else "inches", match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_last_inches(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "9 in." of "14 x 9 in." at the end of a clause; without a full stop only after "by"."""
    has_stop = scan.view[match.end() : match.end() + 1] == "."
    is_size = scan.context.previous_word == "by"
    if not is_size and (not has_stop or _VERB_WITH_IN_BEHIND.search(scan.view, match.start())):
        return None
    return end_of_unit(scan, _read_inches(scan, match))


def _read_inch_adjective(scan: ScanState, match: re.Match[str]) -> int:
    """Read "1-in. cubes"."""
    scan.emit(f"{amount_words(match.group(1))} inch", match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_side(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the 84" W of 84" W x 36" D x 33" H."""
    number, sign, side = match.groups()
    if scan.context.previous_word != "by" and not _TIMES_AHEAD.match(scan.view, match.end()):
        return None
    unit = vocabulary.UNITS[_SIGNS_OF_LENGTH.get(sign, sign)][0 if is_one(number) else 1]
    scan.emit(amount_words(number), match.start(), match.end(1))
    scan.emit(unit, match.start(2), match.start(3))
    scan.emit(_SIDES[side], match.start(3), match.end())
    scan.context.note_number()
    return match.end()


def _read_trousers(scan: ScanState, match: re.Match[str]) -> int:
    """Read "32W x 34L", a waist and a length."""
    for group in (1, 3):
        scan.emit(numbers.cardinal(int(match.group(group))), *match.span(group))
        ENGLISH_SPELLER.spell(scan, *match.span(group + 1))
        if group == 1:
            scan.emit("by", match.end(2), match.start(3))
    scan.context.note_number()
    return match.end()


def _read_tire(scan: ScanState, match: re.Match[str]) -> int:
    """Read "225/65R17" and "245/40R19 98W"."""
    width, ratio, rim = (int(match.group(place)) for place in (1, 2, 4))
    scan.emit(numbers.house_number(width), match.start(), match.end(1))
    scan.emit(numbers.cardinal(ratio), match.start(2), match.end(2))
    ENGLISH_SPELLER.spell(scan, match.start(3), match.end(3))
    scan.emit(numbers.cardinal(rim), *match.span(4))
    if match.group(5):  # load and speed
        scan.punctuate(",")
        scan.emit(numbers.cardinal(int(match.group(5))), *match.span(5))
        ENGLISH_SPELLER.spell(scan, *match.span(6))
    scan.context.note_number()
    return match.end()


def _read_class_of_tire(scan: ScanState, match: re.Match[str]) -> int:
    """Read the letters of "P215/60R16" and "LT265/70R17"."""
    ENGLISH_SPELLER.spell(scan, match.start(), match.end())
    note_english_word(scan.context, match.group())
    return match.end()


LETTER_RULES = (
    *compile_rules((r"x(?= ?(?:[$£€]?\d|[A-Z](?!\w)))", _read_times_sign)),
    *compile_capital_rules((rf"(?:P|LT|ST)(?= ?{_TIRE})", _read_class_of_tire)),
)
DIGIT_RULES = compile_rules(
    (rf"{_TIRE}(?: (\d{{2,3}})([HQRSTVWYZ])(?!\w))?", _read_tire),
    (r"([2-6]\d)(W) ?[x×/] ?([2-4]\d)(L)(?!\w)", _read_trousers),
    # "2x4", "12x12x6"
    (r"([1-9]\d{0,2})x(?= \d{1,4}(?:\.\d)?-[a-z])", _read_count),
    (r"([1-9]\d{0,4})x(?=[1-9]\d{0,4}(?:x[1-9]\d{0,4})?(?:m|km|cm|mm|ft)?(?!\w))", _read_number_times),
    (rf"({DECIMAL})(?:(?=[\"'])| ?)([\"']|in|cm|mm|ft|m)\.? ?([WDHL])(?!\w)", _read_side),
    (rf"({DECIMAL})-in(?:\.(?= [a-z])|(?![\w.-]))", _read_inch_adjective),
    (rf"({DECIMAL}) in(?:\.(?= [a-z])|(?= {LENGTH_WORDS}\b))", _read_inches),
    (rf"({DECIMAL}) in(?=\.(?![^\W_])| *(?:[,;:)]|\Z))", _read_last_inches),
)
SYMBOL_RULES = compile_rules((r"×(?= ?\d)", _read_multiplication_sign))
