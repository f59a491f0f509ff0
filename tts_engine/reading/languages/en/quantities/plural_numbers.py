"""Rules of numbers with an ending: "1990s", "mid-80s", "under-5s", "429s", "86'd"."""

import re

from ....kit.patterns import PatternBehind
from ....kit.tokenizer import ScanState, any_of, compile_rules
from .. import vocabulary
from ..word_context import note_english_word
from . import number_words as numbers

_DECADE_AHEAD = re.compile(
    rf"(?:,| and| or| to|-|–) ?(?:the )?\d0s(?!\w)| (?:{any_of(vocabulary.DECADE_NOUNS)})\b"
)
_DECADE_BEHIND = re.compile(r"\b(?:1[89]|20)?\d0s(?:,| and| or| to|-|–) ?\Z")
# "429s" after one of these is a duration.
_DURATION_BEHIND = PatternBehind(
    r"\b(?:in|after|for|took|takes|within|every|wait|lasted|about|timeout|of) \Z"
)


def _read_decade(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "1990s", "the 90s" and "100s of"; decline "30s", which is seconds where nothing shows a decade."""
    number = int(match.group(1))
    if match.group(1) in vocabulary.LARGE_COUNTS and scan.next_word(match.end()) == "of":
        words = vocabulary.LARGE_COUNTS[match.group(1)]
    elif "'" in match.group() or number >= 1000 or _is_decade(scan, match):
        head, _, last = (numbers.year(number) if number >= 1000 else numbers.cardinal(number)).rpartition(" ")
        words = f"{head} {numbers.plural(last)}"
    else:
        return None
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _is_decade(scan: ScanState, match: re.Match[str]) -> bool:
    if len(match.group(1)) != 2 or not 20 <= int(match.group(1)) <= 90:
        return False
    return (
        scan.context.previous_word in vocabulary.WORDS_BEFORE_DECADES
        or bool(_DECADE_AHEAD.match(scan.view, match.end()))
        or bool(_DECADE_BEHIND.search(scan.view, max(0, match.start() - 12), match.start()))
    )


def _plural(number: int) -> str:
    """Return the plural of a number as it is called: "eighties", "four oh fours"."""
    head, _, last = numbers.house_number(number).rpartition(" ")
    return f"{head} {numbers.plural(last)}".strip()


def _read_called_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "429s", errors, and "747s"; decline seconds."""
    if _DURATION_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit(_plural(int(match.group(1))), match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_ages(scan: ScanState, match: re.Match[str]) -> int:
    """Read "mid-80s", "under-5s" and "over 65s"."""
    scan.emit(match.group(1), match.start(), match.end(1))
    scan.emit(_plural(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_price_range(scan: ScanState, match: re.Match[str]) -> int:
    """Read "homes from the $400s"."""
    head, _, last = numbers.cardinal(int(match.group(1))).rpartition(" ")
    scan.emit(f"{head} {numbers.plural(last)}", *match.span())
    scan.context.note_number()
    return match.end()


def _read_boards(scan: ScanState, match: re.Match[str]) -> int:
    """Read "2x4s"."""
    scan.emit(f"{numbers.cardinal(int(match.group(1)))} by", match.start(), match.start(2))
    scan.emit(_plural(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_verb(scan: ScanState, match: re.Match[str]) -> int:
    """Read "86'd", which is said of a dish that has run out."""
    scan.emit(f"{numbers.house_number(int(match.group(1)))}ed", match.start(), match.end())
    note_english_word(scan.context, "ed")
    return match.end()


LETTER_RULES = compile_rules(
    (
        rf"(?=[A-Za-z]{{3,5}}-\$?\d)((?i:{any_of(vocabulary.WORDS_BEFORE_AGES)}))-\$?(\d{{1,2}})'?s(?!\w)",
        _read_ages,
    ),
    (
        r"([Uu]nder|[Oo]ver) (\d{1,2})s(?= |[.,;!?)]|$)"
        r"(?! (?:timeout|ago|left|remaining|for \d{1,3} ?(?:s|m|h|min\w*))\b)",
        _read_ages,
    ),
)
DIGIT_RULES = compile_rules(
    (r"([1-9]\d?)x([1-9]\d?)s(?!\w)", _read_boards),
    (r"(\d{2,3})(?:'d|'?ed)(?= (?:the|our|it|that)\b|[.,;!?]|$)", _read_verb),
    (r"(\d{0,3}0)'?s(?!\w)", _read_decade),
    # Answers of HTTP servers, aircraft, forms
    (r"(4[0-5]\d|499|50\d|7[0-8]7|1099|1040|1095)'?s(?!\w)", _read_called_number),
)
SYMBOL_RULES = compile_rules((r"'(\d0)s(?!\w)", _read_decade), (r"\$([1-9]\d?0)s(?!\w)", _read_price_range))
