"""Recognisers of what a listener writes down: phone numbers, PINs, account numbers, codes with letters.

Digit by digit with their zeros, in groups with a pause after each.
Source: NANP and ITU-T E.123 for the grouping of phone numbers.
"""

import re
import unicodedata

from ..tokenizer import CODE_CONTINUATION_WINDOW, ReadingContext, ScanState, compile_rules, digit_group_sizes
from . import number_words as numbers
from . import vocabulary


def _read_groups(scan: ScanState, start: int, stop: int) -> None:
    """Digits and letters with separators: a pause at each, and inside long runs."""
    first = True
    for run in _ALPHANUMERIC_RUN.finditer(scan.view, start, stop):
        if not first:
            scan.punctuate(",")
        first = False
        scan.spell_groups(run.start(), run.end(), digit_group_sizes(run.end() - run.start()))


_ALPHANUMERIC_RUN = re.compile(r"[^\W_]+")


def _read_phone(scan: ScanState, match: re.Match[str]) -> int:
    if match.group().startswith("+"):
        scan.emit("plus", match.start(), match.start() + 1)
    for number, run in enumerate(_ALPHANUMERIC_RUN.finditer(match.group())):
        start, stop = match.start() + run.start(), match.start() + run.end()
        if number:
            scan.punctuate(",")
        length = stop - start
        national = length == 11 and run.group().startswith("1")
        scan.spell_groups(start, stop, (1, 3, 3, 4) if national else digit_group_sizes(length))
    scan.context.note_number()
    scan.context.after_phone = True
    return match.end()


def _read_vanity_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """1-800-GOT-JUNK: words as words, where they are some."""
    digits, words = match.group(1), match.group(2)
    if not all(map(has_vowel, words.split("-"))):
        return None
    start = match.start()
    for number, run in enumerate(_ALPHANUMERIC_RUN.finditer(scan.view, start, start + len(digits))):
        if number:
            scan.punctuate(",")
        scan.spell(run.start(), run.end())
    scan.punctuate(",")
    for word in _ALPHANUMERIC_RUN.finditer(scan.view, match.start(2), match.end(2)):
        scan.emit(word.group().lower(), word.start(), word.end())
    scan.context.note_number()
    scan.context.after_phone = True
    return match.end()


def _read_code(scan: ScanState, match: re.Match[str]) -> int:
    if scan.context.after_code:
        scan.punctuate(",")
    _read_groups(scan, match.start(), match.end())
    _note_code(scan.context)
    return match.end()


def _note_code(context: ReadingContext) -> None:
    """What follows a code at once may be more of it; later numbers are not."""
    left = min(context.code_words_left, CODE_CONTINUATION_WINDOW)
    context.note_number()
    context.code_words_left, context.after_code = left, True


def _read_announced_code(scan: ScanState, match: re.Match[str]) -> int | None:
    """A number after "code", "PIN", "order number": digit by digit, unless it counts something."""
    context, text = scan.context, match.group()
    runs = [run for run in re.split(r"[ -]", text) if run]
    count = sum(map(len, runs))
    if not context.code_words_left and not (context.identifier_expected and count > 2):
        return None
    if context.previous_word in vocabulary.WORDS_BEFORE_PAIRED_DIGITS and count == 3:
        return None
    following = scan.next_word(match.end()).lower()
    if len(runs) == 1 and not text.startswith("0"):
        if following in vocabulary.COUNTED_NOUNS or (count < 3 and is_counted(following)):
            return None
        if not context.code_words_left and count == 3 and text.endswith("00"):
            return None
    return _read_code(scan, match)


def is_counted(word: str) -> bool:
    """Whether a number before ``word`` counts it: a unit, or what looks like a plural."""
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word in vocabulary.COUNTED_NOUNS or (plural and word.islower() and word != "does")


def _read_mixed(scan: ScanState, match: re.Match[str]) -> int | None:
    """Letters with digits: a code letter by letter, a name such as MP3 or Covid-19 as people say it."""
    text = match.group()
    if not any(map(str.isdigit, text)) or not any(map(str.isalpha, text)):
        return None
    if _WORD_AND_YEAR.fullmatch(text) and not (
        scan.context.code_words_left or scan.context.identifier_expected
    ):
        return None
    runs = list(_CODE_RUN.finditer(scan.view, match.start(), match.end()))
    as_code = _is_code(scan, text, len(runs))
    if as_code and scan.context.after_code:
        scan.punctuate(",")
    size = 0
    for number, run in enumerate(runs):
        separated = number > 0 and runs[number - 1].end() < run.start()
        if as_code and (separated or size >= 4 or size + len(run.group()) > 6):
            scan.punctuate(",")
            size = 0
        size += len(run.group())
        _read_code_run(scan, run, as_code)
    if as_code:
        _note_code(scan.context)
    else:
        scan.context.note_number()
    scan.context.after_number = False
    return match.end()


_CODE_RUN = re.compile(r"[^\W\d_]+|\d+")
_WORD_AND_YEAR = re.compile(r"[A-Z]?[a-z]+-(?:1[89]|20)\d\ds?")  # "mid-1990s", "pre-2020"
_SHORT_WORDS = frozenset({"by", "in", "of", "on", "or", "to"})


def _is_code(scan: ScanState, text: str, runs: int) -> bool:
    if _HYPHENATED_COMPOUND.search(text):
        return False
    if scan.context.code_words_left or (scan.context.identifier_expected and len(text) > 3):
        return True
    return runs > 3 or sum(map(str.isdigit, text)) > 3 or (runs > 2 and "-" in text)


_HYPHENATED_COMPOUND = re.compile(
    rf"(?:^|-)(?:[a-z]{{3,}}|{'|'.join(_SHORT_WORDS)})(?:-|$)"
)  # "4-digit", "9-to-5"


def _read_letter_code(scan: ScanState, match: re.Match[str]) -> int | None:
    """ABCD-EFGH, where a code is expected."""
    return _read_code(scan, match) if scan.context.code_words_left else None


def _read_code_run(scan: ScanState, run: re.Match[str], as_code: bool) -> None:
    text = run.group()
    if text.isdigit():
        if not as_code and len(text) == 3 and text[0] != "0":
            scan.emit(numbers.house_number(int(text)), run.start(), run.end())
        elif as_code or len(text) > 2 or text.startswith("0"):
            scan.spell_groups(run.start(), run.end(), digit_group_sizes(len(text)))
        else:
            scan.emit(numbers.cardinal(int(text)), run.start(), run.end())
    elif _is_spelled_out(text, as_code):
        scan.spell(run.start(), run.end())
    else:
        scan.emit(text if text[1:].islower() else text.lower(), run.start(), run.end())


def _is_spelled_out(text: str, as_code: bool) -> bool:
    lower = text.lower()
    if len(text) > 3 and (lower in vocabulary.IDENTIFIED_NOUNS or lower in vocabulary.CODE_WORDS):
        return False
    if as_code or len(text) < 3:
        return as_code or text not in _SHORT_WORDS
    return not has_vowel(text) or (text.isupper() and len(text) < 4)


def has_vowel(word: str) -> bool:
    """Whether the word can be said as one."""
    return any(letter in "aeiouy" for letter in unicodedata.normalize("NFD", word.lower()))


_MAC_ADDRESS = r"[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?!\w)"
GROUPED_DIGIT_RULES = compile_rules(
    (_MAC_ADDRESS, _read_code),
    (r"1[-. ]?\(\d{3}\)[-. ]?\d{3}[-. ]\d{4}(?!\w|-\d)", _read_phone),
    (r"(?:1[-. ])?\d{3}[-. ]\d{3}[-. ]\d{4}(?!\w|-\d)", _read_phone),
    (r"((?:1-)?8(?:00|33|44|55|66|77|88)-)([A-Z]{2,12}(?:-[A-Z]{2,12}){0,3})(?![\w'-])", _read_vanity_number),
    (r"\d{4}([ -])\d{4}\1\d{4}(?:\1\d{1,4})?(?!\w|-\d)", _read_code),
    (r"\d{3}-\d{2}-\d{4}(?!\w|-\d)", _read_code),
    (r"\d{3}-\d{4}(?!\w|-\d)", _read_phone),
    (r"0\d{2,4}(?: \d{3,4}){2,3}(?![\w-])|0\d{4} \d{5,6}(?![\w-])", _read_phone),
)
FALLBACK_RULES = compile_rules(
    (r"\d{5}-\d{4}(?!\w)", _read_code),
    (r"\d+(?:-\d+){2,}(?![\w-])", _read_code),
    (r"\d{2,}(?:[ -]\d{2,})*(?![\w/%°]|[-,.:]\w)", _read_announced_code),
    (r"[^\W_]{1,40}(?:-[^\W_]{1,40}){0,9}(?![\w'])", _read_mixed),
)
LETTER_RULES = compile_rules(
    (_MAC_ADDRESS, _read_code),
    (r"[A-Z]{2,8}(?:-[A-Z]{2,8}){1,6}(?![\w'])", _read_letter_code),
    (r"(?=\w*[\d-])[^\W_]{1,40}(?:-[^\W_]{1,40}){0,9}(?![\w'])", _read_mixed),
)
SYMBOL_RULES = compile_rules(
    (r"\+\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){1,7}(?!\w)", _read_phone),
    (r"\(\d{3}\)[-. ]?\d{3}[-. ]?\d{4}(?!\w|-\d)", _read_phone),
)
