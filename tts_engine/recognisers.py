"""The recognisers: what a stretch of text is, and how it is said.

An ordered list of rules, each a pattern matched where the scanner stands and a reader that says what was
matched, word by word with the characters each word stands for; a reader may decline. The first that reads
wins; what nothing recognises is a word as it stands. Text is folded (``normalize.fold``) and ends where a
cut is safe, so that no rule sees what comes after.
Source: NANP and ITU-T E.123 for the grouping of phone numbers; CommonMark 0.31 for the Markdown left-overs.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from . import vocabulary as say

CODE_WINDOW = 8  # words after "code" in which a number is read digit by digit
MORE_CODE_WINDOW = 2  # words after such a number in which another one is

# --- what is remembered from word to word ---------------------------------------------------------


@dataclass(slots=True)
class Memory:
    """What the words already read say about the next ones."""

    code_words_left: int = 0  # words for which a number is still a code
    named: bool = False  # "order", "flight": a number at once is its number
    fresh: bool = False  # the last word was the one that announced a code
    previous: str = ""  # the last word as written, lower case
    capital: bool = False  # it was capitalised, and not as the first of its sentence
    numeric: bool = False  # the last thing read was a number and nothing came after it
    after_phone: bool = False  # that number was a phone number: "x" is its extension
    after_code: bool = False  # that number was a code
    house_words_left: int = 0  # words for which "St" is a street
    line_start: bool = True
    sentence_start: bool = True

    def hear(self, word: str) -> None:
        """Note a word of running text."""
        lower = word.lower()
        self.fresh = False
        self.code_words_left = max(0, self.code_words_left - 1)
        self.house_words_left = max(0, self.house_words_left - 1)
        if lower in say.CODE_WORDS or (self.named and lower in say.NUMBER_NOUNS):
            self.code_words_left, self.fresh = CODE_WINDOW, True
        if lower in say.NUMBERED_WORDS or lower in say.NUMBER_NOUNS:
            self.named = True
        elif lower not in say.LINKING_WORDS and not (word.isupper() and len(word) < 4):
            self.named = False
        self.capital = word[:1].isupper() and not self.sentence_start
        self.previous = lower
        self.numeric = self.after_phone = self.after_code = False
        self.line_start = self.sentence_start = False

    def hear_number(self) -> None:
        """Note a number."""
        self.numeric, self.named, self.previous = True, False, "0"
        self.after_phone = self.after_code = False
        self.capital = self.line_start = self.sentence_start = False

    def end_sentence(self) -> None:
        """Forget what holds for one sentence only; "Here is your code." still announces one."""
        if not self.fresh:
            self.code_words_left = 0
        self.named = self.numeric = self.capital = False
        self.house_words_left = 0
        self.sentence_start = True


@dataclass(slots=True)
class Draft:
    text: str
    punctuation: str
    start: int
    stop: int


_WEIGHT = {mark: weight for weight, mark in enumerate(("", ",", "—", ";", ":", ".", "!", "?"))}


@dataclass(slots=True)
class Scan:
    """One piece of text being read."""

    view: str
    memory: Memory
    words: list[Draft] = field(default_factory=list)

    def say(self, words: str, start: int, stop: int) -> None:
        """Speak ``words``, all of which stand for the characters ``start`` to ``stop``."""
        self.words += [Draft(word, "", start, stop) for word in words.split()]

    def pause(self, mark: str) -> None:
        """Put ``mark`` after the last word, unless a stronger one is there."""
        if self.words and _WEIGHT[mark] > _WEIGHT[self.words[-1].punctuation]:
            self.words[-1].punctuation = mark

    def spell(self, start: int, stop: int) -> None:
        """Letters and digits of the range one by one."""
        for at in range(start, stop):
            character = self.view[at]
            if character.isdigit():
                self.say(say.DIGITS[int(character)], at, at + 1)
            elif character.isalpha():
                self.say(letter_name(character), at, at + 1)

    def spell_groups(self, start: int, stop: int, sizes: tuple[int, ...]) -> None:
        """The same with a pause after each group; ``sizes`` sum up to the length of the range."""
        for size in sizes:
            self.spell(start, start + size)
            start += size
            if start < stop:
                self.pause(",")

    def next_visible(self, at: int) -> str:
        """The next character that is no blank; "" at the end of the piece."""
        match = _VISIBLE.match(self.view, at)
        return match.group(1) if match else ""

    def next_word(self, at: int) -> str:
        """The next word, when nothing but blanks comes before it."""
        match = _NEXT_WORD.match(self.view, at)
        return match.group(1) if match else ""


def letter_name(letter: str) -> str:
    """What makes a voice say the letter's name."""
    capital = letter.upper()[:1]
    return say.LETTER_NAMES.get(capital, capital)


_VISIBLE = re.compile(r" *([^ ])")
_NEXT_WORD = re.compile(r"[ -]*([^\W\d_]+(?:\.[^\W\d_])*(?:'[^\W\d_]+)?)")
Read = Callable[[Scan, "re.Match[str]"], int | None]
Rule = tuple["re.Pattern[str]", Read]


# --- codes and phone numbers ----------------------------------------------------------------------

_GROUPS = {6: (3, 3), 7: (3, 4), 8: (4, 4), 9: (3, 3, 3), 10: (3, 3, 4), 11: (4, 4, 3), 12: (4, 4, 4)}


def _group_sizes(length: int) -> tuple[int, ...]:
    """How a run of that many digits is said so that it can be written down."""
    if length < 6:
        return (length,)
    if length in _GROUPS:
        return _GROUPS[length]
    rest = length % 4
    head = (4,) * (length // 4 - (1 if rest == 1 else 0))
    return head + ((3, 2) if rest == 1 else (rest,) if rest else ())


def _read_groups(scan: Scan, start: int, stop: int) -> None:
    """Digits and letters with separators: a pause at each, and inside long runs."""
    first = True
    for run in _RUN.finditer(scan.view, start, stop):
        if not first:
            scan.pause(",")
        first = False
        scan.spell_groups(run.start(), run.end(), _group_sizes(run.end() - run.start()))


_RUN = re.compile(r"[^\W_]+")


def _read_phone(scan: Scan, match: re.Match[str]) -> int:
    if match.group().startswith("+"):
        scan.say("plus", match.start(), match.start() + 1)
    for number, run in enumerate(_RUN.finditer(match.group())):
        start, stop = match.start() + run.start(), match.start() + run.end()
        if number:
            scan.pause(",")
        length = stop - start
        national = length == 11 and run.group().startswith("1")
        scan.spell_groups(start, stop, (1, 3, 3, 4) if national else _group_sizes(length))
    scan.memory.hear_number()
    scan.memory.after_phone = True
    return match.end()


def _read_code(scan: Scan, match: re.Match[str]) -> int:
    if scan.memory.after_code:
        scan.pause(",")
    _read_groups(scan, match.start(), match.end())
    _remember_code(scan.memory)
    return match.end()


def _remember_code(memory: Memory) -> None:
    """What follows a code at once may be more of it; later numbers are not."""
    left = min(memory.code_words_left, MORE_CODE_WINDOW)
    memory.hear_number()
    memory.code_words_left, memory.after_code = left, True


def _read_announced_code(scan: Scan, match: re.Match[str]) -> int | None:
    """A number after "code", "PIN", "order number": digit by digit, unless it counts something."""
    memory, text = scan.memory, match.group()
    runs = [run for run in re.split(r"[ -]", text) if run]
    count = sum(map(len, runs))
    if not memory.code_words_left and not (memory.named and count > 2):
        return None
    if memory.previous in say.PAIRED_WORDS and count == 3:
        return None
    following = scan.next_word(match.end()).lower()
    if len(runs) == 1 and not text.startswith("0"):
        if following in say.COUNTED or (count < 3 and _is_counted(following)):
            return None
        if not memory.code_words_left and count == 3 and text.endswith("00"):
            return None
    return _read_code(scan, match)


def _is_counted(word: str) -> bool:
    """Whether a number before ``word`` counts it: a unit, or what looks like a plural."""
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word in say.COUNTED or (plural and word.islower() and word != "does")


# --- numbers --------------------------------------------------------------------------------------

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?!\d)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.\d+)?)"


def _number_words(text: str) -> str:
    """An amount: "1,234.50" is "one thousand two hundred thirty four point five zero"."""
    whole, _, fraction = text.replace(",", "").partition(".")
    if len(whole) > 18:
        return say.digits(text)
    words = say.cardinal(int(whole)) if whole else ""
    return f"{words} point {say.digits(fraction)}".strip() if fraction else words


def _is_one(text: str) -> bool:
    return text in ("1", "1.0")


def _read_amount(scan: Scan, match: re.Match[str]) -> int:
    scan.say(_number_words(match.group()), match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_integer(scan: Scan, match: re.Match[str]) -> int:
    text, start, stop = match.group(), match.start(), match.end()
    following = scan.next_word(stop)
    if (text.startswith("0") and len(text) > 1) or _is_identifier(text):
        sizes = (1, 3, 3, 4) if len(text) == 11 and text[0] == "1" else _group_sizes(len(text))
        scan.spell_groups(start, stop, sizes)
    elif text in ("911", "988", "411", "311") and following.lower() not in say.COUNTED:
        scan.spell(start, stop)
    elif len(text) in (3, 4) and _STREET_AHEAD.match(scan.view, stop):
        scan.say(_house_words(int(text)), start, stop)
        scan.memory.house_words_left = 6
    elif len(text) == 3 and scan.memory.previous in say.PAIRED_WORDS:
        scan.say(_house_words(int(text)), start, stop)
    elif len(text) == 4 and _is_year(int(text), scan.memory.previous, following):
        scan.say(say.year(int(text)), start, stop)
    else:
        scan.say(_number_words(text), start, stop)
    house = _STREET_AHEAD.match(scan.view, stop)
    scan.memory.hear_number()
    if house:
        scan.memory.house_words_left = 6
    return stop


def _is_identifier(text: str) -> bool:
    """Five digits and more without commas are a number to write down, unless it is round."""
    return len(text) > 4 and not text.endswith("000")


_STREET_AHEAD = re.compile(
    r"(?: +(?:[NSEW]\.?|[A-Z][\w'-]*|\d+(?:st|nd|rd|th))){1,3} +(?:"
    + "|".join(sorted(say.STREET_WORDS, key=len, reverse=True))
    + r")\b",
    re.IGNORECASE,
)


def _house_words(number: int) -> str:
    if number >= 1000:
        return say.cardinal(number) if number % 1000 == 0 else say.pairs(number)
    hundreds, rest = divmod(number, 100)
    if rest == 0:
        return say.cardinal(number)
    return f"{say.cardinal(hundreds)} {'oh ' if rest < 10 else ''}{say.cardinal(rest)}"


def _is_year(number: int, previous: str, following: str) -> bool:
    if 1900 <= number <= 2099:
        return previous in say.YEAR_WORDS or not _is_counted(following)
    return 1100 <= number < 1900 and previous in say.YEAR_WORDS


def _read_percent(scan: Scan, match: re.Match[str]) -> int:
    scan.say(_number_words(match.group(1)), match.start(), match.end(1))
    scan.say("percent", match.end(1), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_degrees(scan: Scan, match: re.Match[str]) -> int:
    number, scale = match.group(1), match.group(2)
    scan.say(_number_words(number), match.start(), match.end(1))
    scale_word = {"C": "Celsius", "F": "Fahrenheit", "K": "kelvin"}.get(scale or "", "")
    scan.say(f"{'degree' if _is_one(number) else 'degrees'} {scale_word}", match.end(1), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_unit(scan: Scan, match: re.Match[str]) -> int | None:
    number, gap, unit = match.group(1), match.group(2), match.group(3)
    if gap and unit in say.TIGHT_UNITS:
        return None
    scan.say(_number_words(number), match.start(), match.end(1))
    scan.say(say.UNITS[unit][0 if _is_one(number) else 1], match.start(3), match.end(3))
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
    scan.say(_number_words(match.group(1)), match.start(), match.end(1))
    tail = _fraction_words(above, below)
    spoken = f"and {tail}" if above > 1 or below != 2 else "and a half"
    scan.say(spoken, match.start(2), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_slash(scan: Scan, match: re.Match[str]) -> int | None:
    """1/2 is a half, 5/10 five out of ten, 3/14 a date; 24/7 is said so."""
    above, below = int(match.group(1)), int(match.group(2))
    date_expected = scan.memory.previous in say.DATE_WORDS
    is_date = 1 <= above <= 12 and 1 <= below <= 31
    if match.group() in ("24/7", "9/11", "50/50"):
        words = f"{say.cardinal(above)} {say.cardinal(below)}"
    elif date_expected and is_date:
        words = f"{say.MONTHS[above - 1]} {say.ordinal(below)}"
    elif below in say.FRACTIONS and 0 < above < below:
        words = _fraction_words(above, below)
    elif below in (10, 100) and above <= below:
        words = f"{say.cardinal(above)} out of {say.cardinal(below)}"
    elif is_date:
        words = f"{say.MONTHS[above - 1]} {say.ordinal(below)}"
    else:
        words = f"{say.cardinal(above)} slash {say.cardinal(below)}"
    scan.say(words, match.start(), match.end())
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
    scan.say("version", match.start(), match.start() + 1)
    scan.memory.hear("version")
    inner = _VERSION.match(scan.view, match.start(1))
    if inner:
        return _read_version(scan, inner)
    scan.say(_number_words(match.group(1)), match.start(1), match.end(1))
    scan.memory.hear_number()
    return match.end()


def _read_magnitude(scan: Scan, match: re.Match[str]) -> int | None:
    """10k, 2.5M; but 4B after "room" is a room."""
    if scan.memory.named and match.group(3):
        return None
    scan.say(_number_words(match.group(1)), match.start(), match.end(1))
    scan.say(say.MAGNITUDES[match.group(2) or match.group(3)], match.end(1), match.end())
    scan.memory.hear_number()
    return match.end()


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


# --- money ----------------------------------------------------------------------------------------

_BIG = r"(?: ?(thousand|million|billion|trillion|bn|MM|mm|[kKMBT](?!\w))(?!\w))?"
_SIGN = r"US\$|CA\$|A\$|[$£€¥₹]"
_CODE = r"USD|EUR|GBP|CAD|AUD|JPY|CNY|INR|CHF|MXN"


def _money_words(amount: str, magnitude: str | None, currency: str) -> str:
    one, many, small_one, small_many = say.CURRENCIES[currency]
    whole, _, fraction = amount.replace(",", "").partition(".")
    if magnitude:
        return f"{_number_words(amount)} {say.MAGNITUDES[magnitude]} {many}"
    if len(fraction) > 2 or (fraction and currency in ("¥", "JPY")):
        return f"{_number_words(amount)} {many}"
    cents = int(fraction.ljust(2, "0") or 0)
    units = int(whole)
    large = f"{_number_words(whole)} {one if units == 1 else many}"
    small = f"{say.cardinal(cents)} {small_one if cents == 1 else small_many}"
    if cents and units:
        return f"{large} and {small}"
    return small if cents else large


def _read_money(scan: Scan, match: re.Match[str]) -> int:
    """$5 is five dollars, and a $5 fee a five dollar fee."""
    currency, amount, magnitude = match.group(1), match.group(2), match.group(3)
    words = _money_words(amount, magnitude, currency)
    if "." not in amount and scan.next_word(match.end()) in say.PRICED:
        words = words.removesuffix("s")
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_money_range(scan: Scan, match: re.Match[str]) -> int:
    currency, low, low_magnitude, high, magnitude = match.groups()
    low_words = _number_words(low)
    if low_magnitude:
        low_words += f" {say.MAGNITUDES[low_magnitude]}"
    scan.say(low_words, match.start(), match.end(2))
    scan.say("to", match.end(2), match.start(4))
    scan.say(_money_words(high, magnitude, currency), match.start(4), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_trailing_money(scan: Scan, match: re.Match[str]) -> int:
    amount, magnitude, currency = match.groups()
    if currency == "¢":
        words = f"{_number_words(amount)} {'cent' if _is_one(amount) else 'cents'}"
    else:
        words = _money_words(amount, magnitude, currency)
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


# --- dates and times ------------------------------------------------------------------------------


def _hour_words(hour: int, minute: int, half_day: bool) -> str:
    if minute:
        return f"{say.cardinal(hour)} {'oh ' if minute < 10 else ''}{say.cardinal(minute)}"
    if half_day:
        return say.cardinal(hour)
    return f"{say.cardinal(hour)} o'clock" if 1 <= hour <= 12 else f"{say.cardinal(hour)} hundred"


def _read_time(scan: Scan, match: re.Match[str]) -> int | None:
    hour, minute, second = int(match.group(1)), int(match.group(2)), match.group(3)
    if hour > 24 or minute > 59:
        return None
    words = _hour_words(hour, minute, bool(match.group(4) or second))
    if second:
        words += f" and {say.cardinal(int(second))} second{'' if int(second) == 1 else 's'}"
    scan.say(words, match.start(), match.end(3) if second else match.end(2))
    return _finish_time(scan, match, 4)


def _read_hour(scan: Scan, match: re.Match[str]) -> int | None:
    hour = int(match.group(1))
    if not 1 <= hour <= 12:
        return None
    scan.say(say.cardinal(hour), match.start(), match.end(1))
    return _finish_time(scan, match, 2)


def _finish_time(scan: Scan, match: re.Match[str], half_day: int) -> int:
    scan.memory.hear_number()
    letters = match.group(half_day)
    if not letters:
        return match.end()
    for at in range(match.start(half_day), match.end(half_day)):
        if scan.view[at].isalpha():
            scan.say(letter_name(scan.view[at]), at, at + 1)
    scan.words[-1].stop = match.end()
    if letters.endswith("."):
        _end_if_sentence(scan, match.end())
    return match.end()


def _end_if_sentence(scan: Scan, at: int) -> None:
    """After an abbreviation's full stop: it ends the sentence too when a capital follows, or nothing."""
    following = scan.next_visible(at)
    if not following or following.isupper() or following in "\n\"'(":
        scan.pause(".")
        scan.memory.end_sentence()


_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?|january|february|april|june|july|august|september|october|november|december)"
)
_SUFFIX = r"(?:st|nd|rd|th)"
_WEEKDAY = r"(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)"


def _month_name(written: str) -> str:
    return say.MONTH_OF.get(written.lower(), written)


def _read_month_day(scan: Scan, match: re.Match[str]) -> int | None:
    month, day, last_day, year = match.groups()
    if not 1 <= int(day) <= 31:
        return None
    scan.say(_month_name(month), match.start(1), match.end(1))
    scan.say(say.ordinal(int(day)), match.start(2), match.end(2))
    if last_day:
        scan.say(f"to {say.ordinal(int(last_day))}", match.start(3), match.end(3))
    if year:
        scan.pause(",")
        scan.say(say.year(int(year)), match.start(4), match.end(4))
    scan.memory.hear_number()
    scan.memory.numeric = not year
    return match.end()


def _read_month_year(scan: Scan, match: re.Match[str]) -> int:
    scan.say(_month_name(match.group(1)), match.start(1), match.end(1))
    scan.say(say.year(int(match.group(2))), match.start(2), match.end(2))
    scan.memory.hear_number()
    return match.end()


def _read_day_month(scan: Scan, match: re.Match[str]) -> int | None:
    day, month, year = match.groups()
    if not 1 <= int(day) <= 31:
        return None
    article = "" if scan.memory.previous == "the" else "the "
    scan.say(f"{article}{say.ordinal(int(day))} of", match.start(1), match.start(2) - 1)
    scan.say(_month_name(month), match.start(2), match.end(2))
    if year:
        scan.say(say.year(int(year)), match.start(3), match.end(3))
    scan.memory.hear_number()
    return match.end()


def _read_month(scan: Scan, match: re.Match[str]) -> int | None:
    """A month's abbreviation with its full stop, outside a date."""
    name = _month_name(match.group(1))
    scan.say(name, match.start(), match.end())
    scan.memory.hear(name)
    if match.group().endswith("."):
        _end_if_sentence(scan, match.end())
    return match.end()


def _read_weekday(scan: Scan, match: re.Match[str]) -> int:
    name = say.WEEKDAY_OF[match.group(1).lower()]
    scan.say(name, match.start(), match.end())
    scan.memory.hear(name)
    return match.end()


def _read_weekday_range(scan: Scan, match: re.Match[str]) -> int:
    scan.say(say.WEEKDAY_OF[match.group(1).lower()], match.start(1), match.end(1))
    scan.say("to", match.end(1), match.start(2))
    scan.say(say.WEEKDAY_OF[match.group(2).lower()], match.start(2), match.end(2))
    scan.memory.hear("day")
    return match.end()


def _date_words(year: int, month: int, day: int) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31 and 1000 <= year <= 2999):
        return None
    return f"{say.MONTHS[month - 1]} {say.ordinal(day)} {say.year(year)}"


def _read_iso_date(scan: Scan, match: re.Match[str]) -> int | None:
    year, month, day = (int(group) for group in match.groups())
    return _finish_date(scan, match, _date_words(year, month, day))


def _read_slash_date(scan: Scan, match: re.Match[str]) -> int | None:
    """Month first, as in the United States; the day first where only that is possible."""
    first, second, year = int(match.group(1)), int(match.group(2)), int(match.group(3))
    if len(match.group(3)) == 2:
        year += 1900 if year > 50 else 2000
    month, day = (first, second) if first <= 12 else (second, first)
    return _finish_date(scan, match, _date_words(year, month, day))


def _finish_date(scan: Scan, match: re.Match[str], words: str | None) -> int | None:
    if words is None:
        return None
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


# --- addresses of the Internet --------------------------------------------------------------------

_ADDRESS_MARKS = {
    ".": "dot",
    "@": "at",
    "-": "dash",
    "_": "underscore",
    "/": "slash",
    "+": "plus",
    ":": "colon",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "~": "tilde",
    "%": "percent",
}
_ADDRESS_PART = re.compile(r"[^\W\d_]+|\d|[^\w]|_")
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]")


def _read_address(scan: Scan, match: re.Match[str]) -> int:
    """An e-mail address or a URL, without its scheme, mark by mark."""
    scheme = re.match(r"(?:https?|ftp|mailto):(?://)?", match.group(), re.IGNORECASE)
    start = match.start() + (scheme.end() if scheme else 0)
    stop = match.start() + len(match.group().rstrip(".,;:!?'\"/*_"))
    for part in _ADDRESS_PART.finditer(scan.view, start, stop):
        _read_address_part(scan, part)
    scan.memory.hear("address")
    return max(stop, start)


def _read_address_part(scan: Scan, part: re.Match[str]) -> None:
    text = part.group()
    if text.isdigit():
        scan.spell(part.start(), part.end())
    elif text.isalpha():
        _read_label(scan, part.start(), part.end())
    elif text in _ADDRESS_MARKS:
        scan.say(_ADDRESS_MARKS[text], part.start(), part.end())


def _read_label(scan: Scan, start: int, stop: int) -> None:
    for word in _CAMEL.finditer(scan.view, start, stop):
        text = word.group()
        if _is_label_spelled(text):
            scan.spell(word.start(), word.end())
        else:
            scan.say(text.lower(), word.start(), word.end())


def _is_label_spelled(text: str) -> bool:
    lower = text.lower()
    if lower in say.SPOKEN_DOMAINS or lower in say.COMMON_WORDS:
        return len(lower) == 1
    return len(lower) < 3 or not _has_vowel(lower) or lower in ("edu", "www") or text in say.SPELLED


def _has_vowel(word: str) -> bool:
    return any(letter in "aeiouy" for letter in unicodedata.normalize("NFD", word.lower()))


# --- words ----------------------------------------------------------------------------------------

_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e4e"
_LETTER = rf"[^\W\d_][{_MARKS}]*"
_WORD = re.compile(rf"(?:{_LETTER}){{1,60}}(?:'(?:{_LETTER}){{1,60}})*")


def _read_word(scan: Scan, match: re.Match[str]) -> int:
    word = unicodedata.normalize("NFC", match.group())
    scan.say(_spoken_form(scan, word, match.end()), match.start(), match.end())
    scan.memory.hear(word)
    return match.end()


def _spoken_form(scan: Scan, word: str, end: int) -> str:
    if word == "A":
        return _letter_a(scan, end)
    lower = word.lower()
    if lower == "live" and scan.next_word(end).lower() in say.LIVE_NOUNS:
        return "lyve"
    stem = lower.removesuffix("'s")
    if stem in say.RESPELLED:
        return say.RESPELLED[stem] + lower[len(stem) :]
    return lower if word.isupper() and len(word) > 1 and word.isascii() else word


def _letter_a(scan: Scan, end: int) -> str:
    """The article, or the letter's name."""
    following = scan.next_word(end)
    announced = scan.memory.previous in say.LETTER_WORDS or scan.memory.code_words_left
    beside_letter = len(following) == 1 and following.isupper() and following != "I"
    in_list = following in ("or", "and", "is", "has", "was", "means", "stands")
    return letter_name("A") if announced or not following or beside_letter or in_list else "a"


def _read_capitals(scan: Scan, match: re.Match[str]) -> int | None:
    """Initialisms letter by letter, acronyms as words, and shouted words as words."""
    word = match.group()
    if word in say.SPOKEN_ACRONYMS:
        scan.say(say.SPOKEN_ACRONYMS[word], match.start(), match.end())
    elif _is_initialism(scan, word, match):
        scan.spell(match.start(), match.end())
    else:
        return None
    scan.memory.hear(word)
    return match.end()


def _is_initialism(scan: Scan, word: str, match: re.Match[str]) -> bool:
    if not word.isupper():
        return False
    lower = word.lower()
    if word in say.SPELLED:
        return lower not in say.COMMON_WORDS or not _is_shouted(scan, match)
    if not _has_vowel(word):
        return True
    known = lower in say.COMMON_WORDS or lower in say.CODE_WORDS or lower in say.NUMBERED_WORDS
    return len(word) < 4 and not known


def _is_shouted(scan: Scan, match: re.Match[str]) -> bool:
    """Whether the word beside it is in capitals too."""
    before = re.search(r"([^\W\d_]{2,})\W*\Z", scan.view[max(0, match.start() - 20) : match.start()])
    following = scan.next_word(match.end())
    return bool(before and before.group(1).isupper()) or (len(following) > 1 and following.isupper())


def _read_known(scan: Scan, match: re.Match[str]) -> int | None:
    """Words with capitals inside that have a reading of their own."""
    if match.group() not in say.SPOKEN_ACRONYMS:
        return None
    return _read_capitals(scan, match)


def _read_spelled(scan: Scan, match: re.Match[str]) -> int:
    scan.spell(match.start(), match.end())
    scan.memory.hear(match.group())
    return match.end()


def _read_email_word(scan: Scan, match: re.Match[str]) -> int:
    scan.say(match.group().lower().replace("-", ""), match.start(), match.end())
    scan.memory.hear("email")
    return match.end()


def _read_dotted(scan: Scan, match: re.Match[str]) -> int:
    """U.S., a.m., Ph.D.: the letters; e.g. and i.e. what they mean."""
    bare = match.group().rstrip(".")
    if bare in say.ABBREVIATIONS:
        scan.say(say.ABBREVIATIONS[bare][0], match.start(), match.end())
        scan.memory.hear(bare)
        return match.end()
    scan.spell(match.start(), match.end())
    scan.words[-1].stop = match.end()
    scan.memory.hear(bare)
    if match.group().endswith("."):
        _end_if_sentence(scan, match.end())
    return match.end()


def _read_abbreviation(scan: Scan, match: re.Match[str]) -> int | None:
    """A word with a full stop that is in the table, or a short form that needs none."""
    word, dotted = match.group(1), bool(match.group(2))
    if word in say.STREETS:
        return _read_street(scan, match, dotted)
    if word not in say.ABBREVIATIONS:
        return None
    spoken, kind = say.ABBREVIATIONS[word]
    if kind is say.Abbreviation.NUMBERED:
        return _read_numbered(scan, match, spoken, dotted)
    is_title = kind is say.Abbreviation.TITLE and scan.next_visible(match.end(1)).isupper()
    if not dotted and not is_title and word not in ("vs", "approx", "etc", "dept", "appt"):
        return None
    scan.say(spoken, match.start(), match.end())
    scan.memory.hear(word)
    if dotted and kind is say.Abbreviation.ENDING:
        _end_if_sentence(scan, match.end())
    elif dotted and not scan.next_visible(match.end()):
        scan.pause(".")
    return match.end()


_DOTLESS_NUMBERED = frozenset(
    {"ext", "Ext", "EXT", "Apt", "apt", "Ste", "Rm", "pp", "Acct", "acct", "Ref", "ref"}
)
_WORDS_TOO = frozenset({"No", "no", "Art", "Sec", "Fl", "Fig", "fig", "p", "x", "ch", "Ch", "Vol"})


def _read_numbered(scan: Scan, match: re.Match[str], spoken: str, dotted: bool) -> int | None:
    word = match.group(1)
    following = _NUMBER_AHEAD.match(scan.view, match.end())
    if word == "x" and not (scan.memory.after_phone and following):
        return None
    if not following and (word in _WORDS_TOO or not dotted):
        return None
    if not dotted and word not in _DOTLESS_NUMBERED and word != "x":
        return None
    scan.say(spoken, match.start(), match.end())
    scan.memory.hear(spoken)
    return match.end()


_NUMBER_AHEAD = re.compile(r" ?#? ?(?:\d|[A-Z](?!\w))")


def _read_street(scan: Scan, match: re.Match[str], dotted: bool) -> int | None:
    """St. and Dr. are Saint and Doctor before a name, Street and Drive after one."""
    word = match.group(1)
    following = scan.next_visible(match.end())
    after_name = scan.memory.capital or scan.memory.house_words_left > 0
    if word in ("St", "Dr") and following.isupper() and not after_name:
        scan.say(say.ABBREVIATIONS[word][0], match.start(), match.end())
        scan.memory.hear("saint")
        return match.end()
    if not (dotted or after_name):
        return None
    scan.say(say.STREETS[word], match.start(), match.end())
    scan.memory.hear("street")
    scan.memory.house_words_left, scan.memory.capital = 0, False
    if dotted:
        _end_if_sentence(scan, match.end())
    return match.end()


def _read_by(scan: Scan, match: re.Match[str]) -> int | None:
    """30 cm x 20 cm."""
    if scan.memory.after_phone or not scan.memory.numeric:
        return None
    scan.say("by", match.start(), match.end())
    scan.memory.hear("by")
    return match.end()


def _read_by_number(scan: Scan, match: re.Match[str]) -> int:
    scan.say(_number_words(match.group(1)), match.start(), match.end(1))
    scan.say("by", match.end(1), match.end())
    scan.memory.hear("by")
    return match.end()


def _read_with(scan: Scan, match: re.Match[str]) -> int:
    word = {"w/": "with", "w/o": "without", "c/o": "care of"}[match.group()]
    scan.say(word, match.start(), match.end())
    scan.memory.hear(word)
    return match.end()


def _read_state(scan: Scan, match: re.Match[str]) -> int | None:
    """A state's letters before a ZIP code, or after a name where they are no word or initialism too."""
    name = say.STATES.get(match.group())
    before_zip = _ZIP_AHEAD.match(scan.view, match.end())
    if name is None or not (before_zip or (scan.memory.capital and match.group() in say.CLEAR_STATES)):
        return None
    scan.say(name, match.start(), match.end())
    scan.memory.hear("zip" if before_zip else name)
    return match.end()


_ZIP_AHEAD = re.compile(r" \d{5}(?!\d)")


def _read_initial(scan: Scan, match: re.Match[str]) -> int | None:
    """J. K. Rowling: no pause after an initial."""
    if scan.memory.previous in say.LETTER_WORDS or match.group(1) == "I":
        return None
    scan.say(match.group(1), match.start(), match.end())
    scan.memory.hear(match.group(1))
    return match.end()


def _read_roman(scan: Scan, match: re.Match[str]) -> int | None:
    previous = scan.memory.previous
    if previous in say.NUMERAL_WORDS:
        words = say.cardinal(say.roman(match.group()))
    elif previous in say.RULER_NAMES and (scan.memory.capital or len(match.group()) > 1):
        words = f"the {say.ordinal(say.roman(match.group()))}"
    else:
        return None
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_ampersand(scan: Scan, match: re.Match[str]) -> int:
    for at in range(match.start(), match.end()):
        if scan.view[at] == "&":
            scan.say("and", at, at + 1)
        else:
            scan.spell(at, at + 1)
    scan.memory.hear(match.group())
    return match.end()


def _read_mixed(scan: Scan, match: re.Match[str]) -> int | None:
    """Letters with digits: a code letter by letter, a name such as MP3 or Covid-19 as people say it."""
    text = match.group()
    if not any(map(str.isdigit, text)) or not any(map(str.isalpha, text)):
        return None
    runs = list(_CODE_RUN.finditer(scan.view, match.start(), match.end()))
    as_code = _is_code(scan, text, len(runs))
    if as_code and scan.memory.after_code:
        scan.pause(",")
    size = 0
    for number, run in enumerate(runs):
        separated = number > 0 and runs[number - 1].end() < run.start()
        if as_code and (separated or size >= 4 or size + len(run.group()) > 6):
            scan.pause(",")
            size = 0
        size += len(run.group())
        _read_code_run(scan, run, as_code)
    if as_code:
        _remember_code(scan.memory)
    else:
        scan.memory.hear_number()
    scan.memory.numeric = False
    return match.end()


_CODE_RUN = re.compile(r"[^\W\d_]+|\d+")


def _is_code(scan: Scan, text: str, runs: int) -> bool:
    if scan.memory.code_words_left or (scan.memory.named and len(text) > 3):
        return True
    return runs > 3 or sum(map(str.isdigit, text)) > 3 or (runs > 2 and "-" in text)


def _read_code_run(scan: Scan, run: re.Match[str], as_code: bool) -> None:
    text = run.group()
    if text.isdigit():
        if as_code or len(text) > 2 or text.startswith("0"):
            scan.spell_groups(run.start(), run.end(), _group_sizes(len(text)))
        else:
            scan.say(say.cardinal(int(text)), run.start(), run.end())
    elif _is_run_spelled(text, as_code):
        scan.spell(run.start(), run.end())
    else:
        scan.say(text if text[1:].islower() else text.lower(), run.start(), run.end())


def _is_run_spelled(text: str, as_code: bool) -> bool:
    lower = text.lower()
    if len(text) > 3 and (lower in say.NUMBERED_WORDS or lower in say.CODE_WORDS):
        return False
    if as_code or len(text) < 3:
        return True
    return not _has_vowel(text) or (text.isupper() and len(text) < 4)


# --- symbols and Markdown -------------------------------------------------------------------------


def _skip(scan: Scan, match: re.Match[str]) -> int:
    return match.end()


def _read_list_number(scan: Scan, match: re.Match[str]) -> int | None:
    if not scan.memory.line_start:
        return None
    scan.say(_number_words(match.group(1)), match.start(1), match.end(1))
    scan.pause(",")
    scan.memory.hear_number()
    scan.memory.sentence_start = True
    return match.end()


def _at_line_start(scan: Scan, match: re.Match[str]) -> int | None:
    return match.end() if scan.memory.line_start else None


def _read_hash(scan: Scan, match: re.Match[str]) -> int:
    chunk = match.group(1)
    is_number = chunk[0].isdigit() or (chunk.isupper() and any(map(str.isdigit, chunk)))
    word = "number" if is_number or scan.memory.named else "hashtag"
    if not (word == "number" and scan.memory.previous in say.NUMBER_NOUNS):
        scan.say(word, match.start(), match.start() + 1)
    if word == "number":
        scan.memory.named = True
        scan.memory.hear("#")
    return match.start() + 1


def _read_rate(scan: Scan, match: re.Match[str]) -> int | None:
    unit = say.RATES[match.group(1)]
    scan.say("per", match.start(), match.start() + 1)
    scan.say(unit, match.start(1), match.end(1))
    scan.memory.hear(unit)
    return match.end()


def _read_symbol(scan: Scan, match: re.Match[str]) -> int:
    word = say.SYMBOLS[match.group()]
    scan.say(word, match.start(), match.end())
    scan.memory.hear(word)
    return match.end()


def _read_and(scan: Scan, match: re.Match[str]) -> int:
    scan.say("and", match.start(), match.end())
    scan.memory.hear("and")
    return match.end()


def _read_comparison(scan: Scan, match: re.Match[str]) -> int:
    words = {"<": "less than", ">": "more than", "~": "about", "*": "times"}[match.group(1)]
    scan.say(words, match.start(1), match.end(1))
    scan.memory.hear(words)
    return match.end()


def _read_power(scan: Scan, match: re.Match[str]) -> int:
    power = int(match.group(1))
    words = {2: "squared", 3: "cubed"}.get(power, f"to the power of {say.cardinal(power)}")
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_heart(scan: Scan, match: re.Match[str]) -> int | None:
    return None if scan.memory.numeric else match.end()


def _read_plus_plus(scan: Scan, match: re.Match[str]) -> int:
    for at in range(match.start(), match.end()):
        scan.say("plus", at, at + 1)
    return match.end()


def _read_pause(scan: Scan, match: re.Match[str]) -> int:
    mark = match.group()[0]
    scan.memory.numeric = scan.memory.numeric and mark == ")"
    scan.pause("," if mark in "()|" else "—" if mark in "—–-" else mark)
    if mark in "!?":
        scan.memory.end_sentence()
    elif mark == ":" and scan.memory.code_words_left:
        scan.memory.fresh = True
    return match.end()


def _read_stop(scan: Scan, match: re.Match[str]) -> int:
    trailing_off = len(match.group()) > 1
    scan.pause("," if trailing_off else ".")
    if not trailing_off:
        scan.memory.end_sentence()
    scan.memory.line_start = False
    return match.end()


def _read_newline(scan: Scan, match: re.Match[str]) -> int:
    if scan.words and scan.words[-1].punctuation in ("", ",", "—"):
        scan.pause(".")
    scan.memory.end_sentence()
    scan.memory.line_start = True
    return match.end()


# --- the rules, in order --------------------------------------------------------------------------

_DOMAIN = rf"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{{0,62}}[A-Za-z0-9])?\.){{1,8}}(?:{say.TOP_DOMAINS})"
_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,5}){2,5}(?![\w]|\.\d)")
_HALF_DAY = r"[AaPp]\.[Mm]\.?|[AaPp]\.?[Mm](?!\w)"
_UNIT = "|".join(re.escape(unit) for unit in sorted(say.UNITS, key=len, reverse=True))
_RATE = "|".join(sorted(say.RATES, key=len, reverse=True))


def _rules(*rules: tuple[str, Read]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), read) for pattern, read in rules)


_ADDRESS_RULES = _rules(
    (r"(?:https?|ftp)://[^\s<>()\[\]\"]{1,300}", _read_address),
    (
        r"(?:mailto:)?[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?!\w)",
        _read_address,
    ),
    (
        rf"(?:www\.[^\s<>()\[\]\"]{{1,200}}|{_DOMAIN}(?![\w-]|\.\w)(?:[:/?#][^\s<>()\[\]\"]{{0,200}})?)",
        _read_address,
    ),
)
_LETTER_RULES = _rules(
    (rf"({_CODE}|US\$|CA\$|A\$) ?({_DECIMAL}){_BIG}", _read_money),
    (
        rf"({_MONTH})\.? +(\d{{1,2}}){_SUFFIX}?(?: ?[-–] ?(\d{{1,2}}){_SUFFIX}?)?(?![\d%]|[:.,]\d|/)"
        r"(?:,? +([12]\d{3})(?![\w-]))?",
        _read_month_day,
    ),
    (rf"({_MONTH})\.?,? +([12]\d{{3}})(?![\w,-])", _read_month_year),
    (r"(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\.(?=\s|$|,)", _read_month),
    (r"(Sept)(?:\.|(?!\w))", _read_month),
    (rf"({_WEEKDAY})\.? ?[-–] ?({_WEEKDAY})(?!\w)", _read_weekday_range),
    (rf"({_WEEKDAY})(?:\.(?=\s|$|,)|(?=,? +(?:{_MONTH}|\d)(?!\w*[a-z]{{9}})))", _read_weekday),
    (r"(?:[^\W\d_]\.){1,8}[^\W\d_](?:\.|(?!\w))|Ph\.?D\.?(?!\w)", _read_dotted),
    (r"([A-Z])\.(?= [A-Z])", _read_initial),
    (r"([A-Za-z]{1,6})(\.?)(?!\w)(?!'\w)", _read_abbreviation),
    (r"(x)()(?=\d)", _read_abbreviation),
    (r"x(?= ?\d)", _read_by),
    (r"w/o(?!\w)|w/(?!\w)|c/o(?!\w)", _read_with),
    (r"[A-Z]{2}(?![\w'])", _read_state),
    (r"[vV]\.? ?(\d+(?:\.\d+)*)(?!\w)", _read_v_version),
    (r"[A-Z]{1,3}&[A-Z]{1,3}(?!\w)", _read_ampersand),
    (r"[Ee]-mail(?:s|ed|ing)?(?!\w)", _read_email_word),
    (r"(?=\w*[\d-])[^\W_]{1,40}(?:-[^\W_]{1,40}){0,9}(?![\w'])", _read_mixed),
    (r"[IVXLC]{1,6}(?![\w'])", _read_roman),
    (r"Rx(?!\w)", _read_spelled),
    (r"(?:JPEG|JPG|SaaS|VoIP|Ok|ok|PayPal)(?!\w)", _read_known),
    (r"[A-Z]{2,12}(?![^\W_]|'[A-Z])", _read_capitals),
)
_DIGIT_RULES = _rules(
    (r"1[-. ]?\(\d{3}\)[-. ]?\d{3}[-. ]\d{4}(?!\w|-\d)", _read_phone),
    (r"(?:1[-. ])?\d{3}[-. ]\d{3}[-. ]\d{4}(?!\w|-\d)", _read_phone),
    (r"\d{4}([ -])\d{4}\1\d{4}(?:\1\d{1,4})?(?!\w|-\d)", _read_code),
    (r"\d{3}-\d{2}-\d{4}(?!\w|-\d)", _read_code),
    (r"([12]\d{3})-(\d{1,2})-(\d{1,2})(?![\w-])", _read_iso_date),
    (r"(\d{1,2})[/-](\d{1,2})[/-](\d{4}|\d{2})(?![\w/-])", _read_slash_date),
    (rf"(\d{{1,2}}):(\d{{2}})(?::(\d{{2}}))?(?!\d)(?: ?({_HALF_DAY}))?", _read_time),
    (rf"(\d{{1,2}})(?<!\d\d\d) ?({_HALF_DAY})", _read_hour),
    (
        rf"(\d{{1,2}})(?:{_SUFFIX})? +(?:of +)?({_MONTH})\.?(?![\w])(?:,? +([12]\d{{3}})(?!\w))?",
        _read_day_month,
    ),
    (r"\d{3}-\d{4}(?!\w|-\d)", _read_phone),
    (r"0\d{2,4}(?: \d{3,4}){2,3}(?![\w-])|0\d{4} \d{5,6}(?![\w-])", _read_phone),
    (r"(\d{2,5})x(?=\d{2,5}(?!\w))", _read_by_number),
    (r"\d+(?:-\d+){2,}(?![\w-])", _read_code),
    (r"\d{5}-\d{4}(?!\w)", _read_code),
    (r"(\d{1,3}) +(\d{1,2})/(\d{1,2})(?![\w/])", _read_mixed_fraction),
    (r"(\d{1,2})/(\d{1,3})(?![\w/])", _read_slash),
    (r"(\d)'(\d{1,2})(?:\"|'')", _read_feet),
    (rf"({_DECIMAL}){_BIG} ?(¢|€|£|(?:{_CODE})(?!\w))", _read_trailing_money),
    (rf"({_DECIMAL}) ?%", _read_percent),
    (rf"({_DECIMAL}) ?° ?([CFK])?(?!\w)", _read_degrees),
    (r"\d{1,5}(?:\.\d{1,5}){2,5}(?!\w|\.\d)", _read_version),
    (r"(\d{0,3}0)'?s(?!\w)", _read_decade),
    (rf"({_DECIMAL})( ?)({_UNIT})(?![\w/'])", _read_unit),
    (rf"({_DECIMAL})(?: (thousand|million|billion|trillion)|([kKMB]|bn))(?!\w)", _read_magnitude),
    (rf"(\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}}){_SUFFIX}(?!\w)", _read_ordinal),
    (r"\d{2,}(?:[ -]\d{2,})*(?![\w/%°]|[-,.:]\w)", _read_announced_code),
    (r"[^\W_]{1,40}(?:-[^\W_]{1,40}){0,9}(?![\w'])", _read_mixed),
    (r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.\d+", _read_amount),
    (r"\d{1,300}", _read_integer),
)
_LINE_RULES = _rules(
    (r"(?:[-*_=~] ?){3,}(?=\n|$)", _at_line_start),
    (r"\|?[ :|-]*-{2,}[ :|-]*(?=\n|$)", _at_line_start),
    (r"```[\w+-]*(?=\n|$)|~~~[\w+-]*(?=\n|$)", _at_line_start),
    (r"#{1,6} +", _at_line_start),
    (r"[-*+•>] +", _at_line_start),
    (r"(\d{1,3})[.)] +(?=\S)", _read_list_number),
)
_SYMBOL_RULES = _rules(
    (r"\n", _read_newline),
    (r"\+\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){1,7}(?!\w)", _read_phone),
    (r"\(\d{3}\)[-. ]?\d{3}[-. ]?\d{4}(?!\w|-\d)", _read_phone),
    (rf"({_SIGN}) ?({_DECIMAL}){_BIG} ?[-–] ?\$?({_DECIMAL}){_BIG}(?![\d-])", _read_money_range),
    (rf"({_SIGN}) ?({_DECIMAL}){_BIG}", _read_money),
    (r" ?[-–] ?(?=[$£€]?\d)", _read_range),
    (r"-(?= ?[$£€]?\.?\d)", _read_minus),
    (r"\.\d+(?!\w)", _read_amount),
    (r"'(\d0)s(?!\w)", _read_decade),
    (r"!?\[(?=[^\[\]\n]{0,200}\]\()", _skip),
    (r"\]\((?:[^()\s]|\([^()\s]{0,60}\)){0,300}\)", _skip),
    (r"</?[A-Za-z][^<>\n]{0,60}>", _skip),
    (r"&(?:nbsp|lt|gt|quot|#39);", _skip),
    (r"&(?:amp;)?", _read_and),
    (r"[:;=]['-]?[)(DPpO|](?![\w])", _skip),
    (r"#(\w{1,40})", _read_hash),
    (rf"/ ?({_RATE})(?!\w)", _read_rate),
    (r"\^(\d{1,3})(?!\d)", _read_power),
    (r" ?<3(?![\w.])", _read_heart),
    (r"\+\+", _read_plus_plus),
    (r" ?([<>~*]) ?(?=[$£€]?\d)", _read_comparison),
    (r"\.+", _read_stop),
    (r"--+|—+", _read_pause),
    (r"[-–](?= )", _read_pause),
    (r"[,;:!?()|]", _read_pause),
    (r"[@+=%±×÷≈≤≥→§°¢$£€¥₹]", _read_symbol),
)


_SYMBOLS_AFTER_BLANK = tuple("-–<>~*")


def _read_at(scan: Scan, at: int) -> int:
    """Read what stands at ``at``; the position after it."""
    character = scan.view[at]
    if character == " " and scan.view[at + 1 : at + 2] not in _SYMBOLS_AFTER_BLANK:
        return at + 1
    if scan.memory.line_start:
        end = _try(scan, _LINE_RULES, at)
        if end is not None:
            return end
    if character.isalpha():
        rules: tuple[tuple[Rule, ...], ...] = (_ADDRESS_RULES, _LETTER_RULES)
    elif character.isdigit():
        rules = (_ADDRESS_RULES, _DIGIT_RULES)
    else:
        rules = (_SYMBOL_RULES,)
    for group in rules:
        end = _try(scan, group, at)
        if end is not None:
            return end
    word = _WORD.match(scan.view, at)
    if word:
        return _read_word(scan, word)
    return at + 1


def _try(scan: Scan, rules: tuple[Rule, ...], at: int) -> int | None:
    for pattern, read in rules:
        match = pattern.match(scan.view, at)
        if match and match.end() > at:
            end = read(scan, match)
            if end is not None:
                return end
    return None


def read(scan: Scan, limit: int) -> int:
    """Read up to ``limit``; where the last thing read ends."""
    return _read_from(scan, 0, limit)


def _read_from(scan: Scan, at: int, limit: int) -> int:
    while at < limit:
        at = _read_at(scan, at)
    return at


def read_settled(scan: Scan, limit: int) -> int:
    """Read what no later text can change: up to the last blank before ``limit`` that is not inside a reading.

    Returns where to cut; the words after it are dropped again. Without such a place all is read.
    """
    at, cut, kept, memory = 0, 0, 0, replace(scan.memory)
    while at < limit:
        at = _read_at(scan, at)
        if at <= limit and scan.view[at : at + 1] == " " and len(scan.words) > kept:
            cut, kept, memory = at, len(scan.words), replace(scan.memory)
    if not cut:
        return _read_from(scan, at, len(scan.view))
    del scan.words[kept:]
    scan.memory = memory
    return cut
