"""The grammar of English: all rules in the order in which they are tried, and the rules of signs.

Rules of words, numbers, dates, money and codes are in the modules beside this one. Order matters: a date is
tried before a fraction, a phone number before a range.
"""

import re

from ...kit.markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ...kit.mathematics.finder import with_mathematics
from ...kit.patterns import PatternBehind
from ...kit.tokenizer import WORD, Grammar, ScanState, any_of, compile_capital_rules, compile_rules
from . import (
    abbreviations,
    carrier_codes,
    citations,
    codes,
    dates,
    programs,
    slashed_words,
    vocabulary,
    weekdays,
    words,
)
from .quantities import (
    amounts,
    courses,
    durations,
    masked_numbers,
    money,
    number_pairs,
    plural_numbers,
    scores,
    sizes,
    slashes,
    units,
)
from .quantities import number_words as numbers
from .spelling import CALL_WORDS_ROW, ENGLISH_SPELLER, HOST_ROWS, PATH_ROWS
from .word_context import note_english_word, read_as

_COMMAND_BEHIND = PatternBehind(
    r"(?:\A|[\s(])`[^`]{0,120}[ `]\Z"
    r"|\b(?:npm|npx|yarn|git|docker|pip|kubectl|curl|flag|option|cargo|ls|rm|cp|mv|mkdir|tar|grep|chmod"
    r"|ssh|scp|sudo|make|python3?|node|psql|apt|brew|systemctl|journalctl|tail|ps|du|df|helm|terraform|aws|gcloud"
    r"|ansible|poetry|uv|pytest|gcc|ffmpeg|rsync|wget|ping|dig|nslookup|traceroute|netstat|chown|sed|awk)\b"
    r"(?:[^.;!?]|\.(?=[\w/])){0,60} \Z"
)
_OPTION_BEHIND = PatternBehind(
    r"(?:\A|[ (])--?[a-z][\w-]{0,30},? (?:or |and )?\Z|\b(?:flags?|options?|switch) \Z"
    r"|\bthen (?:push|commit|install|checkout|build|apply|rebase|merge|run) \Z"
)
_USE_BEHIND = PatternBehind(
    r"\b(?:us(?:e|ed|ing)|with|without|either|or|pass(?:ing)?|add(?:ing)?|set(?:ting)?|run|try|the|via) \Z",
    re.IGNORECASE,
)
_COMMAND_WITH_NUMBER_BEHIND = PatternBehind(
    r"(?:\A|[\s(])`[^`]{0,120} \Z"
    r"|\b(?:p?kill|killall|head|tail|nice|xargs|git log)(?: -{1,2}[\w=]{1,20}){0,4} \Z"
)
# "what's your #?"
_NUMBER_MEANT_BEHIND = PatternBehind(
    r"\b(?:[Mm]y|[Yy]our|[Hh]is|[Hh]er|[Tt]heir|[Oo]ur|phone|cell|contact|callback) \Z"
)
_DIALLED_BEHIND = PatternBehind(r"\b(?:press|dial|enter|hit|key|push|then|or) \Z", re.IGNORECASE)
_HASHTAG_PART = re.compile(r"\d+|[^\W\d_]+")
_NOUN_BEFORE_HASH = re.compile(
    r"\b(?!(?i:press|dial|push|hit|enter|the|then|or|and|by|with|to)\b)[A-Za-z]+ \Z"
)
_NUMBER_AFTER_HASH = re.compile(r" [A-Z]{0,4}-?\d{2}|:")
_REGULAR_EXPRESSION_BEHIND = PatternBehind(r"(?:[\^\\][^\s$]{1,60}|[}\])+*?])\Z")
_MAX_STAR_CODE = 3  # digits of a code that is dialled; a gate's code is longer
_WORDS_BEFORE_STARS = frozenset(("gate", "code", "door", "press", "dial", "enter", "pin", "then"))
_WORDS_BEFORE_PORTS = frozenset(("on", "port", "at", "to", "via", "listening", "bind", "expose"))
_CELL_BEHIND = PatternBehind(r"\b[A-Z]{1,2}\d{1,5}\Z")
_COLOR_BEHIND = re.compile(r"\b(?:colou?r|shade|hex|background)s?\b", re.IGNORECASE)


def _read_hash(scan: ScanState, match: re.Match[str]) -> int:
    """Read the # of "#5" or "order #A1" as "number", and of "#help" as "hashtag"."""
    token = match.group(1)
    is_number = token[0].isdigit() or (token.isupper() and any(map(str.isdigit, token)))
    word = "number" if is_number or scan.context.identifier_expected else "hashtag"
    if word == "hashtag" and token[0].isalpha() and token.isalnum() and not token.islower():
        return _read_hashtag(scan, match)
    if not (word == "number" and scan.context.previous_word in vocabulary.NUMBER_NOUNS):
        scan.emit(word, match.start(), match.start() + 1)
    if word == "number":
        scan.context.identifier_expected = True
        note_english_word(scan.context, "#")
    return match.start() + 1


def _read_hashtag(scan: ScanState, match: re.Match[str]) -> int:
    """Read "#ClassOf2027" word by word."""
    scan.emit("hashtag", match.start(), match.start(1))
    for part in _HASHTAG_PART.finditer(scan.view, match.start(1), match.end(1)):
        text = part.group()
        if text.isdigit():
            is_year = len(text) == 4 and text[:2] in ("19", "20")
            words = numbers.year(int(text)) if is_year else numbers.amount_words(text)
            scan.emit(words, part.start(), part.end())
        else:
            ENGLISH_SPELLER.read_address_word(scan, part.start(), part.end())
    note_english_word(scan.context, "hashtag")
    return match.end()


def _read_color(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "#FF8800" of "color #FF8800"."""
    if not _COLOR_BEHIND.search(scan.view, 0, match.start()):
        return None
    scan.emit("hash", match.start(), match.start() + 1)
    ENGLISH_SPELLER.spell(scan, match.start() + 1, match.end())
    scan.context.note_number()
    return match.end()


def _read_symbol(scan: ScanState, match: re.Match[str]) -> int:
    word = vocabulary.SYMBOLS[match.group()]
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_telephone_key(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a lone * or # as a telephone key; the # of "order #:" and "group # 0077812" announces a number."""
    announced = scan.context.code_just_announced and scan.next_visible(match.end()).isalnum()
    if _NUMBER_AFTER_HASH.match(scan.view, match.end()):
        announced = announced or bool(_NOUN_BEFORE_HASH.search(scan.view, 0, match.start()))
    if match.group() == "#" and (scan.context.identifier_expected or announced):
        scan.emit("number", match.start(), match.end())
        note_english_word(scan.context, "number")
        return match.end()
    if match.group() == "#" and _NUMBER_MEANT_BEHIND.search(scan.view, match.start()):
        scan.emit("number", *match.span())
        note_english_word(scan.context, "number")
        return match.end()
    alone = match.start() == 0 or scan.view[match.start() - 1] in " (\"'"
    ends_code = match.group() == "#" or scan.view[match.start() - 1 : match.start()] == "-"  # "4-7-1-*"
    if not alone and not (ends_code and scan.context.after_number):
        return None
    word = "star" if match.group() == "*" else "pound"
    if scan.context.previous_word != word and scan.context.previous_word not in vocabulary.NUMBER_NOUNS:
        scan.emit(word, match.start(), match.end())
        note_english_word(scan.context, word)
    return match.end()


def _read_telephone_keys(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "press ##"."""
    if not _DIALLED_BEHIND.search(scan.view, match.start()):
        return None
    word = "star" if match.group(1) == "*" else "pound"
    for at in range(match.start(), match.end()):
        scan.emit(word, at, at + 1)
    note_english_word(scan.context, word)
    return match.end()


def _read_star_code(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read *67, a code that a caller dials."""
    is_long = len(match.group(1)) > _MAX_STAR_CODE and scan.context.previous_word not in _WORDS_BEFORE_STARS
    if scan.context.after_number or is_long:
        return None
    scan.emit("star", match.start(), match.start() + 1)
    ENGLISH_SPELLER.spell(scan, match.start(1), match.end())
    scan.context.note_number()
    return match.end()


def _read_option(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the dashes of an option: "npm install --save", "either --verbose or -v"."""
    shown_by = (_COMMAND_BEHIND, _OPTION_BEHIND, *((_USE_BEHIND,) if match.group() == "--" else ()))
    if not any(behind.search(scan.view, match.start()) for behind in shown_by):
        return None
    for at in range(match.start(), match.end()):
        scan.emit("dash", at, at + 1)
    note_english_word(scan.context, "dash")
    if len(match.group()) > 1:
        return match.end()
    ENGLISH_SPELLER.spell(scan, match.end(), match.end() + 1)
    return match.end() + 1


def _read_menu(scan: ScanState, match: re.Match[str]) -> int:
    """Read the sign of "Settings > Privacy" as a pause."""
    scan.punctuate(",")
    return match.end()


def _read_pipe(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the sign between two commands: "ps aux | grep node"."""
    if not _COMMAND_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit("pipe", *match.span())
    note_english_word(scan.context, "pipe")
    return match.end()


def _read_number_of_option(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the dash of "kill -9" and "`git log -5`"."""
    if not _COMMAND_WITH_NUMBER_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit("dash", *match.span())
    note_english_word(scan.context, "dash")
    return match.end()


def _read_options(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the letters of "ls -la" one by one."""
    if _read_option(scan, match) is None:
        return None
    del scan.words[-len(match.group()) + 1 :]
    ENGLISH_SPELLER.spell(scan, *match.span(1))
    return match.end()


def _read_folder(scan: ScanState, match: re.Match[str]) -> int:
    """Read "~/.ssh/config" and "./build"."""
    return ENGLISH_SPELLER.read_address(scan, match)


def _read_dot(scan: ScanState, match: re.Match[str]) -> int:
    """Read the stop of "the .env file"."""
    scan.emit("dot", *match.span())
    note_english_word(scan.context, "dot")
    return match.end()


def _read_plus_plus(scan: ScanState, match: re.Match[str]) -> int:
    """Read the signs of "C++"."""
    for at in range(match.start(), match.end()):
        scan.emit("plus", at, at + 1)
    return match.end()


def _read_port(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "on :443"; elsewhere it is a line of a file."""
    if scan.context.previous_word not in _WORDS_BEFORE_PORTS:
        return None
    if scan.context.previous_word != "port":
        scan.emit("port", match.start(), match.start() + 1)
    ENGLISH_SPELLER.spell(scan, *match.span(1))
    scan.context.note_number()
    return match.end()


def _read_range_of_cells(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the colon of "SUM(B2:B14)"."""
    if not _CELL_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit("to", *match.span())
    note_english_word(scan.context, "to")
    return match.end()


def _read_repetition(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "{3}" of a regular expression."""
    scan.emit("open brace", match.start(), match.start() + 1)
    for part in re.finditer(r"\d+|,", match.group()):
        start, stop = match.start() + part.start(), match.start() + part.end()
        scan.emit("comma" if part.group() == "," else numbers.amount_words(part.group()), start, stop)
    scan.emit("close brace", match.end() - 1, match.end())
    note_english_word(scan.context, "brace")
    return match.end()


def _read_dollar_sign(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the sign at the end of a regular expression, and decline that of money."""
    if not _REGULAR_EXPRESSION_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit("dollar sign", *match.span())
    note_english_word(scan.context, "sign")
    return match.end()


def _read_stars(scan: ScanState, match: re.Match[str]) -> int:
    """Read the sign of "a 4★ hotel" and "rated 4.5★"; without a number it is decoration."""
    if scan.context.after_number and len(match.group()) == 1:
        following = scan.next_word(match.end())
        is_adjective = following.islower() and following not in vocabulary.WORDS_AFTER_PRICES
        word = "star" if is_adjective else "stars"
        scan.emit(word, match.start(), match.end())
        note_english_word(scan.context, word)
    return match.end()


def _read_letter_in_brackets(scan: ScanState, match: re.Match[str]) -> int:
    """Read the letter of "(a) wait, (b) rebook" and "section 4(b)"."""
    scan.punctuate(",")
    ENGLISH_SPELLER.spell(scan, match.start(1), match.end(1))
    note_english_word(scan.context, match.group(1))
    scan.punctuate(",")
    return match.end()


def _skip_prompt(scan: ScanState, match: re.Match[str]) -> int:
    """Skip the "$" before a command."""
    return match.end()


_LINE_RULES = compile_rules(
    (r"\$ (?=[a-z]{2,12}\b)", _skip_prompt),
    *LINE_START_ROWS,
    (r"(\d{1,3})[.)] +(?=\S)", ENGLISH_SPELLER.read_list_number),
)
_MARKUP_RULES = (
    *carrier_codes.SYMBOL_RULES,
    *compile_rules(
        (r"(?<=[A-Za-z])~(?=\d)", read_as("tilde")),
        (r"([#*])\1{1,2}(?=[ .,;?!]|\Z)", _read_telephone_keys),
        (r"[-=]{1,2}>(?= ?[\w\"'$£€(/~`])", read_as("to")),
        *MARKUP_ROWS,
        (r"&(?:amp;|&)?", read_as("and")),
        (r"\|(?= [a-z])", _read_pipe),
        (r"(?<!\*)\*(\d{1,6})(?![\w*]|[^*\n]{0,80}[^\s*]\*)", _read_star_code),
    ),
)
_MARK_RULES = compile_rules(
    (r"#(?=\d{0,5}[A-F])(?=[A-F]{0,5}\d)[A-F0-9]{6}(?!\w)", _read_color),
    (r"(?<=[^\W\d_])#(?= ?(?:\d|[A-Z]{1,4}-?\d))", read_as("number")),
    (r"#'?s(?!\w)|#(?=\d{1,3} ?[-–] ?\d{1,3}(?![\w-]))", read_as("numbers")),
    (r"#(\w[\w-]{0,39})", _read_hash),
    (r"[#*](?![\w#*])", _read_telephone_key),
    (r"\${2,3}(?![\w$])", read_as("money")),
    (r"\$(?=[A-Z_]{2,30}(?![a-z\d$]))", read_as("dollar")),  # "$PATH", "$AAPL"
    (r"\+\+", _read_plus_plus),
    (r"(?<=[a-z] )>(?= [A-Za-z]{2})", _read_menu),
    (r"--(?=[a-z]{2})|-(?=[a-zA-Z](?![\w-]))", _read_option),
    (r"-([a-zA-Z]{2,5})(?![\w-])", _read_options),
    (r"(?<![\w/.])(?:~|\.{1,2})(?:/[\w.-]{1,60}){1,12}", _read_folder),
    (r"(?<=[ (`\"'])\.(?=[a-z]{2,16}(?![\w']))", _read_dot),
    (r"★+", _read_stars),
    (r"%iles?(?!\w)", read_as("percentile")),
    # Of regular expressions: "^\\d{3}$"
    (r"\^(?=[^\s$]{1,60}\$(?![\w$]))", read_as("caret")),
    (r"\\(?=[dDsSwWb](?![A-Za-z]))", read_as("backslash")),
    (r"(?<=[\w\])])\{\d{1,3}(?:,\d{0,3})?\}", _read_repetition),
    (r"(?<=[}\])+*?A-Za-z])\$(?=[ .,;:!?)\"'`]|\Z)", _read_dollar_sign),
    (rf"~(?=(?:{any_of(vocabulary.WORDS_AFTER_ABOUT)})(?![\w'~]))", read_as("about")),
    (r"\(([a-z])\)(?![\w-])", _read_letter_in_brackets),
    *PUNCTUATION_ROWS,
    (any_of(vocabulary.SYMBOLS), _read_symbol),
)
_SYMBOL_RULES = (
    *masked_numbers.SYMBOL_RULES,
    *programs.SYMBOL_RULES,
    *_MARKUP_RULES,
    *compile_rules(
        (r":(?=[A-Z]{1,2}\d{1,5}(?!\w))", _read_range_of_cells),
        *PATH_ROWS,
        (r"(?<=[ (]):(\d{3,5}|(?:22|25|53|80)(?!,| (?:past|after|and)\b))(?![\w:])", _read_port),
    ),
    *codes.SYMBOL_RULES,
    *compile_rules((r"-(?=\d{1,4}(?![\w.,:/-]|$)|\d{1,4}[`.,]?$)", _read_number_of_option)),
    *plural_numbers.SYMBOL_RULES,
    *money.SYMBOL_RULES,
    *units.SYMBOL_RULES,
    *number_pairs.SYMBOL_RULES,
    *slashes.SYMBOL_RULES,
    *slashed_words.SYMBOL_RULES,
    *sizes.SYMBOL_RULES,
    *amounts.SYMBOL_RULES,
    *_MARK_RULES,
)
_LETTER_RULES = (
    *words.ADDRESS_RULES,
    *programs.LETTER_RULES,
    *slashed_words.LETTER_RULES,
    *money.LETTER_RULES,
    *units.LETTER_RULES,
    *amounts.LETTER_RULES,
    *sizes.LETTER_RULES,
    *dates.LETTER_RULES,
    *weekdays.LETTER_RULES,
    *masked_numbers.LETTER_RULES,
    *courses.LETTER_RULES,
    *citations.LETTER_RULES,
    *plural_numbers.LETTER_RULES,
    *abbreviations.LETTER_RULES,
    *carrier_codes.LETTER_RULES,
    *compile_capital_rules(CALL_WORDS_ROW),
    *codes.LETTER_RULES,
    *words.LETTER_RULES,
)
_DIGIT_RULES = (
    *words.ADDRESS_RULES,
    *compile_rules(*HOST_ROWS, CALL_WORDS_ROW),
    *masked_numbers.DIGIT_RULES,
    *abbreviations.DIGIT_RULES,
    *citations.DIGIT_RULES,
    *codes.GROUPED_DIGIT_RULES,
    *carrier_codes.DIGIT_RULES,
    *durations.CLOCK_RULES,
    *slashes.SCORE_LINE_RULES,
    *scores.DIGIT_RULES,
    *dates.DIGIT_RULES,
    *money.DIGIT_RULES,
    *sizes.DIGIT_RULES,
    *slashes.DIGIT_RULES,
    *plural_numbers.DIGIT_RULES,
    *durations.DIGIT_RULES,
    *units.DIGIT_RULES,
    *amounts.DIGIT_RULES,
    *codes.FALLBACK_RULES,
    *amounts.PLAIN_NUMBER_RULES,
)
ENGLISH_GRAMMAR = with_mathematics(
    __file__,
    Grammar(_LINE_RULES, _LETTER_RULES, _DIGIT_RULES, _SYMBOL_RULES, (WORD, words.read_word)),
    numbers.amount_words,
    ENGLISH_SPELLER.letter_name,
)
