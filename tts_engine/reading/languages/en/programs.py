"""Rules of programs that a text quotes: "if (!done || late)", "async fn", "return x * 2"."""

import re

from ...kit.patterns import PatternBehind
from ...kit.tokenizer import ScanState, compile_rules
from .spelling import ENGLISH_SPELLER
from .word_context import note_english_word, read_as

_CONDITION_BEHIND = PatternBehind(
    r"(?:\b(?:if|elif|while|until|assert|return)(?: ?\(| )|[=?:] |(?:&&|\|\|) ?)\(?!?\Z"
)
_CONDITION_AHEAD = re.compile(r"[\w.]{1,40}(?:\(\))? (?:&&|\|\|)")
_RETURNED_BEHIND = PatternBehind(r"\breturn [\w.()+/ -]{1,40}\Z")


def _read_not(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "!" of "if (!done)"; elsewhere it ends a sentence or is part of a command."""
    behind = _CONDITION_BEHIND.search(scan.view, match.start())
    if not (behind or _CONDITION_AHEAD.match(scan.view, match.end())):
        return None
    scan.emit("not", *match.span())
    note_english_word(scan.context, "not")
    return match.end()


def _read_product(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the sign of "return x * 2"."""
    if not _RETURNED_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit("times", *match.span())
    note_english_word(scan.context, "times")
    return match.end()


def _read_alias(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "np" of "import numpy as np", which is no problem elsewhere."""
    ENGLISH_SPELLER.spell(scan, *match.span())
    note_english_word(scan.context, match.group())
    return match.end()


LETTER_RULES = compile_rules(
    (r"(?<=\bas )np(?![\w'])|np(?=\.[a-z])", _read_alias),
    (
        r"(?:(?<=async )|(?<=pub )|(?<=unsafe )|(?<=const ))fn(?![\w'])|fn(?= [a-z_]\w{0,40}[(<])",
        read_as("function"),
    ),
)
SYMBOL_RULES = compile_rules(
    (r"!(?=[A-Za-z_(])(?!important)", _read_not),
    (r"(?:(?<=[\w)\]] )|(?<=['\"] ))\|\|(?= [\w!('\"])", read_as("or")),
    (r"(?<=[\w)] )\*(?= [\w(])", _read_product),
)
