"""Rules of numbers that tell how much: integers, decimals, fractions, units, versions, ranges.

American English: no "and" inside numbers, and the month first where a fraction is a date.
"""

import re

from ....kit.patterns import PatternBehind
from ....kit.tokenizer import ScanState, any_of, compile_rules, end_sentence_if_capital_follows
from .. import vocabulary
from ..codes import is_counted
from ..dates import MONTH, ORDINAL_SUFFIX, WEEKDAY
from ..spelling import ENGLISH_SPELLER, phone_group_sizes
from ..word_context import note_english_word, read_as
from . import number_words as numbers
from .number_words import DECIMAL, amount_words

_STREET_WORD_WINDOW = 6  # words after a house number in which "St" is a street
STREET_AHEAD = re.compile(
    r"(?: +(?-i:Broadway|Bowery|(?:Rue|Via|Calle|Avenida|Rua|Camino|Paseo|Piazza) [A-Z]))"
    r"|(?: +(?:[NSEW]\.?|St\.|Mt\.|Ft\.|[A-Z][\w'-]*|\d+(?:st|nd|rd|th))){1,3} +(?:"
    + any_of(vocabulary.STREET_WORDS)
    + r")\b",
    re.IGNORECASE,
)
_WORD_OF_TIME = any_of(vocabulary.WORDS_OF_TIME)
_VERSION_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_IDIOMATIC_NUMBER = any_of(vocabulary.IDIOMATIC_NUMBERS)
_TO_YEAR = r"(?: ?[-–] ?| to | until | through )"
_YEAR_AHEAD = re.compile(rf"{_TO_YEAR}((?:1[1-9]|20)\d\d)(?![\w%°/:-]|[.,]\d)")
_YEAR_BEHIND = re.compile(rf"(?<![\d.,$£€])((?:1[1-9]|20)\d\d){_TO_YEAR}\Z")
_HTTP_STATUSES = frozenset(
    "201 202 204 206 301 302 303 304 307 308 401 402 403 404 405 406 408 409 410 412 413 415 422 423 425 429 "
    "451 501 502 503 504 507".split()
)
_REPLIES = frozenset(
    ("again", "bad", "gateway", "not", "page", "response", "status", "unauthorized", "forbidden")
)
_STATUS_BEHIND = PatternBehind(
    r"\b(?:(?:return(?:ed|s|ing)?|(?:respond|answer|fail)(?:ed|s)? with|answer(?:ed|s)?|status|threw|throws?"
    r"|HTTP(?:/[123](?:\.\d)?)?)(?: an?)?|(?:got|gets?|gives?|gave|saw|sees?|hits?|receiv(?:ed|es?)) an?)"
    r"(?: HTTP)? \Z|→ \Z|\b(?:WARN(?:ING)?|ERROR)\b[^.;!?]{0,30} \Z",
    re.IGNORECASE,
)
# "chmod 755", "kill -9 4312", "errno 111", "sshd[811]", "ssh -p 2222"
_TYPED_BEHIND = PatternBehind(
    r"\b(?:chmod|umask)(?: -\w{1,5}){0,3} \Z|\bp?kill(?:all)?(?: -\w{1,8}){0,2} \Z|[a-z]\[\Z"
    r"|(?:\A|[ `])(?:-p|--port|--pid)[ =]\Z"
)
_BILL_BEHIND = PatternBehind(r"\b(?:H\.?B|S\.?B|A\.?B|H\.?R|NGC)\.? \Z")
_COUNT_BEHIND = re.compile(r"\d [a-z]{3,12} \Z")
_MAX_HOUR = 24
_LINES_AHEAD = re.compile(r" ?[-–] ?\d{1,3}(?![\d:])")
# "Python ≥"
_VERSION_AT_LEAST_BEHIND = PatternBehind(
    rf"\b(?:{any_of(vocabulary.WORDS_BEFORE_VERSIONS)}) ?[<>=≥≤~^!]{{1,2}} ?\Z", re.IGNORECASE
)
_LINE_WORDS = frozenset(("line", "lines", "ln"))  # of a program
_MIN_TYPED = 3  # digits
# "hit the limit (429)"
_BRACKETED_STATUS = re.compile(
    r"\b(?:error|limit|failed|failing|timeout|denied|rejected|throttled|blocked)[^.;!?]{0,12}\([45]\d\d\)"
)
_VERSION_BEHIND = re.compile(r"(?<![\d.])\d{1,4}\.\d{1,3}\.\d{1,3}\Z")
_ADDED_BEHIND = PatternBehind(r"(?<![\w+])\+\d{1,3}(?:,?\d{3}){0,3}(?:\.\d{1,4})?%? \Z")
# "4K@60Hz", "4K, 60fps", "144Hz, 4K"
_PICTURE_AHEAD = re.compile(r"@|/\d{2,3}(?!\d)|,? (?:at )?\d{2,3} ?(?:fps|FPS|Hz|hz)\b|,? HDR")
_PICTURE_BEHIND = re.compile(r"(?:\d ?(?:fps|FPS|Hz|hz)|\d{3,4}p|HDR),? (?:at |or )?\Z")
_CODE_BEHIND = re.compile(r"\b[A-Z]{1,3}-?\d{0,3}[A-Z]? ?\Z")


def _read_amount(scan: ScanState, match: re.Match[str]) -> int:
    previous = scan.context.previous_word
    is_go = previous == "go" and scan.context.previous_capitalized  # the language
    is_version = previous in vocabulary.WORDS_BEFORE_VERSIONS or is_go
    is_version = is_version or _VERSION_AT_LEAST_BEHIND.search(scan.view, match.start()) is not None
    if is_version and "," not in match.group():
        return ENGLISH_SPELLER.read_version(scan, match)
    whole, _, fraction = match.group().partition(".")
    if previous in vocabulary.REGULATORS and len(whole) == 4 and fraction:
        words = f"{numbers.house_number(int(whole))} point {numbers.digits(fraction)}"
    else:
        words = amount_words(match.group())
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_integer(scan: ScanState, match: re.Match[str]) -> int:
    text, start, stop = match.group(), match.start(), match.end()
    following = scan.next_word(stop)
    street_follows = STREET_AHEAD.match(scan.view, stop)
    if (text.startswith("0") and len(text) > 1) or _is_written_down(text) or _is_train(scan, text):
        ENGLISH_SPELLER.spell_in_groups(scan, start, stop, phone_group_sizes(text))
    elif _is_typed(scan, match) or (
        text in vocabulary.SERVICE_NUMBERS and following.lower() not in vocabulary.COUNTED_NOUNS
    ):
        ENGLISH_SPELLER.spell(scan, start, stop)
    elif (
        (len(text) in (3, 4) and street_follows)
        or (len(text) == 4 and _is_bill(scan, match))
        or (len(text) == 3 and _is_said_in_pairs(scan, match, following))
        or (len(text) == 4 and scan.context.previous_word in vocabulary.WORDS_BEFORE_PAIRED_DIGITS)
    ):
        scan.emit(numbers.house_number(int(text)), start, stop)
    elif len(text) == 4 and (
        _is_year(int(text), scan.context.previous_word, following) or _is_in_span_of_years(scan, match)
    ):
        scan.emit(numbers.year(int(text)), start, stop)
    else:
        scan.emit(amount_words(text), start, stop)
    scan.context.note_number()
    if street_follows:
        scan.context.address_words_left = _STREET_WORD_WINDOW
    return stop


def _is_typed(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a number is the mode of "chmod 755", the process of "kill -9 4312" or the port of "-p 2222"."""
    is_long = len(match.group()) >= _MIN_TYPED
    return is_long and _TYPED_BEHIND.search(scan.view, match.start()) is not None


def _is_bill(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a number is that of a bill: "HB 1557", "H.R. 3684"."""
    return _BILL_BEHIND.search(scan.view, match.start()) is not None


def _is_train(scan: ScanState, text: str) -> bool:
    return len(text) == 4 and scan.context.previous_word in vocabulary.TRAIN_NAMES


def _is_said_in_pairs(scan: ScanState, match: re.Match[str], following: str) -> bool:
    """Whether three digits are those of "route 101", "a 404 error", "returned 404" or "a Boeing 747"."""
    paired = scan.context.previous_word in vocabulary.WORDS_BEFORE_PAIRED_DIGITS or following == "error"
    follows_status = (
        not following or following in vocabulary.WORDS_AFTER_PRICES or following.lower() in _REPLIES
    )
    answered = scan.context.previous_word in ("response", "status") or _BRACKETED_STATUS.search(scan.view)
    if match.group() in _HTTP_STATUSES and answered:
        return True
    if match.group() in _HTTP_STATUSES and follows_status:
        paired = paired or _STATUS_BEHIND.search(scan.view, match.start()) is not None
    return paired or (scan.context.previous_capitalized and not is_counted(following))


def _is_written_down(text: str) -> bool:
    """Whether a listener writes the number down: five digits or more, without commas, not round."""
    return len(text) > 4 and not text.endswith("000")


def _read_house_letter(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the number of "221B Baker Street"."""
    if not STREET_AHEAD.match(scan.view, match.end()):
        return None
    number = match.group(1)
    words = numbers.house_number(int(number)) if len(number) > 2 else numbers.cardinal(int(number))
    scan.emit(words, match.start(), match.end(1))
    ENGLISH_SPELLER.spell(scan, match.end(1), match.end())
    scan.context.note_number()
    scan.context.address_words_left = _STREET_WORD_WINDOW
    return match.end()


def _is_year(number: int, previous: str, following: str) -> bool:
    if following in vocabulary.ERAS:
        return 1000 <= number <= 2999
    if 1900 <= number <= 2099:
        return previous in vocabulary.WORDS_BEFORE_YEARS or not is_counted(following)
    return 1100 <= number < 1900 and previous in vocabulary.WORDS_BEFORE_YEARS


def _is_in_span_of_years(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a number is an end of "1776 to 1783"; "1500 to 2000 units" counts something."""
    ahead = _YEAR_AHEAD.match(scan.view, match.end())
    behind = _YEAR_BEHIND.search(scan.view, max(0, match.start() - 14), match.start())
    number = int(match.group())
    if ahead:
        first, last, end = number, int(ahead.group(1)), ahead.end()
    elif behind:
        first, last, end = int(behind.group(1)), number, match.end()
    else:
        return False
    return 1100 <= first < last < first + 300 and last % 50 > 0 and not is_counted(scan.next_word(end))


def _read_ordinal(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(numbers.ordinal(int(match.group(1).replace(",", ""))), match.start(), match.end())
    scan.context.note_number()
    scan.context.address_words_left = 1
    return match.end()


def _read_century(scan: ScanState, match: re.Match[str]) -> int:
    """Read "19th c."."""
    scan.emit(numbers.ordinal(int(match.group(1))), match.start(), match.start(2))
    scan.emit("century", match.start(2), match.end())
    note_english_word(scan.context, "century")
    end_sentence_if_capital_follows(scan, match.end())
    return match.end()


def _read_ratio(scan: ScanState, match: re.Match[str]) -> int:
    """Read "3:2", which was not recognised as a time of day, as a ratio; "line 212:14" has a column."""
    scan.emit(numbers.cardinal(int(match.group(1))), match.start(), match.end(1))
    is_place = (
        scan.context.previous_word in _LINE_WORDS or scan.view[match.start() - 1 : match.start()] == ":"
    )
    if is_place or _is_of_lines_or_seconds(scan, match):
        scan.punctuate(",")
    elif match.group() != "50:50":
        scan.emit("to", match.end(1), match.start(2))
    scan.emit(numbers.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _is_of_lines_or_seconds(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "114:3–22" are lines of a page, and "29:41" a time; the sum of the ratio "60:40" is 100."""
    first, second = match.groups()
    if _LINES_AHEAD.match(scan.view, match.end()):
        return True
    if scan.context.previous_word in ("of", "ratio", "mix", "split"):
        return False
    is_clock = len(first) == len(second) == 2 and int(first) > _MAX_HOUR and "10" <= second < "60"
    return is_clock and int(first) + int(second) != 100


def _read_age(scan: ScanState, match: re.Match[str]) -> int:
    """Read "45-y/o" and "17 y.o."."""
    scan.emit(numbers.cardinal(int(match.group(1))), *match.span(1))
    scan.emit("year old", match.end(1), match.end())
    note_english_word(scan.context, "old")
    return match.end()


def _read_ports(scan: ScanState, match: re.Match[str]) -> int:
    """Read "80:8080" and "8080:80", a port and that which it is mapped to."""
    first, second = (1, 2) if match.group(1) else (3, 4)
    ENGLISH_SPELLER.spell(scan, *match.span(first))
    scan.emit("to", match.end(first), match.start(second))
    ENGLISH_SPELLER.spell(scan, *match.span(second))
    scan.context.note_number()
    return match.end()


def _read_idiomatic_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "401k" and its like, unless a code or an identifier is expected."""
    is_always = match.group(1).startswith(("24", "7-E", "7U"))  # "24-7", "7-Eleven"
    if not is_always and (scan.context.identifier_expected or scan.context.code_words_left):
        return None
    scan.emit(vocabulary.IDIOMATIC_NUMBERS[match.group(1)], match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_version_with_v(scan: ScanState, match: re.Match[str]) -> int:
    """Read "v2.1"."""
    if scan.context.previous_word != "version":
        scan.emit("version", match.start(), match.start() + 1)
        note_english_word(scan.context, "version")
    return ENGLISH_SPELLER.read_version(scan, _VERSION_NUMBER.match(scan.view, match.start(1)) or match)


def _read_magnitude(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "5 million", "10k", "2.5M", and "3M users"; not "exit 4B" or "a 4K TV".

    A whole number with M or B is a magnitude where it counts a noun or follows a word such as "over".
    """
    if match.group(3) and not _is_magnitude(scan, match):
        return None
    scan.emit(amount_words(match.group(1)), match.start(), match.end(1))
    scan.emit(vocabulary.MAGNITUDES[match.group(2) or match.group(3)], match.end(1), match.end())
    scan.context.note_number()
    return match.end()


def _is_magnitude(scan: ScanState, match: re.Match[str]) -> bool:
    context, letter, following = scan.context, match.group(3), scan.next_word(match.end())
    if context.identifier_expected or (letter in "kK" and following.lower() in vocabulary.NOUNS_AFTER_K):
        return False
    is_small = re.fullmatch(r"\d{1,3}", match.group(1)) is not None
    if letter == "bn" or not is_small:
        return True
    if is_counted(following) or following in vocabulary.COUNTED_ABBREVIATIONS or following == "ly":
        return not (context.sentence_start and match.group() == "3M")
    if letter in "kK":
        on_screen = context.previous_word == "in" or _is_of_picture(scan, match)
        if match.group() in ("4K", "8K") and on_screen:  # "watch it in 4K", "4K@60Hz"
            return False
        after_name = context.previous_capitalized and not context.after_comma
        is_race = context.after_number or context.previous_word in vocabulary.DETERMINERS | {"a", "an"}
        return not (after_name or is_race or context.previous_word in vocabulary.NOUNS_BEFORE_LETTERS)
    return context.previous_word in vocabulary.WORDS_BEFORE_MAGNITUDES


def _is_of_picture(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "4K" is listed with other properties of a picture: "4K@60Hz", "144Hz, 4K, HDR"."""
    behind = _PICTURE_BEHIND.search(scan.view, max(0, match.start() - 8), match.start())
    is_listed = scan.context.after_comma and scan.view[match.end() : match.end() + 1] == ","
    return bool(behind or is_listed or _PICTURE_AHEAD.match(scan.view, match.end()))


def _read_range(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a dash between numbers as "to"."""
    after_time = scan.context.after_number or scan.context.previous_word in vocabulary.WORDS_OF_TIME
    if not after_time or (scan.words and scan.words[-1].punctuation):
        return None
    if _VERSION_BEHIND.search(scan.view, max(0, match.start() - 14), match.start()):  # "6.5.0-14"
        return None
    dash = match.start() + len(match.group()) - len(match.group().lstrip())
    if dash + 1 == match.end() and _ADDED_BEHIND.search(scan.view, dash):  # "+320 -41"
        return None
    if scan.view[dash - 1 : dash] == "/":  # "+412/-88"
        return None
    scan.emit("to", dash, dash + 1)
    scan.context.previous_word = "to"
    scan.context.after_number = False
    return match.end()


def _read_minus(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a hyphen at the start of a number as "minus"."""
    if match.start() and scan.view[match.start() - 1] not in ' ("[\n/':
        return None
    scan.emit("minus", match.start(), match.end())
    note_english_word(scan.context, "minus")
    return match.end()


def _read_first_code_of_range(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "B1-" of "gates B1-B6"."""
    if scan.context.code_words_left or int(match.group(2)) >= int(match.group(3)):
        return None
    ENGLISH_SPELLER.spell(scan, match.start(1), match.end(1))
    scan.emit(amount_words(match.group(2)), match.start(2), match.end(2))
    scan.emit("to", match.end(2), match.end())
    note_english_word(scan.context, "to")
    return match.end()


def _read_dash_between_codes(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the dash of "SW1A–SW1X", "SFO–PVG" and "rows A–F"."""
    if not _CODE_BEHIND.search(scan.view, max(0, match.start() - 8), match.start()):
        return None
    scan.emit("to", match.start(), match.end())
    note_english_word(scan.context, "to")
    return match.end()


def _read_aircraft(scan: ScanState, match: re.Match[str]) -> int:
    """Read "787-9" and "737-800"."""
    for group in (1, 2):
        number = match.group(group)
        words = numbers.house_number(int(number)) if len(number) == 3 else amount_words(number)
        scan.emit(words, match.start(group), match.end(group))
    scan.context.note_number()
    return match.end()


def _read_aircraft_family(scan: ScanState, match: re.Match[str]) -> int:
    """Read "737 MAX 8"."""
    scan.emit(numbers.house_number(int(match.group())), match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_comparison(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a sign before a number: < > ~, and * after another number."""
    if match.group(1) == "*" and not scan.context.after_number:
        return None
    words = {"<": "less than", ">": "more than", "~": "about", "*": "times"}[match.group(1)]
    scan.emit(words, match.start(1), match.end(1))
    note_english_word(scan.context, words)
    return match.end()


def _read_possessive(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the ending of "terminal 4's"."""
    if not scan.words or scan.words[-1].stop != match.start() or scan.words[-1].punctuation:
        return None
    scan.words[-1].text += "'s"
    scan.words[-1].stop = match.end()
    return match.end()


def _read_for(scan: ScanState, match: re.Match[str]) -> int:
    """Read the x of "1 tab BID x 14d" and "x 3 weeks"."""
    scan.emit("for", match.start(), match.start() + 1)
    note_english_word(scan.context, "for")
    return match.start() + 1


def _read_multiple(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "x2" of "Large fries x2"."""
    if scan.view[match.start() - 1 : match.start()] != " " or scan.context.after_phone:
        return None
    scan.emit("times", match.start(), match.start(1))
    scan.emit(numbers.cardinal(int(match.group(1))), *match.span(1))
    scan.context.note_number()
    return match.end()


def _read_by(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "x" of "48 cols x 1.2M rows"."""
    if not _COUNT_BEHIND.search(scan.view, max(0, match.start() - 20), match.start()):
        return None
    scan.emit("by", *match.span())
    note_english_word(scan.context, "by")
    return match.end()


LETTER_RULES = compile_rules(
    (r"[Rr]ev\.? (?=[A-Z](?![\w.'])|\d)", read_as("revision")),
    # "at 400°F x 12 min."
    (r"(?<=[a-zA-Z)] )x(?= ?\d{1,3} ?(?:min|mins|minutes|h|hrs?|hours?)\b)", read_as("for")),
    (r"x(?= ?\d{1,3} ?(?:d|days?|wks?|weeks?|mos?|months?|nights?|doses?|yrs?|years?)\b)", _read_for),
    (r"x(?= \d)", _read_by),
    (r"([A-Z]{1,2})(\d{1,3})-(?=\1(\d{1,3})(?![\w-]))", _read_first_code_of_range),
    (r"x(\d{1,3})(?![\w.,:/-]\d|\w)", _read_multiple),
    (r"(?!V(?:4|6|8|10|12)(?![\w.]\d))[vV]\.? ?(\d+(?:\.\d+)*)(?!\w)", _read_version_with_v),
)
DIGIT_RULES = compile_rules(
    (rf"({_IDIOMATIC_NUMBER})(?![\w%-]|[.,:/]\d)", _read_idiomatic_number),
    (r"((?:480|720|1080|1440|2160)p)(?=/\d)", _read_idiomatic_number),
    (r"([1-9]\d{0,3})[A-Z](?!\w)", _read_house_letter),
    (r"(7[0-8]7)-(8|9|10|[2-9]00)(?![\w-])", _read_aircraft),
    (r"7[0-8]7(?= (?:MAX|Max|Dreamliner|jet|aircraft|plane|freighter)\b)", _read_aircraft_family),
    (r"(\d{1,3})[ -]?(?:y/?o|y\.o\.)(?!\w)", _read_age),
    (r"(\d{2,5}):(\d{4,5})(?![\w:])|(\d{4,5}):(22|25|53|80|443)(?![\w:])", _read_ports),
    (r"(\d{1,3}):(\d{1,3})(?![\w:])", _read_ratio),
    # "2.1.3", "192.168.1.1"
    (r"\d{1,5}(?:\.\d{1,5}){2,5}(?!\w|\.\d)", ENGLISH_SPELLER.read_version),
    # "5 million", "10k"
    (rf"({DECIMAL})(?: (thousand|million|billion|trillion|lakh|crore)|([kKMB]|bn))(?!\w)", _read_magnitude),
    (rf"(\d{{1,2}}){ORDINAL_SUFFIX}[ -](c(?:ent)?\.)", _read_century),
    (rf"(\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}}){ORDINAL_SUFFIX}(?!\w)", _read_ordinal),
)
PLAIN_NUMBER_RULES = compile_rules(
    (rf"(?=\d+[.,]\d){DECIMAL}", _read_amount),
    (r"\d{1,300}", _read_integer),  # bounded, so that no reading is longer than a clause
)
SYMBOL_RULES = compile_rules(
    (r"'s(?!\w)", _read_possessive),
    (r" ?– ?(?=[A-Z]{1,3}(?:-?\d|(?![\w'])))", _read_dash_between_codes),
    (rf" ?[-–] ?(?=[$£€]?\d|'\d\d(?!\w)|(?:{MONTH}|{WEEKDAY}|{_WORD_OF_TIME})(?!\w))", _read_range),
    (r"-(?= ?[$£€]?\.?\d)|–(?=[$£€]?\.?\d)", _read_minus),
    # ".75"
    (r"\.\d+(?!\w)", _read_amount),
    (r" ?([<>~*]) ?(?=(?:[A-Z]{1,3}\$|[$£€¥₹'])?\d)", _read_comparison),
)
