"""All recognisers in order: what a stretch of text is, and how it is said.

Rules are patterns matched where the scanner stands, each with a reader that says what was matched, word by
word with the characters each word stands for; a reader may decline. The first that reads wins; what nothing
recognises is a word as it stands. Text is folded (``normalize.fold``) and ends where a cut is safe, so that
no rule sees what comes after. Here are also punctuation and the Markdown that language models leave behind.
Source: CommonMark 0.31.
"""

import re
from dataclasses import replace

from . import amounts, codes, dates, money, vocabulary, words
from .amounts import number_words
from .scan import Grammar, Row, Rule, Scan, rules
from .words import WORD, read_word


def _skip(scan: Scan, match: re.Match[str]) -> int:
    return match.end()


def _read_list_number(scan: Scan, match: re.Match[str]) -> int | None:
    if not scan.memory.line_start:
        return None
    scan.say(number_words(match.group(1)), match.start(1), match.end(1))
    scan.pause(",")
    scan.memory.hear_number()
    scan.memory.sentence_start = True
    return match.end()


def _at_line_start(scan: Scan, match: re.Match[str]) -> int | None:
    return match.end() if scan.memory.line_start else None


def _read_hash(scan: Scan, match: re.Match[str]) -> int:
    chunk = match.group(1)
    is_number = chunk[0].isdigit() or (chunk.isupper() and any(map(str.isdigit, chunk)))
    word = "number" if is_number or scan.memory.named else "hashtag"
    if not (word == "number" and scan.memory.previous in vocabulary.NUMBER_NOUNS):
        scan.say(word, match.start(), match.start() + 1)
    if word == "number":
        scan.memory.named = True
        scan.memory.hear("#")
    return match.start() + 1


def _read_symbol(scan: Scan, match: re.Match[str]) -> int:
    word = vocabulary.SYMBOLS[match.group()]
    scan.say(word, match.start(), match.end())
    scan.memory.hear(word)
    return match.end()


def _read_and(scan: Scan, match: re.Match[str]) -> int:
    scan.say("and", match.start(), match.end())
    scan.memory.hear("and")
    return match.end()


def _read_key(scan: Scan, match: re.Match[str]) -> int | None:
    """A key of a telephone: * and # on their own; but "order #:" announces a number."""
    if match.group() == "#" and scan.memory.named:
        scan.say("number", match.start(), match.end())
        scan.memory.hear("number")
        return match.end()
    alone = match.start() == 0 or scan.view[match.start() - 1] in " (\"'"
    if not alone and not (match.group() == "#" and scan.memory.numeric):
        return None
    word = "star" if match.group() == "*" else "pound"
    if scan.memory.previous != word and scan.memory.previous not in vocabulary.NUMBER_NOUNS:
        scan.say(word, match.start(), match.end())
        scan.memory.hear(word)
    return match.end()


def _read_star_code(scan: Scan, match: re.Match[str]) -> int | None:
    """*67."""
    if scan.memory.numeric:
        return None
    scan.say("star", match.start(), match.start() + 1)
    scan.spell(match.start(1), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_heart(scan: Scan, match: re.Match[str]) -> int | None:
    return None if scan.memory.numeric else match.end()


def _read_plus_plus(scan: Scan, match: re.Match[str]) -> int:
    for at in range(match.start(), match.end()):
        scan.say("plus", at, at + 1)
    return match.end()


def _read_pause(scan: Scan, match: re.Match[str]) -> int:
    mark = match.group()[0]
    scan.memory.numeric = scan.memory.numeric and mark == ")"
    scan.memory.after_comma = mark == ","
    scan.pause("," if mark in "()|" else "—" if mark in "—–-" else mark)
    if mark in "!?":
        scan.memory.end_sentence()
    elif mark == ":" and scan.memory.code_words_left:
        scan.memory.fresh = True
    return match.end()


def _read_stop(scan: Scan, match: re.Match[str]) -> int:
    trailing_off = len(match.group()) > 1
    scan.pause("," if trailing_off else ".")
    if not trailing_off:
        scan.memory.end_sentence()
    scan.memory.line_start = False
    return match.end()


def _read_newline(scan: Scan, match: re.Match[str]) -> int:
    if scan.words and scan.words[-1].punctuation in ("", ",", "—"):
        scan.pause(".")
    scan.memory.end_sentence()
    scan.memory.line_start = True
    return match.end()


_SYMBOLS_AFTER_BLANK = tuple("-–<>~*")


# The rows that hold in every language.
LINES: tuple[Row, ...] = (
    (r"(?:[-*_=~] ?){3,}(?=\n|$)", _at_line_start),
    (r"\|?[ :|-]*-{2,}[ :|-]*(?=\n|$)", _at_line_start),
    (r"```[\w+-]*(?=\n|$)|~~~[\w+-]*(?=\n|$)", _at_line_start),
    (r"#{1,6} +", _at_line_start),
    (r"[-*+•>] +", _at_line_start),
)
MARKUP: tuple[Row, ...] = (
    (r"\n", _read_newline),
    (r"!?\[(?=[^\[\]\n]{0,200}\]\()", _skip),
    (r"\]\((?:[^()\s]|\([^()\s]{0,60}\)){0,300}\)", _skip),
    (r"</?[A-Za-z][^<>\n]{0,60}>", _skip),
    (r"&(?:nbsp|lt|gt|quot|#39);", _skip),
    (r"[:;=]['-]?[)(DPpO|](?![\w])", _skip),
    (r" ?<3(?![\w.])", _read_heart),
)
PAUSES: tuple[Row, ...] = (
    (r"\.+", _read_stop),
    (r"--+|—+", _read_pause),
    (r"[-–](?= |$)", _read_pause),
    (r"[,;:!?()|]", _read_pause),
)
_LINE_RULES = rules(*LINES, (r"(\d{1,3})[.)] +(?=\S)", _read_list_number))
_MARKUP_RULES = rules(*MARKUP, (r"&(?:amp;)?", _read_and), (r"\*(\d{1,3})(?![\w*])", _read_star_code))
_MARK_RULES = rules(
    (r"#(\w{1,40})", _read_hash),
    (r"[#*](?![\w#*])", _read_key),
    (r"\+\+", _read_plus_plus),
    *PAUSES,
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
    *codes.LATE_RULES,
    *amounts.PLAIN_NUMBER_RULES,
)


ENGLISH = Grammar(_LINE_RULES, _LETTER_RULES, _DIGIT_RULES, _SYMBOL_RULES, (WORD, read_word))


def _read_at(scan: Scan, at: int, grammar: Grammar) -> int:
    """Read what stands at ``at``; the position after it."""
    character = scan.view[at]
    if character == " " and scan.view[at + 1 : at + 2] not in _SYMBOLS_AFTER_BLANK:
        return at + 1
    if scan.memory.line_start:
        end = _try(scan, grammar.lines, at)
        if end is not None:
            return end
    if character.isalpha():
        table = grammar.letters
    else:
        table = grammar.digits if character.isdigit() else grammar.symbols
    end = _try(scan, table, at)
    if end is not None:
        return end
    end = _try(scan, (grammar.word,), at)
    return at + 1 if end is None else end


def _try(scan: Scan, table: tuple[Rule, ...], at: int) -> int | None:
    for pattern, read in table:
        match = pattern.match(scan.view, at)
        if match and match.end() > at:
            end = read(scan, match)
            if end is not None:
                return end
    return None


def read(scan: Scan, limit: int, grammar: Grammar = ENGLISH) -> int:
    """Read up to ``limit``; where the last thing read ends."""
    at = 0
    while at < limit:
        at = _read_at(scan, at, grammar)
    return at


def read_settled(scan: Scan, limit: int, grammar: Grammar = ENGLISH) -> int:
    """Read what no later text can change: up to the last blank before ``limit`` that is not inside a reading.

    Without one, up to the first blank after it, or all. Returns where to cut; words after it are dropped.
    """
    at, cut, kept, memory = 0, 0, 0, scan.memory
    while at < len(scan.view) and (at < limit or not cut):
        at = _read_at(scan, at, grammar)
        if scan.view[at : at + 1] == " " and len(scan.words) > kept and (at <= limit or not cut):
            cut, kept, memory = at, len(scan.words), replace(scan.memory)
    if not cut:
        return at
    del scan.words[kept:]
    scan.memory = memory
    return cut
