"""All recognisers in order: what a stretch of text is, and how it is said.

Rules are patterns matched where the scanner stands, each with a reader that says what was matched, word by
word with the characters each word stands for; a reader may decline. The first that reads wins; what nothing
recognises is a word as it stands. Text is folded (``normalize.fold``) and ends where a cut is safe, so that
no rule sees what comes after. Here are also punctuation and the Markdown that language models leave behind.
Source: CommonMark 0.31.
"""

import re
from dataclasses import replace

from ..markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ..tokenizer import WORD, Grammar, Rule, ScanState, compile_rules
from . import amounts, codes, dates, money, vocabulary, words
from .amounts import amount_words
from .words import read_word


def _read_list_number(scan: ScanState, match: re.Match[str]) -> int | None:
    if not scan.context.line_start:
        return None
    scan.emit(amount_words(match.group(1)), match.start(1), match.end(1))
    scan.punctuate(",")
    scan.context.note_number()
    scan.context.sentence_start = True
    return match.end()


def _read_hash(scan: ScanState, match: re.Match[str]) -> int:
    token = match.group(1)
    is_number = token[0].isdigit() or (token.isupper() and any(map(str.isdigit, token)))
    word = "number" if is_number or scan.context.identifier_expected else "hashtag"
    if not (word == "number" and scan.context.previous_word in vocabulary.NUMBER_NOUNS):
        scan.emit(word, match.start(), match.start() + 1)
    if word == "number":
        scan.context.identifier_expected = True
        scan.context.note_word("#")
    return match.start() + 1


def _read_symbol(scan: ScanState, match: re.Match[str]) -> int:
    word = vocabulary.SYMBOLS[match.group()]
    scan.emit(word, match.start(), match.end())
    scan.context.note_word(word)
    return match.end()


def _read_and(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit("and", match.start(), match.end())
    scan.context.note_word("and")
    return match.end()


def _read_telephone_key(scan: ScanState, match: re.Match[str]) -> int | None:
    """A key of a telephone: * and # on their own; but "order #:" announces a number."""
    if match.group() == "#" and scan.context.identifier_expected:
        scan.emit("number", match.start(), match.end())
        scan.context.note_word("number")
        return match.end()
    alone = match.start() == 0 or scan.view[match.start() - 1] in " (\"'"
    if not alone and not (match.group() == "#" and scan.context.after_number):
        return None
    word = "star" if match.group() == "*" else "pound"
    if scan.context.previous_word != word and scan.context.previous_word not in vocabulary.NUMBER_NOUNS:
        scan.emit(word, match.start(), match.end())
        scan.context.note_word(word)
    return match.end()


def _read_star_code(scan: ScanState, match: re.Match[str]) -> int | None:
    """*67."""
    if scan.context.after_number:
        return None
    scan.emit("star", match.start(), match.start() + 1)
    scan.spell(match.start(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_plus_plus(scan: ScanState, match: re.Match[str]) -> int:
    for at in range(match.start(), match.end()):
        scan.emit("plus", at, at + 1)
    return match.end()


_SYMBOLS_AFTER_BLANK = tuple("-–<>~*")


_LINE_RULES = compile_rules(*LINE_START_ROWS, (r"(\d{1,3})[.)] +(?=\S)", _read_list_number))
_MARKUP_RULES = compile_rules(
    *MARKUP_ROWS, (r"&(?:amp;)?", _read_and), (r"\*(\d{1,3})(?![\w*])", _read_star_code)
)
_MARK_RULES = compile_rules(
    (r"#(\w{1,40})", _read_hash),
    (r"[#*](?![\w#*])", _read_telephone_key),
    (r"\+\+", _read_plus_plus),
    *PUNCTUATION_ROWS,
    (r"[@+=%±×÷≈≤≥→§°¢$£€¥₹]", _read_symbol),
)
_SYMBOL_RULES = (
    *_MARKUP_RULES,
    *codes.SYMBOL_RULES,
    *money.SYMBOL_RULES,
    *amounts.SYMBOL_RULES,
    *_MARK_RULES,
)
_LETTER_RULES = (
    *words.ADDRESS_RULES,
    *money.LETTER_RULES,
    *amounts.LETTER_RULES,
    *dates.LETTER_RULES,
    *words.ABBREVIATION_RULES,
    *codes.LETTER_RULES,
    *words.LETTER_RULES,
)
_DIGIT_RULES = (
    *words.ADDRESS_RULES,
    *codes.GROUPED_DIGIT_RULES,
    *dates.DIGIT_RULES,
    *money.DIGIT_RULES,
    *amounts.DIGIT_RULES,
    *codes.FALLBACK_RULES,
    *amounts.PLAIN_NUMBER_RULES,
)


ENGLISH_GRAMMAR = Grammar(_LINE_RULES, _LETTER_RULES, _DIGIT_RULES, _SYMBOL_RULES, (WORD, read_word))


def _read_at(scan: ScanState, at: int, grammar: Grammar) -> int:
    """Read what stands at ``at``; the position after it."""
    character = scan.view[at]
    if character == " " and scan.view[at + 1 : at + 2] not in _SYMBOLS_AFTER_BLANK:
        return at + 1
    if scan.context.line_start:
        end = _apply_first_match(scan, grammar.lines, at)
        if end is not None:
            return end
    if character.isalpha():
        table = grammar.letters
    else:
        table = grammar.digits if character.isdigit() else grammar.symbols
    end = _apply_first_match(scan, table, at)
    if end is not None:
        return end
    end = _apply_first_match(scan, (grammar.word,), at)
    return at + 1 if end is None else end


def _apply_first_match(scan: ScanState, table: tuple[Rule, ...], at: int) -> int | None:
    for pattern, read in table:
        match = pattern.match(scan.view, at)
        if match and match.end() > at:
            end = read(scan, match)
            if end is not None:
                return end
    return None


def read(scan: ScanState, limit: int, grammar: Grammar = ENGLISH_GRAMMAR) -> int:
    """Read up to ``limit``; where the last thing read ends."""
    at = 0
    while at < limit:
        at = _read_at(scan, at, grammar)
    return at


def read_stable_prefix(scan: ScanState, limit: int, grammar: Grammar = ENGLISH_GRAMMAR) -> int:
    """Read what no later text can change: up to the last blank before ``limit`` that is not inside a reading.

    Without one, up to the first blank after it, or all. Returns where to cut; words after it are dropped.
    """
    at, cut, kept, context = 0, 0, 0, scan.context
    while at < len(scan.view) and (at < limit or not cut):
        at = _read_at(scan, at, grammar)
        if scan.view[at : at + 1] == " " and len(scan.words) > kept and (at <= limit or not cut):
            cut, kept, context = at, len(scan.words), replace(scan.context)
    if not cut:
        return at
    del scan.words[kept:]
    scan.context = context
    return cut
