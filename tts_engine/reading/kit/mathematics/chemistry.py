"""Formulas of chemistry: equations, ions, and ``\\ce{...}`` of TeX.

A compound without a charge is a code of letters and digits to every language, and is read as one.
Source: IUPAC, periodic table of 2022; mhchem for ``\\ce``.
"""

import re
from collections.abc import Iterator
from itertools import chain

from . import signs
from .tree import FormulaLeaf, FormulaNode, FormulaRow, LeafKind

_ELEMENT = (
    "A[cglmrstu]|B[aehikr]?|C[adeflmnorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?|Kr?|L[airuv]|M[cdgnot]|"
    "N[abdeiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]|U|V|W|Xe|Yb?|Z[nr]"
)
_COUNT = r"(?:_?\d{1,3}|_\{\d{1,3}\})?"
_ATOMS = rf"(?:{_ELEMENT}){_COUNT}"
_CHARGE = r"(?:\^\{?\d?[+-]\}?|(?:\^\d)?[⁺⁻])"
_SPECIES = (
    rf"\d{{0,2}} ?(?:{_ATOMS}|\((?:{_ATOMS}){{1,6}}\){_COUNT}){{1,10}}(?:{_CHARGE})?(?: ?\((?:s|l|g|aq)\))?"
)
_ARROW = r"(?:→|⟶|⇌|↔|-{1,2}>|<-{1,2}>|<=>|=)"
_END = r"(?![\w^])"
_EQUATION = re.compile(
    rf"(?<![\w.])(?={_SPECIES})[^\n=<>→⟶⇌↔-]{{1,120}}?{_ARROW} ?{_SPECIES}(?: ?\+ ?{_SPECIES}){{0,8}}{_END}"
)
_SYMBOL = re.compile("[A-Z][a-z]?")
_SIDES = re.compile(
    rf"{_SPECIES}(?: ?\+ ?{_SPECIES}){{0,8}} ?{_ARROW} ?{_SPECIES}(?: ?\+ ?{_SPECIES}){{0,8}}\Z"
)
_ION = re.compile(
    rf"(?<![\w.^])(?:{_ATOMS}|\((?:{_ATOMS}){{1,6}}\){_COUNT}){{1,10}}"
    r"(?:\^\d?[+-]|\^\{\d?[+-]\}|(?:\^\d)?[⁺⁻])(?![\w^])"
)
_ORGANIC = re.compile(rf"(?<![\w-])C\d{{0,2}}H\d{{1,3}}(?:{_ATOMS}){{0,6}}(?![\w-])")
_TEX = re.compile(r"\\ce\{([^{}\n]{1,120})\}")
_PART = re.compile(
    rf"(?P<arrow>→|⟶|⇌|↔|-{{1,2}}>|<-{{1,2}}>|<=>|=)|(?P<plus> \+ ?|(?<=[\d)A-Za-z])\+(?=[\dA-Z(]))"
    rf"|(?P<charge>{_CHARGE})|(?P<number>\d+)|(?P<letter>[A-Za-z])|(?P<sign>[+-])"
)


def find_chemistry(view: str) -> Iterator[tuple[int, int, FormulaNode]]:
    """Yield where each formula of chemistry in a view begins and ends, and its tree; in no order."""
    for match in _TEX.finditer(view):
        yield match.start(), match.end(), _tree(view, match.start(1), match.end(1))
    for match in _EQUATION.finditer(view):
        is_reaction = any(map(str.isdigit, match.group())) and _has_same_elements(match.group())
        if is_reaction and _SIDES.match(match.group()):
            yield match.start(), match.end(), _tree(view, *match.span())
    for match in chain(_ION.finditer(view), _ORGANIC.finditer(view)):
        yield match.start(), match.end(), _tree(view, *match.span())


def _has_same_elements(equation: str) -> bool:
    """Whether both sides have the same elements, unlike those of "gate B22→C14"."""
    sides = [frozenset(_SYMBOL.findall(side)) for side in re.split(_ARROW, equation)]
    return len(frozenset(sides)) == 1


def _tree(view: str, start: int, stop: int) -> FormulaRow:
    return FormulaRow(
        tuple(
            leaf
            for part in _PART.finditer(view, start, stop)
            for leaf in _leaves(part.lastgroup, part.group(), *part.span())
        )
    )


def _leaves(kind: str | None, text: str, start: int, stop: int) -> Iterator[FormulaLeaf]:
    match kind:
        case "arrow":
            yield FormulaLeaf(LeafKind.SIGN, "eq" if text == "=" else "yields", start, stop)
        case "plus":
            yield FormulaLeaf(LeafKind.SIGN, "plus", start, stop)
        case "number":
            yield FormulaLeaf(LeafKind.NUMBER, text, start, stop)
        case "letter":
            yield FormulaLeaf(LeafKind.LETTER, text, start, stop)
        case _:
            charge = text.translate(signs.SUPERSCRIPTS)
            number = "".join(filter(str.isdigit, charge))
            if number:
                yield FormulaLeaf(LeafKind.NUMBER, number, start, stop)
            yield FormulaLeaf(LeafKind.SIGN, "plus" if "+" in charge else "minus", start, stop)
