"""Number words of American English.

The package inflect gives the same words, and a test compares them, but its import takes 1.5 s and 27 MB. The
number words of other languages are in ``kit/number_formatter.py``. Amounts are also understood as
other countries write them: "1.250,00", "1'250.00" and, in lakhs and crores, "1,50,000".
"""

import re

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen")
_ONES = (*DIGITS, *_TEENS, "nineteen")
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion")
_IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
FRACTIONS = {
    2: "half",
    3: "third",
    4: "quarter",
    5: "fifth",
    6: "sixth",
    7: "seventh",
    8: "eighth",
    9: "ninth",
}  # by denominator
_MAX_CARDINAL_DIGITS = 18
INDIAN_GROUPS = r"(?<![\w,])\d{1,2}(?:,\d\d)+,\d{3}"
_INDIAN_GROUPS = re.compile(INDIAN_GROUPS)
_INDIAN_SCALES = ((10**7, "crore"), (10**5, "lakh"))
# Commas between groups and a full stop before the fraction, or full stops and a comma.
_INTEGER = rf"(?:\d{{1,3}}(?:,\d{{3}})+|{INDIAN_GROUPS}|\d+)(?!\d)"
DECIMAL = rf"(?:\d{{1,3}}(?:\.\d{{3}})+,\d+|{_INTEGER}(?:\.\d+)?)"
_DECIMAL_COMMA = re.compile(r",(?=\d{1,2}\Z)")


def digits(text: str) -> str:
    """Return the digits of ``text`` one by one: "zero four one seven" for "0417"."""
    return " ".join(DIGITS[int(character)] for character in text if character.isdigit())


def amount_words(text: str) -> str:
    """Return the words of an amount: "one thousand two hundred point five" for "1,200.5".

    An amount of more than 18 digits is read digit by digit, one of Indian groups in lakhs and crores.
    """
    whole, _, fraction = plain_decimal(text).partition(".")
    if len(whole) > _MAX_CARDINAL_DIGITS:
        return digits(text)
    words = whole_words(text) if whole else ""
    return f"{words} point {digits(fraction)}".strip() if fraction else words


def whole_words(amount: str) -> str:
    """Return the words of ``amount`` without its fraction; "" counts as zero."""
    whole = plain_decimal(amount).partition(".")[0]
    if len(whole) > _MAX_CARDINAL_DIGITS:
        return digits(whole)
    return (_indian_cardinal if _INDIAN_GROUPS.match(amount) else cardinal)(int(whole or 0))


def plain_decimal(amount: str) -> str:
    """Return ``amount`` without marks between groups: "1250.00" for "1,250.00", "1.250,00" and "1'250.00"."""
    bare = re.sub("[ ']", "", amount)
    stop, comma = bare.rfind("."), bare.rfind(",")
    if comma > stop >= 0 or (stop < 0 and _DECIMAL_COMMA.search(bare)):
        return bare.replace(".", "").replace(",", ".")
    return bare.replace(",", "") if bare.count(".") < 2 else bare.replace(".", "")


def is_one(amount: str) -> bool:
    """Whether a noun after ``amount`` is in the singular."""
    return amount in ("1", "1.0")


def _below_thousand(number: int) -> list[str]:
    words = [] if number < 100 else [_ONES[number // 100], "hundred"]
    rest = number % 100
    if rest >= 20:
        words.append(_TENS[rest // 10])
        rest %= 10
    if rest:
        words.append(_ONES[rest])
    return words


def cardinal(number: int) -> str:
    """Return the words of a number from 0 to 10**18 - 1, without "and", commas and hyphens."""
    if number == 0:
        return "zero"
    words: list[str] = []
    for power in reversed(range(len(_SCALES))):
        group = number // 1000**power % 1000
        if group:
            words += [*_below_thousand(group), _SCALES[power]]
    return " ".join(filter(None, words))


def _indian_cardinal(number: int) -> str:
    words: list[str] = []
    for scale, name in _INDIAN_SCALES:
        count, number = divmod(number, scale)
        if count:
            words += [cardinal(count), name]
    return " ".join([*words, cardinal(number)] if number or not words else words)


def ordinal(number: int) -> str:
    """Return the ordinal of a number: "twenty first" for 21."""
    head, _, last = cardinal(number).rpartition(" ")
    if last in _IRREGULAR_ORDINALS:
        last = _IRREGULAR_ORDINALS[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return f"{head} {last}".strip()


def year(number: int) -> str:
    """Return a year from 1000 to 9999: "nineteen oh five", "two thousand five", "twenty twenty six"."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(number)
    return _in_two_halves(number)


def short_year(number: int) -> str:
    """Return a year written with two digits: "oh five", "twenty five"."""
    return f"{'oh ' if number < 10 else ''}{cardinal(number)}" if number else "two thousand"


def _in_two_halves(number: int) -> str:
    """Return a four-digit number in two halves: "fifteen hundred", "fifteen oh six", "fifteen sixty"."""
    century, rest = divmod(number, 100)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def house_number(number: int) -> str:
    """Return a number of up to 4 digits as a house, route or model: "two twenty one", "sixteen hundred"."""
    if number < 100:
        return cardinal(number)
    if number >= 1000:
        return cardinal(number) if number % 1000 == 0 else _in_two_halves(number)
    hundreds, rest = divmod(number, 100)
    if rest == 0:
        return cardinal(number)
    return f"{cardinal(hundreds)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def plural(word: str) -> str:
    """Return the plural of a number or calendar word."""
    if word.endswith("y") and word[-2] not in "aeo":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("x", "s")) else "s")
