"""Pairs of numbers with a slash, neither fractions nor dates: scores, loans, limits, seats, parts."""

import re

from ....kit.patterns import PatternBehind
from ....kit.tokenizer import ScanState, any_of, compile_rules
from .. import vocabulary
from . import number_words as numbers

_PAIR_AHEAD = re.compile(rf"(?:-| )(?:{any_of(vocabulary.NOUNS_AFTER_PAIRS)})\b")
_TIME_SIGNATURES = frozenset("2/4 4/4 5/4 6/4 7/4 6/8 9/8 12/8".split())
_BEAT_AHEAD = re.compile(r" (?:time|meter|metre|beat|signature)\b")
_SHOTS_AHEAD = re.compile(r" (?:FTs?|FGs?|3PTs?|3P|3s|from (?:deep|three|beyond))\b")  # "4/4 FT"
_LIMITS_BEHIND = PatternBehind(r"\b(?:limits?|liability|coverage|injury)\b[^.;!?]{0,30}\Z", re.IGNORECASE)
_ODDS_BEHIND = PatternBehind(r"\b[Oo]dds(?: (?:of|at|are|were))? \Z")
_ODDS_AHEAD = re.compile(r" (?:odds|fav\b|favou?rite|on favou?rite|outsider|each way)")
_CRICKET = re.compile(r"\b(?:overs?|wickets?|innings|declared|stumps|bowled|chasing|target)\b")
_SCORE_BEHIND = PatternBehind(
    r"\b(?:scored?|scoring|got|earned|answered|marks?|grade|graded|result|score of)\b[^.;!?]{0,12}\Z"
)
_SCORE_AHEAD = re.compile(
    r" ?\(\d{1,3}(?:\.\d)?%\)| (?:correct|right|points|marks|on (?:the|your|her|his|my))\b"
)
_SYSTEM_BEHIND = PatternBehind(rf"\b(?:{any_of(vocabulary.SYSTEMS_WITH_VERSIONS)}) \Z")
_LIMITS = re.compile(r"\b(?:limits?|liability|coverage|split|injury)\b", re.IGNORECASE)
_MAX_WICKETS = 10
_USED_BEHIND = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z%]{0,4}) \Z")
_TOTAL_AHEAD = re.compile(r"/ (\d+(?:\.\d+)?) ?([A-Za-z%]{0,4})(?!\w)")


def pair_words(scan: ScanState, match: re.Match[str]) -> str:
    """Return the reading of "5/1 ARM", "9/8 time", "17/20 (85%)", "287/6" or "seats 61/62", or ""."""
    first, second = int(match.group(1)), int(match.group(2))
    if _PAIR_AHEAD.match(scan.view, match.end()) or _is_time_signature(scan, match):
        return f"{numbers.cardinal(first)} {numbers.cardinal(second)}"
    if first <= second and _SHOTS_AHEAD.match(scan.view, match.end()):
        return f"{numbers.cardinal(first)} for {numbers.cardinal(second)}"
    if _SYSTEM_BEHIND.search(scan.view, match.start()):
        return f"{numbers.cardinal(first)} or {numbers.cardinal(second)}"
    if second == first + 1 and scan.context.previous_word in vocabulary.SEAT_NOUNS:
        return f"{numbers.cardinal(first)} and {numbers.cardinal(second)}"
    if _LIMITS_BEHIND.search(scan.view, match.start()) and first % 5 == second % 5 == 0:
        return f"{numbers.cardinal(first)} slash {numbers.cardinal(second)}"
    if _ODDS_BEHIND.search(scan.view, match.start()) or _ODDS_AHEAD.match(scan.view, match.end()):
        return f"{numbers.cardinal(first)} to {numbers.cardinal(second)}"
    if first > _MAX_WICKETS >= second and _CRICKET.search(scan.view):
        return f"{numbers.house_number(first)} for {numbers.cardinal(second)}"
    if second > 4 and first <= second and _is_score(scan, match):
        return f"{numbers.cardinal(first)} out of {numbers.cardinal(second)}"
    return ""


def _is_time_signature(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "9/8" is of music; "3/4 time" may be of work."""
    first, second = int(match.group(1)), int(match.group(2))
    is_sure = first >= second or first > 4 or scan.context.previous_word == "in"
    if second in (2, 4, 8, 16) and is_sure and _BEAT_AHEAD.match(scan.view, match.end()):
        return True
    # "it's in 6/8, key of B"
    stops = scan.view[match.end() : match.end() + 1] in (",", ";", ".", ")", "")
    return scan.context.previous_word == "in" and match.group() in _TIME_SIGNATURES and stops


def _is_score(scan: ScanState, match: re.Match[str]) -> bool:
    behind = _SCORE_BEHIND.search(scan.view, match.start())
    return bool(behind or _SCORE_AHEAD.match(scan.view, match.end()))


def read_limits(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "liability limits of 100/300/50"."""
    limits = [int(group) for group in match.groups()]
    around = scan.view[: match.start()] + scan.view[match.end() : match.end() + 40]
    if not _LIMITS.search(around) or any(limit % 5 for limit in limits):
        return None
    for group, limit in enumerate(limits, 1):
        scan.emit(numbers.cardinal(limit), match.start(group), match.end(group))
        scan.punctuate("," if group < len(limits) else "")
    scan.context.note_number()
    return match.end()


def _read_spaced_slash(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the slash of "3.2 GiB / 8 GiB" as "of", and of "500 ml / 16 oz" as "or"."""
    if not scan.context.after_number:
        return None
    used = _USED_BEHIND.search(scan.view, max(0, match.start() - 20), match.start())
    total = _TOTAL_AHEAD.match(scan.view, match.start())
    is_part = used and total and used[2] == total[2] and float(used[1]) <= float(total[1])
    is_part = is_part or (used and total and used[2][-1:] == total[2][-1:] == "B")  # "412 GB / 1 TB"
    word = "of" if is_part else "or" if total else "slash"
    scan.emit(word, *match.span())
    scan.context.previous_word, scan.context.after_number = word, False
    return match.end()


SYMBOL_RULES = compile_rules((r"(?<= )/ (?=[$£€]?\d)", _read_spaced_slash))
