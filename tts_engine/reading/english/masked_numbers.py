"""Rules of numbers of which only the last digits are written: "****3307", "Visa x1093", "XXXX-4821"."""

import re

from ..tokenizer import ScanState, compile_rules
from .spelling import ENGLISH_SPELLER

_CARD_BEHIND = re.compile(
    r"\b(?:ending(?: in)?|ends in|card|acct\.?|account|visa|mastercard|amex|discover|checking|savings|debit)"
    r":? \Z",
    re.IGNORECASE,
)
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


LETTER_RULES = compile_rules(
    (r"(?:[xX]{1,4}[ -]?){1,4}(\d{3,5})(?![\w-])", _read_number_with_x),
)
SYMBOL_RULES = compile_rules(
    (r"(?:\*{4}[ -]?){1,4}(\d{3,5})(?![\w*-])", _read_masked_number),
    (r"(?:•{2,4}[ -]?){1,4}(\d{3,5})(?![\w-])", _read_masked_number),
    (r"\.{3}(\d{4})(?![\w-])", _read_number_with_x),
)
