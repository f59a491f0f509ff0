"""Place in the tokens of a formula, and what was seen on the way to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from .tokens import END, FormulaToken
from .tree import FormulaLeaf, FormulaNode, LeafKind

TEX_SPACES = frozenset(("\\,", "\\;", "\\!", "\\:", "\\ ", "\\|"))


class NoFormulaHere(Exception):
    """The tokens are no formula from here on."""


@dataclass(frozen=True, slots=True)
class FormulaStep:
    """An operand with the sign before it. ``features``: what shows that it is mathematics."""

    nodes: tuple[FormulaNode, ...]
    stop: int  # in the view
    features: frozenset[str]


class FormulaCursor(ABC):
    """Reader of tokens, with the parts of the grammar that need each other. ``at``: the next token."""

    def __init__(self, tokens: Sequence[FormulaToken], at: int = 0, *, tex: bool = False) -> None:
        self.at = at
        self._tokens = tokens
        self._tex = tex
        self._depth = 0
        self._features: set[str] = set()

    def _peek(self, ahead: int = 0) -> FormulaToken:
        at = self.at + ahead
        return self._tokens[at] if at < len(self._tokens) else END

    def _skip_blanks(self) -> None:
        while self._peek().kind == "blank" or (self._tex and self._peek().text in ("\n", "&", *TEX_SPACES)):
            self.at += 1

    def _sign(self, name: str, token: FormulaToken) -> FormulaLeaf:
        self.at += 1
        return FormulaLeaf(LeafKind.SIGN, name, token.start, token.stop)

    @abstractmethod
    def steps(self, closer: str = "") -> list[FormulaStep]:
        """Return the operands from here, each with its sign, up to ``closer`` or the end of the formula."""

    @abstractmethod
    def _primary(self) -> FormulaNode:
        """Take one operand without what follows it; raises NoFormulaHere."""

    @abstractmethod
    def _scripts(self) -> tuple[FormulaNode | None, FormulaNode | None]:
        """Take an index and an exponent, in any order."""

    @abstractmethod
    def _scripted(self, base: FormulaNode) -> FormulaNode:
        """Take the index, the exponent and the signs after an operand."""
