"""Rules of the numbers of carriers and offices: flights, runways, containers, check digits, recalls, USSD.

Source: IATA airline designators; ISO 6346 (four letters, the last one U, J or Z, six digits, a check digit).
"""

import re

from ...kit.patterns import PatternBehind
from ...kit.tokenizer import ScanState, any_of, compile_capital_rules, compile_rules
from . import vocabulary
from .codes import read_code, read_groups
from .quantities import number_words as numbers
from .spelling import ENGLISH_SPELLER
from .word_context import note_english_word

_CRON_PART = re.compile(r"\d{1,9}|[*/,-]")
_CRON_SIGNS = {"*": "star", "/": "slash", ",": "comma", "-": "to"}
_DIALED_PART = re.compile(r"\d+|[*#]")
_DIALED_BEHIND = PatternBehind(
    r"\b(?:dial|press|enter|key in|type|punch in|hit)(?:ing|s|ed)?(?: in)? "
    r"(?:[\d*#]{1,20},? (?:or|and|then) )?\Z",
    re.IGNORECASE,
)
_TRIP = re.compile(rf"\b(?:{any_of(vocabulary.BEGINNINGS_OF_WORDS_OF_TRIPS)})")


def _read_airline(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the letters of "DL 1187", after which the number is read as after "flight"."""
    if scan.next_word(match.end()).lower() in vocabulary.COUNTED_NOUNS:
        return None
    ENGLISH_SPELLER.spell(scan, match.start(1), match.end(1))
    note_english_word(scan.context, "flight")
    return match.end(1)


def _read_airline_of_trip(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the letters of "rebooked on AC 8123, seat 7A", which are no airline's in other sentences."""
    return _read_airline(scan, match) if _TRIP.search(scan.view) else None


def _read_runway(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "27L" of "runway 27L"."""
    if scan.context.previous_word not in ("runway", "runways", "rwy"):
        return None
    ENGLISH_SPELLER.spell(scan, *match.span(1))
    scan.emit({"L": "left", "R": "right", "C": "center"}[match.group(2)], *match.span(2))
    scan.context.note_number()
    return match.end()


def _read_seat_range(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "seats 14C-D"."""
    if scan.context.previous_word not in ("seat", "seats", "gate", "gates", "unit", "units", "row", "rows"):
        return None
    scan.emit(numbers.cardinal(int(match.group(1))), match.start(1), match.end(1))
    ENGLISH_SPELLER.spell(scan, match.start(2), match.end(2))
    scan.emit("to", match.end(2), match.start(3))
    ENGLISH_SPELLER.spell(scan, match.start(3), match.end(3))
    scan.context.note_number()
    return match.end()


def _read_dialed(scan: ScanState, match: re.Match[str]) -> int:
    """Read "*21*0072#" and "0072#", keys that a caller presses."""
    for part in _DIALED_PART.finditer(scan.view, match.start(), match.end()):
        if part.group().isdigit():
            ENGLISH_SPELLER.spell(scan, *part.span())
        else:
            scan.emit("star" if part.group() == "*" else "pound", *part.span())
    scan.context.note_number()
    note_english_word(scan.context, "pound")
    return match.end()


def _read_cron(scan: ScanState, match: re.Match[str]) -> int:
    """Read "0 3 * * *", the times of a job."""
    for part in _CRON_PART.finditer(scan.view, *match.span()):
        text = part.group()
        scan.emit(numbers.cardinal(int(text)) if text.isdigit() else _CRON_SIGNS[text], *part.span())
    scan.context.note_number()
    return match.end()


def _read_any_host(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "*." of "*.example.com"."""
    scan.emit("star dot", *match.span())
    note_english_word(scan.context, "dot")
    return match.end()


def _read_star_at_end(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "00*" of "dial 00*", which ends no emphasis."""
    if not _DIALED_BEHIND.search(scan.view, match.start()):
        return None
    return _read_dialed(scan, match)


LETTER_RULES = compile_capital_rules(
    (rf"({any_of(vocabulary.AIRLINE_CODES)}) \d{{3,4}}(?![\w%/:-]|[.,]\d)", _read_airline),
    (
        rf"({any_of(vocabulary.AMBIGUOUS_AIRLINE_CODES)}) \d{{3,4}}(?![\w%/:-]|[.,]\d)",
        _read_airline_of_trip,
    ),
    (r"[A-Z]{3}[UJZ] ?\d{6}[- ]?\d(?!\w)", read_groups),
)
_CRON = r"(?=[^\n]{1,40}\* \*)(?:[\d*][\d*/,-]{0,9} ){4}[\d*][\d*/,-]{0,9}(?![\w*])"
SYMBOL_RULES = compile_rules(
    (_CRON, _read_cron),
    (r"\*\.(?=[a-z\d-]{1,40}\.[a-z])", _read_any_host),
    (r"[*#]{1,4}\d{1,20}(?:\*\d{1,20}){0,5}#[*#]{0,3}(?!\w)", _read_dialed),
)
DIGIT_RULES = compile_rules(
    (_CRON, _read_cron),
    (r"\d{3,20}#(?![\w-]| ?\d)", _read_dialed),
    (r"\d{1,20}(?:[*#]\d{1,20}){1,5}#(?!\w)|\d{1,20}(?:#\d{1,20}\*|\*\d{1,20}#)\d{1,20}(?!\w)", _read_dialed),
    (r"\d{1,20}\*(?![\w*])", _read_star_at_end),
    (r"(\d{1,3})([A-Z])[-–]([A-Z])(?!\w)", _read_seat_range),
    (r"([0-3]?\d)([LRC])(?!\w)", _read_runway),
    # Check digit; the employer "47-3321806"; the recall "23V-412"
    (r"(?:\d{5,12}-\d|\d{2}-\d{7}|\d{2}[A-Z]-\d{3,6})(?![\w-]|[.,]\d)", read_code),
)
