"""Commands of TeX in formulas."""

from __future__ import annotations

from collections.abc import Callable

from . import signs
from .cursor import TEX_SPACES, NoFormulaHere
from .operands import OperandParser
from .tokens import END, FormulaToken
from .tree import (
    FormulaFraction,
    FormulaLeaf,
    FormulaNode,
    FormulaRoot,
    FormulaRow,
    FormulaVector,
    LeafKind,
)

_DECORATIONS = frozenset(
    """
    left right big Big bigg Bigg bigl bigr Bigl Bigr mathbf mathrm mathbb mathcal mathit mathsf boldsymbol
    quad qquad displaystyle textstyle limits nolimits bar hat tilde overline underline dot ddot
    """.split()
)


class TexParser(OperandParser):
    """Parser of commands, besides that of operands."""

    def _command(self, token: FormulaToken) -> FormulaNode:
        name = token.text[1:]
        if token.text in TEX_SPACES or name in _DECORATIONS:
            if not self._tex and token.text in TEX_SPACES:
                raise NoFormulaHere
            self.at += 1
            return self._scripted(self._primary()) if self._peek() is not END else FormulaRow(())
        if token.text == "\\{" and self._tex:
            return self._group(token)
        if name not in signs.TEX_COMMANDS:
            raise NoFormulaHere
        self._features |= {"strong", "letter"}
        if name in signs.TEX_BIG_SIGNS:
            return self._big(token)
        if name in signs.TEX_GREEK:
            return self._sign(signs.TEX_GREEK[name], token)
        if name in signs.TEX_SIGNS:
            return self._sign(signs.TEX_SIGNS[name], token)
        if name in signs.FUNCTIONS:
            return self._function(token)
        read = _COMMANDS.get(name)
        if read is None:
            raise NoFormulaHere
        self.at += 1
        return read(self)

    def _fraction(self) -> FormulaNode:
        return FormulaFraction(self._part(), self._part())

    def _root_command(self) -> FormulaNode:
        degree = None
        if self._peek().text == "[":
            tex, self._tex = self._tex, True
            degree, _ = self._inside("]")
            self._tex = tex
        return FormulaRoot(degree, self._part())

    def _vector(self) -> FormulaNode:
        return FormulaVector(self._part())

    def _text(self) -> FormulaNode:
        """Take the words of "\\text{speed}"."""
        if self._peek().text != "{":
            raise NoFormulaHere
        self.at += 1
        begin = self.at
        while self._peek().text not in ("}", "{") and self._peek() is not END:
            self.at += 1
        if self._peek().text != "}":
            raise NoFormulaHere
        words = "".join(token.text for token in self._tokens[begin : self.at])
        self.at += 1
        return FormulaLeaf(LeafKind.TEXT, words, self._tokens[begin].start, self._tokens[self.at - 1].start)

    def _part(self) -> FormulaNode:
        """Take a part of a command: a group in braces, or one sign."""
        self._skip_blanks()
        if self._peek().text == "{":
            return self._inside_tex_braces()[0]
        token = self._peek()
        if token.kind == "number" and len(token.text) == 2:  # \frac12
            raise NoFormulaHere
        return self._primary()

    def _inside_tex_braces(self) -> tuple[FormulaNode, int]:
        tex, self._tex = self._tex, True
        try:
            return self._inside("}")
        finally:
            self._tex = tex


_COMMANDS: dict[str, Callable[[TexParser], FormulaNode]] = {
    **dict.fromkeys(signs.TEX_FRACTIONS, TexParser._fraction),
    **dict.fromkeys(signs.TEX_VECTORS, TexParser._vector),
    **dict.fromkeys(signs.TEX_TEXTS, TexParser._text),
    "sqrt": TexParser._root_command,
}
