"""Number words of American English, and the value of a Roman numeral.

They are built here: `inflect` gives the same ones (a test compares them) but costs 1.5 s and 27 MB at import,
which a phone call would wait for. Other languages are ``numerals``'s.
"""

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
}


def digits(text: str) -> str:
    """The digits of ``text`` one by one: "0417" is "zero four one seven"."""
    return " ".join(DIGITS[int(character)] for character in text if character.isdigit())


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
    """Number words without "and", commas and hyphens, from 0 to 10**18 - 1."""
    if number == 0:
        return "zero"
    words: list[str] = []
    for power in reversed(range(len(_SCALES))):
        group = number // 1000**power % 1000
        if group:
            words += [*_below_thousand(group), _SCALES[power]]
    return " ".join(filter(None, words))


def ordinal(number: int) -> str:
    """ "twenty first" for 21."""
    head, _, last = cardinal(number).rpartition(" ")
    if last in _IRREGULAR_ORDINALS:
        last = _IRREGULAR_ORDINALS[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return f"{head} {last}".strip()


def year(number: int) -> str:
    """ "nineteen oh five", "two thousand five", "twenty twenty six"; for 1000 to 9999."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(number)
    return in_two_halves(number)


def in_two_halves(number: int) -> str:
    """A four-digit number in two halves: "fifteen hundred", "fifteen oh six", "fifteen sixty"."""
    century, rest = divmod(number, 100)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def house_number(number: int) -> str:
    """ "two twenty one", "one oh one", "sixteen hundred", of 3 or 4 digits; routes and models too."""
    if number >= 1000:
        return cardinal(number) if number % 1000 == 0 else in_two_halves(number)
    hundreds, rest = divmod(number, 100)
    if rest == 0:
        return cardinal(number)
    return f"{cardinal(hundreds)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def plural(word: str) -> str:
    """The plural of the number and calendar words that occur here."""
    if word.endswith("y") and word[-2] not in "aeo":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("x", "s")) else "s")


_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def roman_value(numeral: str) -> int:
    """The value of a well-formed Roman numeral of I, V, X, L and C."""
    values = [_ROMAN[letter] for letter in numeral]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))
