"""Rules of numbers of which only the last digits are written: "****3307", "Visa x1093", "ends in 4417"."""

import re

from ....kit.tokenizer import ScanState, compile_rules
from ..codes import is_counted
from ..spelling import ENGLISH_SPELLER

_CARD_BEHIND = re.compile(
    r"\b(?:ending(?: in)?|ends in|card|acct\.?|account|visa|mastercard|amex|discover|checking|savings|debit)"
    r":? \(?\Z",
    re.IGNORECASE,
)
# The group is the noun of a number: "the card that ended in", "her number ends with".
_NUMBERED_NOUN = (
    r"number|card|account|acct\.?|phone|cell|visa|mastercard|amex|ssn|id|vin|plate|code|one|yours"
)
_ENDING_BEHIND = re.compile(
    rf"(?:\b({_NUMBERED_NOUN})\b[^.;!?]{{0,40}} )?"
    r"\b(?:end|ends|ended|ending)(?: in| with| w/)?(?: the digits)? \Z",
    re.IGNORECASE,
)
_LAST_FOUR_BEHIND = re.compile(
    r"\blast (?:four|4|five|5)(?: of [^.;!?\d]{1,30})?(?::| is| are| was| as) \Z", re.IGNORECASE
)
_YEARS = range(1100, 2100)  # "the war ended in 1865"
_MIN_MASK = 3  # signs that are a mask wherever they are


def _read_masked_number(scan: ScanState, match: re.Match[str]) -> int:
    """Read the digits after the mask."""
    ENGLISH_SPELLER.spell(scan, match.start(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_number_with_x(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "Visa x1093", "account ...4821" and "XXXX-4821"."""
    needs_card = scan.view[match.start()] == "." or match.start(1) - match.start() < _MIN_MASK
    if needs_card and not _CARD_BEHIND.search(scan.view, max(0, match.start() - 20), match.start()):
        return None
    return _read_masked_number(scan, match)


def _read_last_digits(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "her card ends in 4417"; without the noun of a number only what is no year and has four digits."""
    behind = _ending_behind(scan, match)
    if behind is None or is_counted(scan.next_word(match.end())):
        return None
    digits = match.group(1)
    is_amount = len(digits) != 4 or digits.endswith("000") or int(digits) in _YEARS
    if is_amount and not behind.group(1):
        return None
    return _read_masked_number(scan, match)


def _read_last_four(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "the last 4 are 4417"."""
    if scan.context.previous_word not in ("0", "is", "are", "was", "as"):
        return None
    if is_counted(scan.next_word(match.end())):
        return None
    behind = _LAST_FOUR_BEHIND.search(scan.view, max(0, match.start() - 60), match.start())
    return _read_masked_number(scan, match) if behind else None


def _read_last_digits_with_dash(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "-0938" of "ending in -0938"."""
    return _read_masked_number(scan, match) if _ending_behind(scan, match) else None


def _ending_behind(scan: ScanState, match: re.Match[str]) -> re.Match[str] | None:
    """Return the "card ending in " before the match."""
    if scan.context.previous_word not in ("in", "with", "ending", "digits"):
        return None
    return _ENDING_BEHIND.search(scan.view, max(0, match.start() - 80), match.start())


DIGIT_RULES = compile_rules(
    (r"(\d{3,5})(?![\w%°/:-]|[.,]\d| \d)", _read_last_digits),
    (r"(\d{4,5})(?![\w%°/:-]|[.,]\d| \d)", _read_last_four),
)
LETTER_RULES = compile_rules(
    (r"(?:[xX]{1,4}[ -]?){1,4}(\d{3,5})(?![\w-])", _read_number_with_x),
)
SYMBOL_RULES = compile_rules(
    (r"(?:\*{4}[ -]?){1,4}(\d{3,5})(?![\w*-])", _read_masked_number),
    (r"(?:•{2,4}[ -]?){1,4}(\d{3,5})(?![\w-])", _read_masked_number),
    (r"\.{3}(\d{4})(?![\w-])", _read_number_with_x),
    (r"-(\d{3,5})(?![\w%°-]|[.,]\d)", _read_last_digits_with_dash),
)
