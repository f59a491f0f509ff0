"""Rules of references to texts: "Matt. 5:3–10", "p. 12 ff."

Source: The SBL Handbook of Style, second edition, for the abbreviations of the books of the Bible.
"""

import re

from ...kit.patterns import PatternBehind
from ...kit.tokenizer import ScanState, any_of, compile_capital_rules, compile_rules
from . import vocabulary
from .quantities import number_words as numbers
from .spelling import ENGLISH_SPELLER
from .word_context import note_english_word, read_as

_PAGE_BEHIND = PatternBehind(
    r"(?:\b(?:p|pp|pg|para|sec|ch|v|vv|col)\.|\b(?:pages?|paragraphs?|sections?|lines?|verses?|columns?)|§§?)"
    r" ?[\d.]{1,7} ?\Z",
    re.IGNORECASE,
)
# "Fed. R. Civ. P. 12(b)(6)"
_RULES_OF_COURT = {
    "App": "appellate procedure",
    "Bankr": "bankruptcy procedure",
    "Civ": "civil procedure",
    "Crim": "criminal procedure",
    "Evid": "evidence",
}
# "347 U.S. 483", "550 F.3d 1023": the reporters that are no initials
_SERIES = {"2d": "second", "3d": "third", "4th": "fourth"}
_REPORTERS = {"F.": "F", "F. Supp.": "F Supp", "S. Ct.": "Supreme Court", "L. Ed.": "L E D"}
_SECTION_BEHIND = PatternBehind(r"§§? ?(?:\d{1,5}[a-z]?[-–])?\Z")
_WORDS_BEFORE_SECTIONS = frozenset(("under", "by", "in", "see", "and", "per", "breach"))
_FOLLOWING = {"f": "and the next one", "ff": "and following"}


def _read_verses(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "John 3:16", "Ps. 23" and "1 Cor. 13:4–7"; the names that are also of persons need a verse."""
    volume, book, chapter, verse, last = match.groups()
    name = vocabulary.BOOKS_OF_THE_BIBLE[book]
    if volume:
        scan.emit(numbers.ordinal(int(volume)), *match.span(1))
    scan.emit(name, *match.span(2))
    scan.emit(numbers.cardinal(int(chapter)), *match.span(3))
    if verse:
        scan.emit(numbers.cardinal(int(verse)), *match.span(4))
    if last:
        scan.emit("to", match.start(5) - 1, match.start(5))
        scan.emit(numbers.cardinal(int(last)), *match.span(5))
    scan.context.note_number()
    return match.end()


def _read_following_pages(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "ff." of "p. 12 ff." and the "f." of "§ 3 f."."""
    if not _PAGE_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit(_FOLLOWING[match.group(1)], *match.span())
    note_english_word(scan.context, "following")
    return match.end()


def _read_rule_of_court(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "Fed. R. Civ. P." before the number of a rule."""
    court = "federal " if match.group(1) else ""
    scan.emit(f"{court}rule of {_RULES_OF_COURT[match.group(2)]}", *match.span())
    note_english_word(scan.context, "rule")
    return match.end()


def _read_section_of_act(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "s. 21" of an Act, and without a stop the "s 21A" of "under s 21A"."""
    is_announced = "." in match.group() or scan.context.previous_word in _WORDS_BEFORE_SECTIONS
    if scan.context.after_number or not is_announced:
        return None
    scan.emit("section", *match.span())
    note_english_word(scan.context, "section")
    return match.end()


def _read_lettered_section(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "§ 1681x" and the end of "§§ 1681-1681x", in which "x" and "g" are no units."""
    if not _SECTION_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit(numbers.house_number(int(match.group(1))), *match.span(1))
    ENGLISH_SPELLER.spell(scan, *match.span(2))
    scan.context.note_number()
    return match.end()


def _read_circuit(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "9th Cir." of a court, and the "2d Cir."."""
    scan.emit(numbers.ordinal(int(match.group(1))), *match.span(1))
    scan.emit("circuit", match.start(2), match.end())
    note_english_word(scan.context, "circuit")
    return match.end()


def _read_reporter(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "F.3d" of "550 F.3d 1023"."""
    scan.emit(_REPORTERS[match.group(1)], *match.span(1))
    if match.group(2):
        scan.emit(_SERIES[match.group(2)], *match.span(2))
    note_english_word(scan.context, "reporter")
    return match.end()


def _read_case_of_state(scan: ScanState, match: re.Match[str]) -> int:
    """Read "2024-Ohio-1187", the number of an opinion."""
    scan.emit(numbers.year(int(match.group(1))), *match.span(1))
    scan.emit(match.group(2), *match.span(2))
    ENGLISH_SPELLER.spell_in_groups(scan, *match.span(3))
    scan.context.note_number()
    return match.end()


_BOOK = any_of(vocabulary.BOOKS_OF_THE_BIBLE)
_VERSES = r"(\d{1,3}):(\d{1,3})(?: ?[-–] ?(\d{1,3}))?(?![\w:]|\.\d)(?! ?[AaPp]\.?[Mm])"
LETTER_RULES = (
    *compile_capital_rules(
        (rf"()({_BOOK})\.? {_VERSES}", _read_verses),
        (rf"(Fed\. ?)?R\. ?({any_of(_RULES_OF_COURT)})\. ?(?:P\. ?)?(?=\d)", _read_rule_of_court),
        (r"Fed\. Cir\.", read_as("federal circuit")),
        (r"(?<=D\.C\. )Cir\.", read_as("circuit")),
        (rf"({any_of(_REPORTERS)}) ?({any_of(_SERIES)})?(?= \d)", _read_reporter),
    ),
    *compile_rules(
        (r"nn?\. ?(?=\d)", read_as("note")),
        (r"s(?:\. ?| )(?=\d{1,4}[A-Z]{0,2}(?![\w/]|:\d))", _read_section_of_act),
    ),
    *compile_rules((r"(ff?)(?:\.(?! [A-Z])|(?![\w.'-]))", _read_following_pages)),
)
DIGIT_RULES = compile_rules(
    (r"(\d{1,5})([a-z])(?![\w'])", _read_lettered_section),
    (r"((?:19|20)\d\d)-([A-Z][a-z]{3,9})-(\d{1,5})(?![\w-])", _read_case_of_state),
    (rf"([123]) ({_BOOK})\.? {_VERSES}", _read_verses),
    (r"(\d{1,2})(?:st|nd|rd|th|d) (Cir\.)", _read_circuit),
)
