"""Rules of money: "$5", "5 EUR", "$1.2M", "$20k-$30k", "50¢".

Source: Unicode CLDR 44 for the names of currencies.
"""

import re

from ..tokenizer import ScanState, compile_rules
from . import number_words as numbers
from . import vocabulary
from .amounts import DECIMAL
from .number_words import amount_words, is_one

_MAGNITUDE = r"(?: ?(thousand|million|billion|trillion|bn|MM|mm|[kKMBT](?!\w))(?!\w))?"
_CURRENCY_SIGN = r"US\$|CA\$|A\$|[$£€¥₹]"
_CURRENCY_CODE = r"USD|EUR|GBP|CAD|AUD|JPY|CNY|INR|CHF|MXN"


def _money_words(amount: str, magnitude: str | None, currency: str) -> str:
    """Return the words of an amount: "two dollars and fifty cents", "three million dollars"."""
    one, many, small_one, small_many = vocabulary.CURRENCIES[currency]
    whole, _, fraction = amount.replace(",", "").partition(".")
    if magnitude:
        return f"{amount_words(amount)} {vocabulary.MAGNITUDES[magnitude]} {many}"
    if len(fraction) > 2 or (fraction and currency in ("¥", "JPY")):
        return f"{amount_words(amount)} {many}"
    cents = int(fraction.ljust(2, "0") or 0)
    whole = whole or "0"
    units = int(whole)
    large = f"{amount_words(whole)} {one if units == 1 else many}"
    small = f"{numbers.cardinal(cents)} {small_one if cents == 1 else small_many}"
    if cents and units:
        return f"{large} and {small}"
    return small if cents else large


def _read_money(scan: ScanState, match: re.Match[str]) -> int:
    """Read "$5" as "five dollars", and in "a $5 fee" as "five dollar"."""
    currency, amount, magnitude = match.group(1), match.group(2), match.group(3)
    words = _money_words(amount, magnitude, currency)
    if "." not in amount and scan.next_word(match.end()) in vocabulary.PRICED_NOUNS:
        words = words.removesuffix("s")
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_money_range(scan: ScanState, match: re.Match[str]) -> int:
    """Read "$5-$10" with the currency at the end only."""
    currency, low, low_magnitude, high, magnitude = match.groups()
    low_words = amount_words(low)
    if low_magnitude:
        low_words += f" {vocabulary.MAGNITUDES[low_magnitude]}"
    scan.emit(low_words, match.start(), match.end(2))
    scan.emit("to", match.end(2), match.start(4))
    scan.emit(_money_words(high, magnitude, currency), match.start(4), match.end())
    scan.context.note_number()
    return match.end()


def _read_trailing_money(scan: ScanState, match: re.Match[str]) -> int:
    """Read "20€" or "40 CAD"."""
    amount, magnitude, currency = match.groups()
    if currency == "¢":
        words = f"{amount_words(amount)} {'cent' if is_one(amount) else 'cents'}"
    else:
        words = _money_words(amount, magnitude, currency)
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


LETTER_RULES = compile_rules(
    (rf"({_CURRENCY_CODE}|US\$|CA\$|A\$) ?({DECIMAL}){_MAGNITUDE}", _read_money),
    (rf"(Rs)\.? ?({DECIMAL}){_MAGNITUDE}", _read_money),
)
DIGIT_RULES = compile_rules(
    (rf"({DECIMAL}){_MAGNITUDE} ?(¢|€|£|(?:{_CURRENCY_CODE})(?!\w))", _read_trailing_money),
)
SYMBOL_RULES = compile_rules(
    # "$5-$10"
    (
        rf"({_CURRENCY_SIGN}) ?({DECIMAL}){_MAGNITUDE} ?[-–] ?\$?({DECIMAL}){_MAGNITUDE}(?![\d-])",
        _read_money_range,
    ),
    # "$5", "$.50", "$2.5B"; a "USD" after the amount is not read again
    (rf"({_CURRENCY_SIGN}) ?({DECIMAL}|\.\d+){_MAGNITUDE}(?:(?<=\w) ?USD(?!\w))?", _read_money),
)
