"""Finder of formulas in text: what is mathematics, and what only looks so.

TeX between its delimiters is mathematics. In plain text an operator and a relation are, and so is a sign
that nothing else has: "√", "^", "≠". Scores, ranges, dates, phone numbers, prices and code have none.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...unicode_scripts import HANGUL, is_unspaced
from ..reading_context import ReadingContext
from ..tokenizer import Grammar, ScanState, read_tokens
from .chemistry import find_chemistry
from .cursor import FormulaStep
from .parser import FormulaParser
from .signs import GREEK, RELATIONS
from .speaker import FormulaSpeaker, FormulaVoice
from .tokens import FormulaToken, tokens_of
from .tree import FormulaLeaf, FormulaNode, FormulaRow, LeafKind
from .words import load_words

_TRIGGER = re.compile(
    r"[=<>≤≥⩽⩾≠≈≃≅≡∝∈∉⊂⊆⇒⇔∪∩^√∛∜∑∏∫∞∂∇∀∃∅±∓⁻⁺ⁿ\\→⟶⇌]|\w\*\*\w|\d[eE][-+]\d|[A-Za-z]_[\w{]|C\d{0,2}H\d"
    r"|\d[abnxyz] [-+] [\dabnxyz]|\d\((?:\d{0,3}[abnxyz] [-+]|\d{1,4} [-+] \d{0,3}[abnxyz]\))"
)
# Without a relation: "4x - 3", "2a + 3b", "2(x + 1)"; not the "3x - 5x" of "3x - 5x growth".
_TERM = r"(?:\d{1,4}(?:\.\d{1,3})?[nxyz]|[1-9][ab])"  # "12a - 14b" are houses
_EXPRESSION = re.compile(
    rf"{_TERM} [-+] (?:\d{{1,4}}|(?:\d{{1,4}})?[abnxyz])(?: [-+] [\dabnxyz]{{1,5}}){{0,6}}\Z"
    rf"|\d{{1,4}}\((?:\d{{0,4}}[abnxyz] [-+] \d{{0,4}}[abnxyz]?|\d{{1,4}} [-+] \d{{0,4}}[abnxyz])\)\Z"
)
_SPAN_OF_FACTORS = re.compile(r"\d+(?:\.\d+)?x - \d+(?:\.\d+)?x\Z")
_TEX = re.compile(
    r"\$\$(?P<display>[^$]{1,300})\$\$|\\\[(?P<block>.{1,300}?)\\\]|\\\((?P<inline>.{1,300}?)\\\)"
    r"|(?<![\w$\\])\$(?![\s$])(?P<dollars>[^$\n]{1,200}?)(?<![\s\\])\$(?![\d$])",
    re.DOTALL,
)
_STARTS = frozenset(" \n(\"'[“—–:;,>*_`|")
_STOPS = frozenset(" \n,.;:!?)]}\"'*_`|—–…>&$")
_STARTING_KINDS = frozenset(
    "number quantity science greek sign word root big command relation operator mark".split()
)
_UNIT_POWER = re.compile(r"(?:[\d.,]+ ?)?(?:[cdkmn]?m|ft|in|yd|mi|s|ha)(?:\^[23]|⁻\^[12])\Z")
_IDENTIFIER = re.compile(r"[A-Z]_\w+\Z")  # "A_1" by itself is the name of something
_SHOWN_BY_ONE_SIDE = frozenset(("ne", "le", "ge", "lt", "gt"))
_SET_SIGNS = frozenset(("union", "intersection", "and", "or"))
_CLEAR = frozenset(("strong", "relation", "operator", "power", "index", "sign"))
_MAX_PRODUCT = 2  # letters between dollars without a sign that shows mathematics
_LONE = frozenset((">=", "<=", "!=", "≥", "≤", "≠", "⩾", "⩽"))
# "2σ", "the α level", "ΔT"; not the micro sign
_LONE_GREEK = re.compile(rf"(?<![^\W\d_])(?:[{''.join(GREEK)}](?![\w'])|(?!μ)[{''.join(GREEK)}](?=[A-Z\d]))")
_BEFORE_NUMBER = re.compile(r" ?[-+]?[$€£']?\.?\d")


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula at ``start`` to ``stop`` of a view."""

    start: int
    stop: int
    tree: FormulaNode


def find_formulas(view: str, *, names_lone: Callable[[str], bool] = bool) -> dict[int, Formula]:
    """Return the formulas of a view by their starts. ``names_lone``: whether a lone relation has words."""
    formulas = {formula.start: formula for formula in _tex_formulas(view)}
    if _TRIGGER.search(view):
        _add_formulas(view, formulas, names_lone)
    for letter in _lone_letters(view):
        if not _is_inside(formulas, letter.start):
            formulas[letter.start] = letter
    return formulas


def _add_formulas(view: str, formulas: dict[int, Formula], names_lone: Callable[[str], bool]) -> None:
    for start, stop, tree in find_chemistry(view):
        if not _is_inside(formulas, start):
            formulas.setdefault(start, Formula(start, stop, tree))
    for formula in _plain_formulas(view, formulas, names_lone):
        formulas.setdefault(formula.start, formula)


def _lone_letters(view: str) -> Iterator[Formula]:
    for match in () if view.isascii() else _LONE_GREEK.finditer(view):
        leaf = FormulaLeaf(LeafKind.SIGN, GREEK[match.group()], *match.span())
        yield Formula(*match.span(), leaf)


def _is_inside(formulas: Mapping[int, Formula], at: int) -> bool:
    return any(formula.start <= at < formula.stop for formula in formulas.values())


def _tex_formulas(view: str) -> Iterator[Formula]:
    for match in _TEX.finditer(view):
        start, stop = match.span(match.lastgroup or 0)
        parser = FormulaParser(tokens := tokens_of(view, start, stop), tex=True)
        steps = parser.steps()
        is_read = all(token.kind == "blank" or token.text in ".,;\n" for token in tokens[parser.at :])
        features = _features(steps)
        letters = sum(token.kind in ("word", "number", "greek") for token in tokens)
        is_short = letters == 1 and all(
            len(token.text) <= _MAX_PRODUCT or token.text.isdigit() for token in tokens
        )
        if steps and is_read and (match.lastgroup != "dollars" or is_short or _CLEAR & features):
            yield Formula(*match.span(), _row(steps))


def _plain_formulas(
    view: str, found: Mapping[int, Formula], names_lone: Callable[[str], bool]
) -> Iterator[Formula]:
    tokens = tokens_of(view, 0, len(view))
    at, ends = 0, {formula.start: formula.stop for formula in found.values()}
    skipped_to = 0
    while at < len(tokens):
        token = tokens[at]
        skipped_to = max(skipped_to, ends.get(token.start, 0))
        formula = None
        if token.start >= skipped_to:
            formula, at = _formula_at(view, tokens, at)
            formula = formula or _lone_relation(view, token, names_lone)
        else:
            at += 1
        if formula is not None and not any(formula.start < start < formula.stop for start in ends):
            skipped_to = max(skipped_to, formula.stop)
            yield formula


def _formula_at(view: str, tokens: list[FormulaToken], at: int) -> tuple[Formula | None, int]:
    """Return the formula that begins with a token, if any, and the token to go on with."""
    token = tokens[at]
    if not _may_start(view, token):
        return None, at + 1
    parser = FormulaParser(tokens, at)
    steps = parser.steps()
    while steps and not _may_stop(view, steps[-1].stop):
        steps.pop()
    if not steps:
        return None, at + 1
    if _is_mathematics(view, token, steps):
        return Formula(token.start, steps[-1].stop, _row(steps)), at + 1
    # What has operators but no relation is no formula from a later token either.
    return None, max(at + 1, parser.at if len(steps) > 1 and token.kind != "relation" else 0)


def _may_start(view: str, token: FormulaToken) -> bool:
    if token.kind not in _STARTING_KINDS:
        return False
    before = view[token.start - 1 : token.start]
    if token.kind == "relation":
        return before == " "
    if token.kind == "operator":
        return token.text in "+-±" and before in ("", " ", "\n", "(")
    return not before or before in _STARTS or is_unspaced(before) or _is_hangul(before)


def _may_stop(view: str, stop: int) -> bool:
    after = view[stop : stop + 1]
    if not after or is_unspaced(after) or _is_hangul(after):
        return True
    if after in ".,:" and view[stop + 1 : stop + 2].isalnum():
        return False
    return after in _STOPS or (after == "/" and view[stop + 1 : stop + 2].isalpha())


def _is_hangul(character: str) -> bool:
    return re.match(f"[{HANGUL}]", character) is not None


def _features(steps: list[FormulaStep]) -> frozenset[str]:
    return frozenset().union(*(step.features for step in steps))


def _row(steps: list[FormulaStep]) -> FormulaRow:
    return FormulaRow(tuple(node for step in steps for node in step.nodes))


def _is_mathematics(view: str, first: FormulaToken, steps: list[FormulaStep]) -> bool:
    features = _features(steps)
    if "letter" in features and _is_expression(view[first.start : steps[-1].stop]):
        return True
    shows_more = bool(features & {"operator", "strong", "power"})
    if first.kind == "relation":
        return shows_more
    if "strong" in features or ("relation" in features and shows_more):
        text = view[first.start : steps[-1].stop]
        return not (len(steps) < 3 and (_UNIT_POWER.match(text) or _IDENTIFIER.match(text)))
    if "power" in features:
        return not _UNIT_POWER.match(view[first.start : steps[-1].stop])
    if "relation" not in features or len(steps) < 2:
        return bool(_SET_SIGNS & features) and "letter" in features
    is_shown = bool(_SHOWN_BY_ONE_SIDE & features) and "number" in features
    return is_shown or bool(features & {"letter", "absolute", "index"})


def _is_expression(text: str) -> bool:
    """Whether a text is terms that nothing else is written like, as in "simplify 4x - 3"."""
    return bool(_EXPRESSION.match(text)) and not _SPAN_OF_FACTORS.match(text)


def _lone_relation(view: str, token: FormulaToken, names_lone: Callable[[str], bool]) -> Formula | None:
    """Return the sign of ">= 80", which has no formula before it."""
    if token.kind != "relation":
        return None
    is_comparison = token.text in "<>" and _BEFORE_NUMBER.match(view, token.stop)
    begins_line = token.text == ">" and view[token.start - 1 : token.start] in ("", "\n")
    if begins_line or not (token.text in _LONE or is_comparison):
        return None
    name = f"lone {RELATIONS[token.text]}"
    if not names_lone(name):
        return None
    return Formula(token.start, token.stop, FormulaLeaf(LeafKind.SIGN, name, token.start, token.stop))


class FormulaReader:
    """Reader of the formulas in text of one language."""

    def __init__(self, voice: FormulaVoice) -> None:
        self._voice = voice

    def find(self, view: str) -> Mapping[int, Callable[[ScanState], int]]:
        """Return what reads the formulas of a view, by their starts; each returns where its formula ends."""
        if view.isascii() and view.count("$") < 2 and not _TRIGGER.search(view):
            return {}
        found = find_formulas(view, names_lone=self._voice.words.signs.__contains__)
        readings = {start: self._reading(formula) for start, formula in found.items()}
        for start in found:  # a rule of signs would begin at the blank before "< 10^3"
            if start and view[start - 1] == " ":
                readings.setdefault(start - 1, readings[start])
        return readings

    def _reading(self, formula: Formula) -> Callable[[ScanState], int]:
        def read(scan: ScanState) -> int:
            FormulaSpeaker(scan, self._voice, formula.start).say(formula.tree)
            if scan.view[formula.stop - 1].isdigit():
                scan.context.note_number()
            else:
                scan.context.note_word()
            return formula.stop

        return read


def with_mathematics(
    module_file: str,
    grammar: Grammar,
    number: Callable[[str], str],
    letter: Callable[[ScanState, str], str],
    comma: str = ",",
) -> Grammar:
    """Return ``grammar`` with the formulas of the language in whose folder ``module_file`` is.

    ``number``: the words of a number as it is written. ``letter``: the name of a letter. ``comma``: the mark
    of a pause. Without a file ``mathematics.toml`` in the folder, the grammar stays as it is.
    """
    words = load_words(module_file)
    if words is None:
        return grammar

    def read(scan: ScanState, text: str, start: int, stop: int) -> None:
        inner = replace(
            scan, view=text, context=ReadingContext(line_start=False), words=[], pronunciations=None
        )
        read_tokens(inner, len(text), grammar)
        for word in inner.words:
            word.start, word.stop = start, stop
        scan.words += inner.words

    return replace(grammar, spans=FormulaReader(FormulaVoice(words, number, letter, read, comma)).find)
