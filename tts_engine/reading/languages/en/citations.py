"""Rules of references to texts: "Matt. 5:3–10", "p. 12 ff."

Source: The SBL Handbook of Style, second edition, for the abbreviations of the books of the Bible.
"""

import re

from ...kit.lazy_pattern import PatternBehind
from ...kit.tokenizer import ScanState, any_of, compile_capital_rules, compile_rules
from . import vocabulary
from .quantities import number_words as numbers
from .word_context import note_english_word

_PAGE_BEHIND = PatternBehind(
    r"(?:\b(?:p|pp|pg|para|sec|ch|v|vv|col)\.|\b(?:pages?|paragraphs?|sections?|lines?|verses?|columns?)|§§?)"
    r" ?[\d.]{1,7} ?\Z",
    re.IGNORECASE,
)
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


_BOOK = any_of(vocabulary.BOOKS_OF_THE_BIBLE)
_VERSES = r"(\d{1,3}):(\d{1,3})(?: ?[-–] ?(\d{1,3}))?(?![\w:]|\.\d)(?! ?[AaPp]\.?[Mm])"
LETTER_RULES = (
    *compile_capital_rules((rf"()({_BOOK})\.? {_VERSES}", _read_verses)),
    *compile_rules((r"(ff?)(?:\.(?! [A-Z])|(?![\w.'-]))", _read_following_pages)),
)
DIGIT_RULES = compile_rules((rf"([123]) ({_BOOK})\.? {_VERSES}", _read_verses))
