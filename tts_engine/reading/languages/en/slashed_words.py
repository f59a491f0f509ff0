"""Rules of the slash beside words: alternatives, abbreviations such as "w/", and paths.

Between two words a slash is read as "or". Those beside numbers are in ``quantities.slashes``.
Source: GOV.UK style guide A to Z, which writes "or" for the slash.
"""

import re

from ...kit.patterns import PatternBehind
from ...kit.tokenizer import ScanState, any_of, compile_rules
from . import vocabulary
from .quantities.number_words import amount_words
from .spelling import ENGLISH_SPELLER
from .word_context import note_english_word

_WORD_BEHIND = re.compile(r"([^\s/]+) ?\Z")
_TOKEN_BEHIND = re.compile(r"[^\s()\"',;]{0,80}\Z")
_TOKEN = re.compile(r"[^\s()\"',;]{0,80}")
_ACCOUNT_BEHIND = PatternBehind(r"\b(?:bank|savings|current|checking|salary|joint) \Z", re.IGNORECASE)
_ACCOUNT_AHEAD = re.compile(r" (?:no|number|ending|holder|balance|name)\b| #?\d")
_NAME_BEHIND = re.compile(r"\b(?:an?|the) [A-Z][A-Za-z]+\Z")
_NAME_AND_NOUN_AHEAD = re.compile(
    r"[A-Z][A-Za-z]+ (?:report|poll|survey|study|merger|deal|partnership|alliance|film)\b"
)
_HOUR_AHEAD = re.compile(r" (?:by |at |until )?\d{1,2}(?::\d\d)? ?[apAP]")
_MANY_BEHIND = PatternBehind(r"\d [a-z]{2,12}s ?\Z")  # "160 gems/pull"
_LABEL_AHEAD = re.compile(r" / [A-Za-z]{2,12}:")  # "wifi: Loft / pw: stay"
_LOGIN_BEHIND = PatternBehind(
    r"\b(?:login|log in|credentials?|creds?)(?: is| are| with|:)? [\w-]{1,20}\Z", re.IGNORECASE
)
_SHELL_BEHIND = PatternBehind(r"\b(?:kubectl|docker|git|npm|helm|cd|ls|cat|cp|mv|rm|vim) [^.;!?]{0,60}\Z")
_FILE_NAME = re.compile(
    r"_|/[\w-]{2,}\.[a-z]|\A(?:feat|feature|fix|bugfix|hotfix|chore|refactor|origin|upstream|src|pkg|localhost"
    r"|pods?|deploy(?:ment)?|svc|jobs?|configmap|secret|statefulset|application)/"
    r"|\A(?:text|image|audio|video)/(?:plain|html|css|csv|xml|png|jpe?g|gif|webp|svg|mpeg|wav|mp[34]|ogg)\b"
)
_ONE_AHEAD = re.compile(r"(?!children|people|women|men\b)[a-z]{2,12}(?<!s)(?![\w/-])")
_RETURNED_BEHIND = PatternBehind(r"\b(?:return|yield) \(?[A-Za-z] ?\Z")  # "return x/y"
_COUNT_BEHIND = PatternBehind(r"\d ?[a-z]{2,12}\.? ?\Z")  # "2 min./side"
_MAX_WORD_CHARACTERS = 40  # of the word before a slash
_PATH_MARKS = {"/": "slash", ".": "dot", "_": "underscore"}


def _read_slash_between_words(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the slash of "he/she" as "or"; a path keeps its slashes, and "TCP/IP" needs no word."""
    behind = _WORD_BEHIND.search(scan.view, max(0, match.start() - _MAX_WORD_CHARACTERS), match.start())
    if behind is None:
        return None
    left, right = behind.group(1).strip("\"'(.").lower(), scan.next_word(match.end()).lower()
    pair = f"{left}/{right}"
    if not left[-1:].isalpha() or not right:
        return None
    is_per = right in vocabulary.NOUNS_AFTER_PER and _COUNT_BEHIND.search(scan.view, match.start())
    if is_per or (_MANY_BEHIND.search(scan.view, match.start()) and _ONE_AHEAD.match(scan.view, match.end())):
        scan.emit("per", *match.span())
        note_english_word(scan.context, "per")
    elif left in vocabulary.WEEKDAY_NAMES or _LABEL_AHEAD.match(scan.view, match.start()):
        scan.punctuate(",")
    elif (
        _LOGIN_BEHIND.search(scan.view, match.start())
        or _is_in_path(scan, match.start())
        or _joins_names(scan, match)
    ):
        scan.emit("slash", match.start(), match.end())
    elif not (
        pair in vocabulary.JOINED_PAIRS
        or len(left) == len(right) == 1
        or {left, right} & {"and", "or"}
        or (len(left) == len(right) == 3 and {left.upper(), right.upper()} & vocabulary.CURRENCIES.keys())
    ):
        scan.emit("or", match.start(), match.end())
        note_english_word(scan.context, "or")
    return match.end()


def _read_division(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the slash of "return x/y"."""
    if not _RETURNED_BEHIND.search(scan.view, match.start()):
        return None
    scan.emit("divided by", *match.span())
    note_english_word(scan.context, "by")
    return match.end()


def _joins_names(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a slash joins two names before a noun: "a BBC/Reuters report"."""
    behind = _NAME_BEHIND.search(scan.view, max(0, match.start() - 30), match.start())
    return bool(behind and _NAME_AND_NOUN_AHEAD.match(scan.view, match.end()))


def _is_in_path(scan: ScanState, at: int) -> bool:
    """Whether the slash at ``at`` is part of a path: three slashes, a file type or an underscore show it."""
    behind = _TOKEN_BEHIND.search(scan.view, max(0, at - 80), at)
    ahead = _TOKEN.match(scan.view, at)
    if _SHELL_BEHIND.search(scan.view, at):
        return True
    token = (behind.group() if behind else "") + (ahead.group() if ahead else "")
    return token.count("/") > 2 or bool(_FILE_NAME.search(token))


def _read_path(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "/help" and "/settings/profile"."""
    if match.start() and scan.view[match.start() - 1] not in " (\"'":
        return None
    for part in re.finditer(r"[^\W\d_]+|\d+|[/._]", match.group()):
        start, stop = match.start() + part.start(), match.start() + part.end()
        if part.group() in _PATH_MARKS:
            scan.emit(_PATH_MARKS[part.group()], start, stop)
        elif part.group().isdigit():
            scan.emit(amount_words(part.group()), start, stop)
        else:
            ENGLISH_SPELLER.read_address_word(scan, start, stop)
    note_english_word(scan.context, "path")
    return match.end()


def _read_path_with_query(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "/api/orders?id=88"."""
    if match.start() and scan.view[match.start() - 1] not in " (\"'`":
        return None
    return ENGLISH_SPELLER.read_address(scan, match)


def _read_slash_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    """Read "w/", "c/o" or "N/A"; "a/c" is an account or air conditioning."""
    word = vocabulary.SLASH_ABBREVIATIONS[match.group().lower()]
    before_account = _ACCOUNT_AHEAD.match(scan.view, match.end())
    if word == "A C" and (before_account or _ACCOUNT_BEHIND.search(scan.view, match.start())):
        word = "account"
    if word == "care of":
        word = _spoken_c_o(scan, match)
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    if word.endswith(" number"):
        note_english_word(scan.context, "#")
        scan.context.identifier_expected = True
    return match.end()


def _spoken_c_o(scan: ScanState, match: re.Match[str]) -> str:
    """Return the reading of "c/o" before a symptom, of a hotel's "late c/o", and before a name."""
    if scan.context.previous_word == "patient" or scan.next_word(match.end()) in vocabulary.SYMPTOMS:
        return "complains of"
    is_time = scan.context.previous_word in ("late", "early", "express") or _HOUR_AHEAD.match(
        scan.view, match.end()
    )
    return "checkout" if is_time else "care of"


_SLASH_ABBREVIATION = any_of(vocabulary.SLASH_ABBREVIATIONS)
LETTER_RULES = compile_rules(
    (
        rf"(?=[A-Za-z]/)(?:(?i:{_SLASH_ABBREVIATION})(?<=/)(?!\w)|(?i:{_SLASH_ABBREVIATION})(?<!/)(?![\w/]))",
        _read_slash_abbreviation,
    ),
)
SYMBOL_RULES = compile_rules(
    (r" ?/ ?(?=[A-Za-z\d](?!\w))", _read_division),
    (r"/(?:[\w.-]{1,40}/){0,12}[\w.-]{0,40}\?[\w.-]{1,40}=[\w=&%.+-]{1,120}", _read_path_with_query),
    (rf"/(?:{any_of(vocabulary.FOLDERS)})(?:/(?:[\w-]|\.(?=\w)){{1,60}}){{1,12}}(?![\w/])", _read_path),
    (
        r"/(?:[a-z][a-z-]*|v\d{1,2}(?=/))(?:/(?:[a-z][a-z-]*|v\d{1,2}(?=/)|\d{1,12}))*(?![\w/]|\.\w)",
        _read_path,
    ),
    (r" ?/ ?(?=[^\W\d])", _read_slash_between_words),
)
