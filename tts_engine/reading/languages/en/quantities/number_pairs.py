"""Pairs of numbers with a slash that are neither fractions nor dates: scores, loans, limits, seats."""

import re

from ....kit.lazy_pattern import PatternBehind
from ....kit.tokenizer import ScanState, any_of
from .. import vocabulary
from . import number_words as numbers

_PAIR_AHEAD = re.compile(rf"(?:-| )(?:{any_of(vocabulary.NOUNS_AFTER_PAIRS)})\b")
_LIMITS_BEHIND = PatternBehind(r"\b(?:limits?|liability|coverage|injury)\b[^.;!?]{0,30}\Z", re.IGNORECASE)
_CRICKET = re.compile(r"\b(?:overs?|wickets?|innings|declared|stumps|bowled|chasing|target)\b")
_SCORE_BEHIND = PatternBehind(
    r"\b(?:scored?|scoring|got|earned|answered|marks?|grade|graded|result|score of)\b[^.;!?]{0,12}\Z"
)
_SCORE_AHEAD = re.compile(
    r" ?\(\d{1,3}(?:\.\d)?%\)| (?:correct|right|points|marks|on (?:the|your|her|his|my))\b"
)
_SYSTEM_BEHIND = PatternBehind(rf"\b(?:{any_of(vocabulary.SYSTEMS_WITH_VERSIONS)}) \Z")
_MAX_WICKETS = 10


def pair_words(scan: ScanState, match: re.Match[str]) -> str:
    """Return the reading of "5/1 ARM", "limits of 100/300", "17/20 (85%)", "287/6", "seats 61/62", or ""."""
    first, second = int(match.group(1)), int(match.group(2))
    if _PAIR_AHEAD.match(scan.view, match.end()):
        return f"{numbers.cardinal(first)} {numbers.cardinal(second)}"
    if _SYSTEM_BEHIND.search(scan.view, match.start()):
        return f"{numbers.cardinal(first)} or {numbers.cardinal(second)}"
    if second == first + 1 and scan.context.previous_word in vocabulary.SEAT_NOUNS:
        return f"{numbers.cardinal(first)} and {numbers.cardinal(second)}"
    if _LIMITS_BEHIND.search(scan.view, match.start()) and first % 5 == second % 5 == 0:
        return f"{numbers.cardinal(first)} slash {numbers.cardinal(second)}"
    if first > _MAX_WICKETS >= second and _CRICKET.search(scan.view):
        return f"{numbers.house_number(first)} for {numbers.cardinal(second)}"
    if second > 4 and first <= second and _is_score(scan, match):
        return f"{numbers.cardinal(first)} out of {numbers.cardinal(second)}"
    return ""


def _is_score(scan: ScanState, match: re.Match[str]) -> bool:
    behind = _SCORE_BEHIND.search(scan.view, match.start())
    return bool(behind or _SCORE_AHEAD.match(scan.view, match.end()))
