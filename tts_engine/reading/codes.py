"""Recognisers of what a listener writes down: phone numbers, PINs, account numbers, codes with letters.

Digit by digit with their zeros, in groups with a pause after each.
Source: NANP and ITU-T E.123 for the grouping of phone numbers.
"""

import re
import unicodedata

from . import number_words as say
from . import vocabulary
from .scan import MORE_CODE_WINDOW, Memory, Scan, rules

_GROUPS = {6: (3, 3), 7: (3, 4), 8: (4, 4), 9: (3, 3, 3), 10: (3, 3, 4), 11: (4, 4, 3), 12: (4, 4, 4)}


def group_sizes(length: int) -> tuple[int, ...]:
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
        scan.spell_groups(run.start(), run.end(), group_sizes(run.end() - run.start()))


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
        scan.spell_groups(start, stop, (1, 3, 3, 4) if national else group_sizes(length))
    scan.memory.hear_number()
    scan.memory.after_phone = True
    return match.end()


def _read_vanity(scan: Scan, match: re.Match[str]) -> int | None:
    """1-800-GOT-JUNK: words as words, where they are some."""
    digits, words = match.group(1), match.group(2)
    if not all(map(has_vowel, words.split("-"))):
        return None
    start = match.start()
    for number, run in enumerate(_RUN.finditer(scan.view, start, start + len(digits))):
        if number:
            scan.pause(",")
        scan.spell(run.start(), run.end())
    scan.pause(",")
    for word in _RUN.finditer(scan.view, match.start(2), match.end(2)):
        scan.say(word.group().lower(), word.start(), word.end())
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
    if memory.previous in vocabulary.PAIRED_WORDS and count == 3:
        return None
    following = scan.next_word(match.end()).lower()
    if len(runs) == 1 and not text.startswith("0"):
        if following in vocabulary.COUNTED or (count < 3 and is_counted(following)):
            return None
        if not memory.code_words_left and count == 3 and text.endswith("00"):
            return None
    return _read_code(scan, match)


def is_counted(word: str) -> bool:
    """Whether a number before ``word`` counts it: a unit, or what looks like a plural."""
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word in vocabulary.COUNTED or (plural and word.islower() and word != "does")


def _read_mixed(scan: Scan, match: re.Match[str]) -> int | None:
    """Letters with digits: a code letter by letter, a name such as MP3 or Covid-19 as people say it."""
    text = match.group()
    if not any(map(str.isdigit, text)) or not any(map(str.isalpha, text)):
        return None
    if _WORD_AND_YEAR.fullmatch(text) and not (scan.memory.code_words_left or scan.memory.named):
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
_WORD_AND_YEAR = re.compile(r"[A-Z]?[a-z]+-(?:1[89]|20)\d\ds?")  # "mid-1990s", "pre-2020"
_SHORT_WORDS = frozenset({"by", "in", "of", "on", "or", "to"})


def _is_code(scan: Scan, text: str, runs: int) -> bool:
    if _COMPOUND.search(text):
        return False
    if scan.memory.code_words_left or (scan.memory.named and len(text) > 3):
        return True
    return runs > 3 or sum(map(str.isdigit, text)) > 3 or (runs > 2 and "-" in text)


_COMPOUND = re.compile(rf"(?:^|-)(?:[a-z]{{3,}}|{'|'.join(_SHORT_WORDS)})(?:-|$)")  # "4-digit", "9-to-5"


def _read_letter_code(scan: Scan, match: re.Match[str]) -> int | None:
    """ABCD-EFGH, where a code is expected."""
    return _read_code(scan, match) if scan.memory.code_words_left else None


def _read_code_run(scan: Scan, run: re.Match[str], as_code: bool) -> None:
    text = run.group()
    if text.isdigit():
        if not as_code and len(text) == 3 and text[0] != "0":
            scan.say(say.house_number(int(text)), run.start(), run.end())
        elif as_code or len(text) > 2 or text.startswith("0"):
            scan.spell_groups(run.start(), run.end(), group_sizes(len(text)))
        else:
            scan.say(say.cardinal(int(text)), run.start(), run.end())
    elif _is_run_spelled(text, as_code):
        scan.spell(run.start(), run.end())
    else:
        scan.say(text if text[1:].islower() else text.lower(), run.start(), run.end())


def _is_run_spelled(text: str, as_code: bool) -> bool:
    lower = text.lower()
    if len(text) > 3 and (lower in vocabulary.NUMBERED_WORDS or lower in vocabulary.CODE_WORDS):
        return False
    if as_code or len(text) < 3:
        return as_code or text not in _SHORT_WORDS
    return not has_vowel(text) or (text.isupper() and len(text) < 4)


def has_vowel(word: str) -> bool:
    """Whether the word can be said as one."""
    return any(letter in "aeiouy" for letter in unicodedata.normalize("NFD", word.lower()))


_MAC_ADDRESS = r"[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?!\w)"
GROUPED_DIGIT_RULES = rules(
    (_MAC_ADDRESS, _read_code),
    (r"1[-. ]?\(\d{3}\)[-. ]?\d{3}[-. ]\d{4}(?!\w|-\d)", _read_phone),
    (r"(?:1[-. ])?\d{3}[-. ]\d{3}[-. ]\d{4}(?!\w|-\d)", _read_phone),
    (r"((?:1-)?8(?:00|33|44|55|66|77|88)-)([A-Z]{2,12}(?:-[A-Z]{2,12}){0,3})(?![\w'-])", _read_vanity),
    (r"\d{4}([ -])\d{4}\1\d{4}(?:\1\d{1,4})?(?!\w|-\d)", _read_code),
    (r"\d{3}-\d{2}-\d{4}(?!\w|-\d)", _read_code),
    (r"\d{3}-\d{4}(?!\w|-\d)", _read_phone),
    (r"0\d{2,4}(?: \d{3,4}){2,3}(?![\w-])|0\d{4} \d{5,6}(?![\w-])", _read_phone),
)
LATE_RULES = rules(
    (r"\d{5}-\d{4}(?!\w)", _read_code),
    (r"\d+(?:-\d+){2,}(?![\w-])", _read_code),
    (r"\d{2,}(?:[ -]\d{2,})*(?![\w/%°]|[-,.:]\w)", _read_announced_code),
    (r"[^\W_]{1,40}(?:-[^\W_]{1,40}){0,9}(?![\w'])", _read_mixed),
)
LETTER_RULES = rules(
    (_MAC_ADDRESS, _read_code),
    (r"[A-Z]{2,8}(?:-[A-Z]{2,8}){1,6}(?![\w'])", _read_letter_code),
    (r"(?=\w*[\d-])[^\W_]{1,40}(?:-[^\W_]{1,40}){0,9}(?![\w'])", _read_mixed),
)
SYMBOL_RULES = rules(
    (r"\+\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){1,7}(?!\w)", _read_phone),
    (r"\(\d{3}\)[-. ]?\d{3}[-. ]?\d{4}(?!\w|-\d)", _read_phone),
)
