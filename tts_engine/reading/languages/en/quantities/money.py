"""Rules of money: "$5", "5 EUR", "$1.2M", "$20k-$30k", "50¢".

Source: Unicode CLDR 44 for the names of currencies.
"""

import re

from ....kit.tokenizer import ScanState, any_of, compile_capital_rules, compile_rules
from .. import vocabulary
from ..word_context import note_english_word
from . import number_words as numbers
from .number_words import DECIMAL, amount_words, is_one, plain_decimal, whole_words

_MAGNITUDE = (
    r"(?: ?(thousand|million|billion|trillion|lakhs?|crores?|bn|tn|Cr|MM|mm"
    r"|[kKmMBT](?!['\w]|/[^a-z]|-[^$€£¥₹\d]))(?!\w))?"
)
# Only beside a currency: "49,90", "1.250,00", "1 250,00", "1'250.00" and "1.250.000".
_AMOUNT = (
    r"(?:\d{1,9},\d\d(?![,.]?\d)|\d{1,3}(?:[. ]\d{3})+,\d\d(?!\d)|\d{1,3}(?:'\d{3})+(?:\.\d\d)?(?!\d)"
    rf"|\d{{1,3}}(?:\.\d{{3}}){{2,}}(?![.\d])|{DECIMAL})"
)
_CODES = [currency for currency in vocabulary.CURRENCIES if currency.isalpha() and currency.isupper()]
_SIGNS = [currency for currency in vocabulary.CURRENCIES if not currency.isalpha()]
_LETTERED_SIGNS = any_of(sign for sign in _SIGNS if sign[0].isalpha())
_CURRENCY_SIGN = any_of(sign for sign in _SIGNS if not sign[0].isalpha())
_CURRENCY_CODE = any_of(_CODES)
_TRAILING_SIGN = any_of(sign for sign in _SIGNS if sign[0] not in "$₹" and not sign[0].isalpha())
_OTHER_DOLLAR = re.compile(
    r"(?:\b(?:A|AU|C|CA|CDN|NZ|HK|S|NT)\$|\b(?:AUD|CAD|NZD|HKD|SGD)\b)"
)  # beside "US$5"
_DOLLAR_CODE_AHEAD = re.compile(r" ?(AUD|CAD|NZD|HKD|SGD|TWD)(?!\w)")  # "$5 CAD"
_RATIO_OF_BLOOD = re.compile(r"\d(?:\.\d)?")
_EURO_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}\Z")
# "a $35 late fee", "a $25 Visa gift card": the words between a price and its noun.
_PRICED_NOUN_AHEAD = re.compile(
    rf"(?: +(?!(?:{any_of(vocabulary.WORDS_AFTER_PRICES)})\b)(?:[a-z]+(?:-[a-z]+)*|[A-Z][\w&]*)){{0,2}}"
    rf" +(?:{any_of(vocabulary.PRICED_NOUNS)})\b"
)
_PERIOD_AHEAD = re.compile(r"-an?-[a-z]{3,}")  # "$300-a-month plan"
# Also "a -$5 adjustment", "a pending $5 hold".
_ARTICLE_BEHIND = re.compile(r"\b(?:[Aa]n? (?:[a-z]{3,} )?-?|(?:[Ss]ub|[Uu]nder|[Oo]ver)-)\Z")
# "our $2M target": a noun after which the sentence goes on without a verb of its own.
_OWNER_BEHIND = re.compile(rf"\b(?i:{any_of(vocabulary.DETERMINERS - {'each', 'every'})}) \Z")
_NOUN_AHEAD = re.compile(
    rf" +(?!(?:{any_of(vocabulary.WORDS_AFTER_PRICES)}|went|paid|came|sent|left)\b)[a-z]{{2,}}(?<!ed|.s|ly)"
    r"(?=[,.;:!?)]| *\Z| (?:is|was|has|had|will|for|of|by|from|with|and|or)\b)"
)
# "with $5 drafts and half-price wings"
_SERVED_BEHIND = re.compile(
    r"\b(?i:with|enjoy|offers?|offering|featuring|includes?|including|serving|serves?|and) \Z"
)
_PLURAL_NOUN_AHEAD = re.compile(
    r" (?!(?:as|is|was|has|this|plus)\b)[a-z]{2,}s(?=[,.;:!?)]|(?: and| or| all| from| until)\b| *\Z)"
)
# "1 USD = " and "$1 is ", after which a rate follows.
_RATE_BEHIND = re.compile(
    rf"(?:(?<![\d.,])1(?:\.0+)? ?(?:{_CURRENCY_CODE}|{_TRAILING_SIGN})|(?:{_CURRENCY_SIGN})1(?:\.0+)?)"
    r" ?(?:=|≈|is|equals) \Z"
)
# "$3.40/share"; units of the vocabulary are read by the rule of rates.
_EACH_AHEAD = re.compile(r" ?/ ?([a-z]{3,})(?![\w/-])")


def _money_words(amount: str, magnitude: str | None, currency: str) -> str:
    """Return the words of an amount: "two dollars and fifty cents", "three million dollars"."""
    one, many, small_one, small_many = vocabulary.CURRENCIES[currency]
    if currency in ("€", "EUR") and _EURO_THOUSANDS.match(amount):
        amount = amount.replace(".", "")
    whole, _, fraction = plain_decimal(amount).partition(".")
    if magnitude:
        return f"{amount_words(amount)} {vocabulary.MAGNITUDES[magnitude]} {many}"
    if len(fraction) > 2 or (fraction and one == small_one):
        return f"{amount_words(amount)} {many}"
    cents = int(fraction.ljust(2, "0") or 0)
    units = int(whole or 0)
    large = f"{whole_words(amount)} {one if units == 1 else many}"
    small = f"{numbers.cardinal(cents)} {small_one if cents == 1 else small_many}"
    if cents and units:
        return f"{large} and {small}"
    return small if cents else large


def _price_words(
    scan: ScanState, match: re.Match[str], amount: str, magnitude: str | None, currency: str
) -> str:
    """Return the words of a price, or of a rate of exchange: "zero point nine two euros"."""
    if _RATE_BEHIND.search(scan.view, max(0, match.start() - 20), match.start()):
        return f"{amount_words(amount)} {vocabulary.CURRENCIES[currency][0 if is_one(amount) else 1]}"
    return _money_words(amount, magnitude, currency)


def _read_money(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "$5" as "five dollars", and in "a $5 fee" as "five dollar"; decline the "INR 1.8" of blood."""
    currency, amount, magnitude = match.group(1), match.group(2), match.group(3)
    end = match.end()
    if currency == "INR" and not magnitude and _RATIO_OF_BLOOD.fullmatch(amount):
        return None
    if (code := _DOLLAR_CODE_AHEAD.match(scan.view, end)) is not None and currency == "$":
        currency, end = code.group(1), code.end()
    words = _price_words(scan, match, amount, magnitude, currency)
    if _is_adjective(scan, match.start(), match.end()):
        words = _singular(words, currency)
    if currency in ("US$", "USD"):
        words = _us_dollars(scan, words)
    scan.emit(words, match.start(), end)
    scan.context.note_number()
    return _end_of_price(scan, scan.after_repeated(words, end))


def _end_of_price(scan: ScanState, end: int) -> int:
    """Read the "/share" of "$3.40/share", and return where the price ends."""
    each = _EACH_AHEAD.match(scan.view, end)
    if each is None or each.group(1) in vocabulary.RATE_UNITS:
        return end
    scan.emit("per", end, each.start(1))
    scan.emit(each.group(1), each.start(1), each.end())
    return each.end()


def _singular(words: str, currency: str) -> str:
    """Return the words of an amount with its units in the singular: "thirty two dollar and ten cent"."""
    one, many, small_one, small_many = vocabulary.CURRENCIES[currency]
    return re.sub(rf"\b{many}\b", one, re.sub(rf"\b{small_many}\b", small_one, words))


def _is_adjective(scan: ScanState, start: int, end: int) -> bool:
    """Whether a noun follows that costs the amount, as in "a $35 late fee"."""
    if scan.context.previous_word in ("at", "@"):  # "at $431.20 limit"
        return False
    if _PRICED_NOUN_AHEAD.match(scan.view, end) or _PERIOD_AHEAD.match(scan.view, end):
        return True
    if _ARTICLE_BEHIND.search(scan.view, 0, start):
        following = scan.next_word(end).lower()
        return bool(following) and following not in vocabulary.WORDS_AFTER_PRICES
    if _SERVED_BEHIND.search(scan.view, max(0, start - 12), start) and _PLURAL_NOUN_AHEAD.match(
        scan.view, end
    ):
        return True
    return bool(
        _OWNER_BEHIND.search(scan.view, max(0, start - 10), start) and _NOUN_AHEAD.match(scan.view, end)
    )


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
        words = _price_words(scan, match, amount, magnitude, currency)
    if currency == "USD":
        words = _us_dollars(scan, words)
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _us_dollars(scan: ScanState, words: str) -> str:
    """Return "five U S dollars" for "five dollars" where another dollar is mentioned."""
    return re.sub(r"\bdollar", "U S dollar", words) if _OTHER_DOLLAR.search(scan.view) else words


def _read_pence(scan: ScanState, match: re.Match[str]) -> int:
    """Read "53.4p" and "20p per minute"."""
    amount = match.group(1)
    scan.emit(f"{amount_words(amount)} {'penny' if is_one(amount) else 'pence'}", match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_currency_pair(scan: ScanState, match: re.Match[str]) -> int:
    """Read the currencies of "USD/EUR 0.92"."""
    first, second = (vocabulary.CURRENCIES[code][0] for code in match.groups())
    scan.emit(f"{first} to {second}", match.start(), match.end())
    note_english_word(scan.context, second)
    return match.end()


LETTER_RULES = compile_capital_rules(
    (rf"({_CURRENCY_CODE})/({_CURRENCY_CODE})(?=(?: at| is| =)? \d)", _read_currency_pair),
    (rf"({_CURRENCY_CODE}|{_LETTERED_SIGNS}) ?({_AMOUNT}){_MAGNITUDE}", _read_money),
    (rf"(Rs)\.? ?({_AMOUNT}){_MAGNITUDE}", _read_money),
)
DIGIT_RULES = compile_rules(
    (rf"({_AMOUNT}){_MAGNITUDE} ?(¢|{_TRAILING_SIGN}|(?:{_CURRENCY_CODE})(?!\w))", _read_trailing_money),
    (r"(\d{1,4}\.\d{1,2}|\d{1,3}(?=p(?:/| (?:per|an?|each)\b)))p(?!\w)", _read_pence),
)
SYMBOL_RULES = compile_rules(
    # "$5-$10"
    (
        rf"({_CURRENCY_SIGN}) ?({_AMOUNT}){_MAGNITUDE} ?[-–] ?(?:{_CURRENCY_SIGN})?"
        rf"({_AMOUNT}){_MAGNITUDE}(?![\d-])",
        _read_money_range,
    ),
    # "$5", "$.50", "$2.5B"; a "USD" after the amount is not read again
    (rf"({_CURRENCY_SIGN}) ?({_AMOUNT}|\.\d+){_MAGNITUDE}(?:(?<=\w) ?USD(?!\w))?", _read_money),
)
