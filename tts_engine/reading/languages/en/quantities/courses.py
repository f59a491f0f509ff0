"""Rules of schools and tax years: "CHEM 101-003", "grades K–5", "TY2026"."""

import re

from ....kit.tokenizer import ScanState, any_of, compile_capital_rules
from .. import vocabulary
from ..spelling import ENGLISH_SPELLER
from ..word_context import note_english_word
from . import number_words as numbers

_MIN_YEAR = 1000
_WORDS_BEFORE_GRADES = frozenset(("grade", "grades", "years", "ages", "class"))
_SCHOOL = re.compile(
    r"\b(?:dismissal|grades?|students|school|kids|teachers?|pupils|classes)\b", re.IGNORECASE
)


def _read_course(scan: ScanState, match: re.Match[str]) -> int:
    """Read "CHEM 101-003", "BIO 110L" and "CS 50"."""
    subject, number, letter, section = match.groups()
    scan.emit(vocabulary.COURSES[subject], match.start(), match.end(1))
    scan.emit(numbers.house_number(int(number)), match.start(2), match.end(2))
    if letter:
        ENGLISH_SPELLER.spell(scan, *match.span(3))
    if section:
        scan.emit("section", match.end(3), match.start(4))
        ENGLISH_SPELLER.spell(scan, *match.span(4))
    scan.context.note_number()
    return match.end()


def _read_grades(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "K–5", and "K-8" after "grades"; a "K-12 school" is said without "to"."""
    is_school = _SCHOOL.search(scan.view) is not None and match.group(2) != "12"
    if match.group(1) == "-" and not is_school and scan.context.previous_word not in _WORDS_BEFORE_GRADES:
        return None
    ENGLISH_SPELLER.spell(scan, match.start(), match.start() + 1)
    scan.emit("to", match.start(1), match.end(1))
    scan.emit(numbers.cardinal(int(match.group(2))), match.start(2), match.end())
    scan.context.note_number()
    return match.end()


def _read_year_with_letters(scan: ScanState, match: re.Match[str]) -> int:
    """Read the tax year "TY2026" and the calendar year "CY 2026"."""
    ENGLISH_SPELLER.spell(scan, match.start(), match.end(1))
    number = int(match.group(2))
    words = numbers.year(number) if number >= _MIN_YEAR else numbers.cardinal(number)
    scan.emit(words, match.start(2), match.end())
    note_english_word(scan.context, "year")
    return match.end()


LETTER_RULES = compile_capital_rules(
    (
        rf"(?=[A-Z]{{2,4}} ?\d)({any_of(vocabulary.COURSES)}) ?([1-9]\d{{1,3}})([A-Z]?)"
        r"(?:-(\d{2,3}))?(?![\w:-])",
        _read_course,
    ),
    (r"K ?([-–]) ?(\d{1,2})(?![\w-])", _read_grades),
    (r"(TY|CY|AY|SY|MY|PY) ?'?((?:19|20)\d\d|\d\d)(?![\w-])", _read_year_with_letters),
)
