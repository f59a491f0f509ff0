"""Left-to-right tokenizer that turns folded text into spoken words by the rules of a grammar.

At each position the rules of the grammar are tried in order. A rule is a pattern and a recogniser: the
recogniser emits the spoken words of the match, each with the characters that it stands for, or declines. The
first rule that does not decline wins. One scan keeps the range of every spoken word; successive substitutions
would lose them. The rules themselves are in ``markup_rules.py`` and in the sub-packages of the languages.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..language import DEFAULT_READING_STYLE, ReadingStyle
from ..normalizer import DraftWord, punctuate
from ..pronunciation.lexicon import PronouncedRange, PronunciationFinder
from .patterns import RulePattern, signs_in
from .reading_context import ReadingContext

# Vowel signs and accents that a script writes as separate characters after a letter.
_COMBINING_MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e4e"
)
_LETTER = rf"[^\W\d_][{_COMBINING_MARKS}]*"
# The bounds keep matching linear in text without blanks.
WORD_PATTERN = rf"(?:{_LETTER}){{1,60}}(?:'(?:{_LETTER}){{1,60}})*"
WORD = RulePattern(WORD_PATTERN)
# Of Latin, Greek and Cyrillic, for a set of a pattern: "[{SMALL_LETTERS}]"
SMALL_LETTERS = "".join(letter for letter in map(chr, range(0x460)) if unicodedata.category(letter) == "Ll")
_REPEATED = re.compile(r" (?:d[eio] )?([^\W\d_]{2,})(?!['\w])")
_NEXT_VISIBLE = re.compile(r" *([^ ])")
_NEXT_WORD = re.compile(r"[ -]*([^\W\d_]+(?:\.[^\W\d_])*(?:'[^\W\d_]+)?)")
_SYMBOLS_AFTER_BLANK = tuple("-–<>~*")  # signs whose reading depends on the blank before them
STABLE_MARGIN_CHARACTERS = 100  # before the end of an unfinished clause; readings before it are final
_MAX_PARTS = 256  # of a grammar, kept; each is a few tuples
_CAPITAL_AHEAD = "(?=[A-Z])"  # begins the pattern of a rule that is not tried at other letters


@dataclass(slots=True)
class ScanState:
    """State of one scan over ``view``, a stretch of folded text.

    ``respells``: whether words that spelling rules mispronounce are written as they sound. ``style``: for
    English.
    """

    view: str
    context: ReadingContext
    words: list[DraftWord] = field(default_factory=list)
    respells: bool = True
    style: ReadingStyle = DEFAULT_READING_STYLE
    pronunciations: PronunciationFinder | None = None

    def emit(self, words: str, start: int, stop: int) -> None:
        """Append the blank-separated ``words``, all of which stand for characters ``start`` to ``stop``."""
        self.words += [DraftWord(word, "", start, stop) for word in words.split()]

    def emit_mark(self, mark: str, start: int, stop: int) -> None:
        """Append a mark of the model, written at characters ``start`` to ``stop``."""
        self.words.append(DraftWord(mark, "", start, stop, is_mark=True))

    def punctuate(self, mark: str) -> None:
        """Put ``mark`` after the last word unless a stronger mark follows it already."""
        punctuate(self.words, mark)

    def after_repeated(self, words: str, at: int) -> int:
        """Return the end of a word at ``at`` that repeats the last of ``words``: of "$5 dollars"."""
        match = _REPEATED.match(self.view, at)
        said = words.rpartition(" ")[2].casefold()
        return match.end() if match and match.group(1).casefold() == said else at

    def next_visible(self, at: int) -> str:
        """Return the first character from ``at`` that is not a blank, or "" at the end of the view."""
        match = _NEXT_VISIBLE.match(self.view, at)
        return match.group(1) if match else ""

    def next_word(self, at: int) -> str:
        """Return the word at ``at``, after blanks and hyphens, or "" if there is none."""
        match = _NEXT_WORD.match(self.view, at)
        return match.group(1) if match else ""


# A recogniser returns the position after what it read, or None to decline.
Recognizer = Callable[[ScanState, "re.Match[str]"], int | None]
RuleRow = tuple[str, Recognizer]
Rule = tuple[RulePattern, Recognizer]
# What reads the spans of a view that have a grammar of their own, by their starts; each returns its end.
SpanReadings = Mapping[int, Callable[[ScanState], int]]


def no_spans(view: str) -> SpanReadings:
    """Find no spans with a grammar of their own."""
    return {}


@dataclass(frozen=True, slots=True)
class Grammar:
    """Rules of one language, grouped by the character at which a reading starts."""

    lines: tuple[Rule, ...]  # tried first at the start of a line
    letters: tuple[Rule, ...]
    digits: tuple[Rule, ...]
    symbols: tuple[Rule, ...]  # any other character
    word: Rule  # tried when no other rule applies
    spans: Callable[[str], SpanReadings] = no_spans  # formulas, read before any rule is tried
    whole: "Grammar | None" = None  # that this is a part of
    small_letters: tuple[Rule, ...] = field(init=False)  # those of ``letters`` that need no capital
    _parts: dict[frozenset[str], "Grammar"] = field(init=False, default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        small = tuple(rule for rule in self.letters if not rule[0].pattern.startswith(_CAPITAL_AHEAD))
        object.__setattr__(self, "small_letters", small)

    def compile(self) -> None:
        """Compile all patterns, so that no later text waits for them."""
        for pattern, _ in (*self.lines, *self.letters, *self.digits, *self.symbols, self.word):
            _ = pattern.match, pattern.needs

    def part_for(self, view: str) -> "Grammar":
        """The rules that may apply in a view: not those that need a sign that it lacks."""
        whole = self.whole or self
        signs = signs_in(view)
        part = whole._parts.get(signs)
        if part is None:
            if len(whole._parts) >= _MAX_PARTS:
                whole._parts.clear()
            part = whole._parts[signs] = Grammar(
                _rules_for(signs, whole.lines),
                _rules_for(signs, whole.letters),
                _rules_for(signs, whole.digits),
                _rules_for(signs, whole.symbols),
                whole.word,
                whole=whole,
            )
        return part


def _rules_for(signs: frozenset[str], rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if not any(map(signs.isdisjoint, rule[0].needs)))


def compile_rules(*rows: RuleRow) -> tuple[Rule, ...]:
    """Return the rules of ``rows``, tried in this order; a pattern is compiled when it is first tried."""
    return tuple((RulePattern(pattern), recognizer) for pattern, recognizer in rows)


def compile_capital_rules(*rows: RuleRow) -> tuple[Rule, ...]:
    """Return the rules of ``rows``, which are tried at a capital from A to Z only."""
    return compile_rules(*((f"{_CAPITAL_AHEAD}(?:{pattern})", recognizer) for pattern, recognizer in rows))


def any_of(words: Iterable[str]) -> str:
    """Return a pattern that matches any of ``words``, longer ones first."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def end_sentence_if_capital_follows(scan: ScanState, at: int) -> None:
    """End the sentence after an abbreviation's full stop if a capital, a new line or nothing follows."""
    following = scan.next_visible(at)
    if not following or following.isupper() or following in "\n\"'(":
        scan.punctuate(".")
        scan.context.end_sentence()


def read_tokens(scan: ScanState, limit: int, grammar: Grammar) -> int:
    """Read the view up to ``limit``; a token that begins before it is read whole. Return where it ends."""
    at, part, spans = 0, grammar.part_for(scan.view), grammar.spans(scan.view)
    while at < limit:
        at = spans[at](scan) if at in spans else _read_token(scan, at, part)
    return at


def read_first(scan: ScanState, stops: Iterable[int], grammar: Grammar) -> tuple[ScanState, int] | None:
    """Read the view up to the first of ``stops`` that is inside no reading: the scan and the stop."""
    for stop in stops:
        attempt = replace(scan, words=[], context=replace(scan.context))
        if read_tokens(attempt, stop, grammar) == stop and attempt.words:
            return attempt, stop
    return None


def read_stable_prefix(scan: ScanState, limit: int, grammar: Grammar) -> int:
    """Read the part of an unfinished clause that later text cannot change, and return where it ends.

    The end is the last blank up to ``limit`` that is not inside a reading; without one, the first blank after
    ``limit`` or the end of the view. Words after the end are dropped.
    """
    at, cut, kept, context = 0, 0, 0, scan.context
    part, spans = grammar.part_for(scan.view), grammar.spans(scan.view)
    while at < len(scan.view) and (at < limit or not cut):
        at = spans[at](scan) if at in spans else _read_token(scan, at, part)
        if scan.view[at : at + 1] == " " and len(scan.words) > kept and (at <= limit or not cut):
            cut, kept, context = at, len(scan.words), replace(scan.context)
    if not cut:
        return at
    del scan.words[kept:]
    scan.context = context
    return cut


def _read_token(scan: ScanState, at: int, grammar: Grammar) -> int:
    """Read the token at ``at`` and return the position after it."""
    character = scan.view[at]
    if character == " " and scan.view[at + 1 : at + 2] not in _SYMBOLS_AFTER_BLANK:
        return at + 1
    if scan.context.line_start:
        end = _apply_first_match(scan, grammar.lines, at)
        if end is not None:
            return end
    pronounced = scan.pronunciations.find(scan.view, at) if scan.pronunciations else None
    if pronounced is not None:
        return _read_pronounced(scan, pronounced, grammar)
    if "A" <= character <= "Z":
        rules = grammar.letters
    elif character.isalpha():
        rules = grammar.small_letters
    else:
        rules = grammar.digits if character.isdigit() else grammar.symbols
    for tried in (rules, (grammar.word,)):
        if (end := _apply_first_match(scan, tried, at)) is not None:
            return end
    return at + 1


def _read_pronounced(scan: ScanState, found: PronouncedRange, grammar: Grammar) -> int:
    """Read a part of the text with a pronunciation of its own, and return the position after it.

    Each of its words stands for the whole part.
    """
    said = found.pronunciation
    text = said.respelling or found.text
    inner = replace(scan, view=text, words=[], pronunciations=None)
    read_tokens(inner, len(text), grammar)
    for word in inner.words:
        word.start, word.stop = found.start, found.stop
    sounding = [word for word in inner.words if not word.is_mark]
    for word, phonemes in zip(sounding, _shares(said.phonemes, len(sounding)), strict=False):
        word.phonemes = phonemes
    for word, pinyin in zip(sounding, _shares(said.pinyin, len(sounding)), strict=False):
        word.pinyin = pinyin
    scan.words += inner.words
    return found.end


def _shares(sounds: str, words: int) -> list[str]:
    """Return the sounds of each word, none without any; the first has all if the numbers of words differ."""
    parts = sounds.split()
    return parts if len(parts) in (0, words) else [sounds, *("" for _ in range(1, words))]


def _apply_first_match(scan: ScanState, rules: tuple[Rule, ...], at: int) -> int | None:
    for pattern, recognize in rules:
        match = pattern.match(scan.view, at)
        if match and match.end() > at:
            end = recognize(scan, match)
            if end is not None and end > at:
                return end
    return None
