"""Recognisers of money: "$5", "5 EUR", "$1.2M", "$20k-$30k", "50¢".

Source: Unicode CLDR 44 for the currencies' names; everyday usage for what is left unsaid.
"""

import re

from . import number_words as say
from . import vocabulary
from .amounts import DECIMAL, is_one, number_words
from .scan import Scan, rules

_BIG = r"(?: ?(thousand|million|billion|trillion|bn|MM|mm|[kKMBT](?!\w))(?!\w))?"
_SIGN = r"US\$|CA\$|A\$|[$£€¥₹]"
_CODE = r"USD|EUR|GBP|CAD|AUD|JPY|CNY|INR|CHF|MXN"


def _money_words(amount: str, magnitude: str | None, currency: str) -> str:
    one, many, small_one, small_many = vocabulary.CURRENCIES[currency]
    whole, _, fraction = amount.replace(",", "").partition(".")
    if magnitude:
        return f"{number_words(amount)} {vocabulary.MAGNITUDES[magnitude]} {many}"
    if len(fraction) > 2 or (fraction and currency in ("¥", "JPY")):
        return f"{number_words(amount)} {many}"
    cents = int(fraction.ljust(2, "0") or 0)
    whole = whole or "0"
    units = int(whole)
    large = f"{number_words(whole)} {one if units == 1 else many}"
    small = f"{say.cardinal(cents)} {small_one if cents == 1 else small_many}"
    if cents and units:
        return f"{large} and {small}"
    return small if cents else large


def _read_money(scan: Scan, match: re.Match[str]) -> int:
    """$5 is five dollars, and a $5 fee a five dollar fee."""
    currency, amount, magnitude = match.group(1), match.group(2), match.group(3)
    words = _money_words(amount, magnitude, currency)
    if "." not in amount and scan.next_word(match.end()) in vocabulary.PRICED:
        words = words.removesuffix("s")
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_money_range(scan: Scan, match: re.Match[str]) -> int:
    currency, low, low_magnitude, high, magnitude = match.groups()
    low_words = number_words(low)
    if low_magnitude:
        low_words += f" {vocabulary.MAGNITUDES[low_magnitude]}"
    scan.say(low_words, match.start(), match.end(2))
    scan.say("to", match.end(2), match.start(4))
    scan.say(_money_words(high, magnitude, currency), match.start(4), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_trailing_money(scan: Scan, match: re.Match[str]) -> int:
    amount, magnitude, currency = match.groups()
    if currency == "¢":
        words = f"{number_words(amount)} {'cent' if is_one(amount) else 'cents'}"
    else:
        words = _money_words(amount, magnitude, currency)
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


LETTER_RULES = rules(
    (rf"({_CODE}|US\$|CA\$|A\$) ?({DECIMAL}){_BIG}", _read_money),
    (rf"(Rs)\.? ?({DECIMAL}){_BIG}", _read_money),
)
DIGIT_RULES = rules(
    (rf"({DECIMAL}){_BIG} ?(¢|€|£|(?:{_CODE})(?!\w))", _read_trailing_money),
)
SYMBOL_RULES = rules(
    (rf"({_SIGN}) ?({DECIMAL}){_BIG} ?[-–] ?\$?({DECIMAL}){_BIG}(?![\d-])", _read_money_range),
    (rf"({_SIGN}) ?({DECIMAL}|\.\d+){_BIG}(?:(?<=\w) ?USD(?!\w))?", _read_money),
)
