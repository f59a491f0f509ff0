"""Tree of a formula. Each leaf has the characters of the text that it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class LeafKind(Enum):
    """What the value of a leaf is."""

    NUMBER = auto()  # as it is written
    LETTER = auto()
    SIGN = auto()  # a name among the words of a language: "plus", "eq", "infinity"
    FUNCTION = auto()
    TEXT = auto()  # read by the language's grammar: "9.8 m/s^2"
    PAUSE = auto()  # the comma between the parts of a list


@dataclass(frozen=True, slots=True)
class FormulaLeaf:
    """A sign, number, letter or name, written at ``start`` to ``stop``."""

    kind: LeafKind
    value: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FormulaRow:
    """Nodes that are said one after another."""

    items: tuple[FormulaNode, ...]


@dataclass(frozen=True, slots=True)
class FormulaFraction:
    """``above`` over ``below``."""

    above: FormulaNode
    below: FormulaNode


@dataclass(frozen=True, slots=True)
class FormulaRoot:
    """A root; ``degree`` is None for a square root."""

    degree: FormulaNode | None
    body: FormulaNode


@dataclass(frozen=True, slots=True)
class FormulaScript:
    """A base with an index below it, an exponent above it, or both."""

    base: FormulaNode
    below: FormulaNode | None
    above: FormulaNode | None


@dataclass(frozen=True, slots=True)
class FormulaGroup:
    """A part in brackets; ``name``: "brackets", "absolute" or "braces" of TeX, which are not said."""

    name: str
    body: FormulaNode
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FormulaApplication:
    """A function of an argument. ``is_named``: it is said to be "of" it: "f(x)", but not "sin x"."""

    function: FormulaNode
    argument: FormulaNode
    is_named: bool


@dataclass(frozen=True, slots=True)
class FormulaBig:
    """A sum, product, integral or limit; ``name`` is that of its words."""

    name: str
    below: FormulaNode | None
    above: FormulaNode | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FormulaVector:
    """A letter under an arrow."""

    body: FormulaNode


FormulaNode = (
    FormulaLeaf
    | FormulaRow
    | FormulaFraction
    | FormulaRoot
    | FormulaScript
    | FormulaGroup
    | FormulaApplication
    | FormulaBig
    | FormulaVector
)
