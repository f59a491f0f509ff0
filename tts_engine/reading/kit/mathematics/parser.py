"""Parser of formulas: tokens become a tree, as far as they are a formula.

Text has formulas among its words, so the parser stops where one ends. In plain text a blank separates
operands, and a word ends the formula; in TeX neither does. Nesting is bounded.
"""

from __future__ import annotations

from collections.abc import Callable

from . import signs
from .cursor import FormulaStep, NoFormulaHere
from .tex import TexParser
from .tokens import END, FormulaToken
from .tree import (
    FormulaLeaf,
    FormulaNode,
    FormulaRow,
    FormulaScript,
    LeafKind,
)

MAX_DEPTH = 16  # of parts in parts
_MAX_CONDITION = 12  # tokens after the bar of "P(B|A)"


class FormulaParser(TexParser):
    """Parser of the tokens of one formula. ``at``: the next token."""

    def steps(self, closer: str = "") -> list[FormulaStep]:
        """Return the operands from here, each with its sign, up to ``closer`` or the end of the formula."""
        steps: list[FormulaStep] = []
        while True:
            begin, features = self.at, self._features
            self._features = set()
            try:
                nodes = self._step(not steps, closer)
            except NoFormulaHere:
                nodes = []
            found, self._features = self._features, features
            if not nodes:
                self.at = begin
                return steps
            self._features |= found
            steps.append(FormulaStep(tuple(nodes), self._tokens[self.at - 1].stop, frozenset(found)))

    def _step(self, is_first: bool, closer: str) -> list[FormulaNode]:
        begin = self.at
        self._skip_blanks()
        had_blank = self.at > begin
        if self._closes(self._peek(), closer):
            raise NoFormulaHere
        sign = self._infix(is_first, had_blank)
        if sign is None:
            if not is_first and had_blank and not self._tex and not self._may_follow_blank():
                raise NoFormulaHere
            return self._operand()
        self._skip_blanks()
        asked = self._peek()
        if sign.value in signs.RELATION_NAMES and asked.text == "?" and not is_first:
            return [sign]  # "5 - 3 = ?"
        if sign.kind is LeafKind.PAUSE or (self._tex and (asked is END or self._closes(asked, closer))):
            return [sign, *self._operand_or_none(closer)]
        return [sign, *self._operand()]

    def _operand_or_none(self, closer: str) -> list[FormulaNode]:
        asked = self._peek()
        if self._tex and (asked is END or self._closes(asked, closer)):
            return []
        return self._operand()

    @staticmethod
    def _closes(token: FormulaToken, closer: str) -> bool:
        return bool(closer) and token.text == closer

    def _may_follow_blank(self) -> bool:
        """Whether an operand after a blank belongs to the one before it: "π r", "∫ x dx"."""
        before = self._tokens[max(0, self.at - 2)]
        return before.kind in ("greek", "big", "command") or (
            "big" in self._features and self._peek().kind == "word"
        )

    def _infix(self, is_first: bool, had_blank: bool) -> FormulaLeaf | None:
        """Take the relation or the operator here; None if there is none."""
        token = self._peek()
        name = self._relation(token)
        if name:
            self._features |= {"relation", name}
            return self._sign(name, token)
        if is_first:
            return None
        name = self._operator(token, had_blank)
        if name:
            self._features |= {"operator", name}
            return self._sign(name, token)
        if token.text == "|" and self._depth and self._is_condition():
            return self._sign("given", token)
        if token.text in (",", ";", ":") and (self._tex or self._depth):
            self.at += 1
            return FormulaLeaf(LeafKind.PAUSE, "", token.start, token.stop)
        return None

    def _is_condition(self) -> bool:
        """Whether the bar here is that of "P(B|A)", the only one before the bracket closes."""
        for offset in range(1, _MAX_CONDITION):
            text = self._peek(offset).text
            if text == ")":
                return offset > 1
            if text in ("|", "(", ""):
                return False
        return False

    @staticmethod
    def _relation(token: FormulaToken) -> str:
        if token.kind == "relation":
            return signs.RELATIONS[token.text]
        return signs.TEX_RELATIONS.get(token.text[1:], "") if token.kind == "command" else ""

    def _operator(self, token: FormulaToken, had_blank: bool) -> str:
        if token.kind == "operator":
            return signs.OPERATORS[token.text]
        if token.kind == "command":
            return signs.TEX_OPERATORS.get(token.text[1:], "")
        if token.text == "°" and self._tex:
            return ""
        if token.text == "x" and self._is_multiple(had_blank):
            return "times"
        if token.text == "mod" and had_blank:
            return "mod"
        return ""

    def _is_multiple(self, had_blank: bool) -> bool:
        """Whether the "x" here is between two numbers: "12 x 4"."""
        before, after = self._tokens[self.at - 1 - had_blank], self._peek(1)
        if had_blank and after.kind == "blank":
            after = self._peek(2)
        return before.kind in ("number", "quantity") and after.kind in ("number", "quantity")

    def _operand(self) -> list[FormulaNode]:
        """Take an operand with the signs before it."""
        self._skip_blanks() if self._tex else None
        token = self._peek()
        if token.text in ("-", "+", "±") or token.text in ("\\pm", "\\mp"):
            if self._peek(1).kind == "blank" and not self._tex:
                raise NoFormulaHere
            name = {"-": "negative", "+": "plus", "\\mp": "minus_plus"}.get(token.text, "plus_minus")
            sign = self._sign(name, token)
            self._features.add("sign")
            return [sign, self._scripted(self._primary())]
        return [self._scripted(self._primary())]

    def _primary(self) -> FormulaNode:
        token = self._peek()
        read = _PRIMARIES.get(token.kind)
        if read is None or self._depth >= MAX_DEPTH:
            raise NoFormulaHere
        self._depth += 1
        try:
            return read(self, token)
        finally:
            self._depth -= 1

    # Indices, exponents and what follows an operand

    def _scripted(self, base: FormulaNode) -> FormulaNode:
        """Take the index, the exponent and the signs after an operand."""
        while True:
            below, above = self._scripts()
            token = self._peek()
            if below is not None or above is not None:
                base = FormulaScript(base, below, above)
            elif token.text in ("%", "\\%"):
                base = FormulaRow((base, self._sign("percent", token)))
            elif token.text == "°":
                base = FormulaRow((base, self._sign("degrees", token)))
            elif token.text == "!" and self._is_factorial():
                self._features |= {"strong", "operator"}
                base = FormulaRow((base, self._sign("factorial", token)))
            else:
                return base

    def _is_factorial(self) -> bool:
        after = self._peek(1)
        after = self._peek(2) if after.kind == "blank" else after
        return self._tex or after.kind in ("relation", "operator") or after.text == ")"

    def _scripts(self) -> tuple[FormulaNode | None, FormulaNode | None]:
        below: FormulaNode | None = None
        above: FormulaNode | None = None
        while True:
            token = self._peek()
            if token.text == "_" and below is None and self._may_have_index():
                self.at += 1
                self._features |= {"strong", "index"}
                below = self._script()
            elif token.kind == "power" and above is None:
                self.at += 1
                self._features.add("power")
                above = self._script()
            elif token.kind == "superscript" and above is None:
                self.at += 1
                self._features |= {"power", "strong"}
                above = _superscript(token)
            elif token.text == "\\limits":
                self.at += 1
            else:
                return below, above

    def _may_have_index(self) -> bool:
        """Whether "_" is no part of a name such as "max_length"."""
        after, second = self._peek(1), self._peek(2)
        return self._tex or after.text == "{" or (len(after.text) <= 2 and second.text != "_")

    def _script(self) -> FormulaNode:
        """Take an index or an exponent: one sign, a number, or a group."""
        self._skip_blanks() if self._tex else None
        token = self._peek()
        if token.text == "{":
            body, _ = self._inside_tex_braces()
            return body
        if token.text in ("-", "+"):
            following = self._peek(1)
            if following.kind not in ("number", "word", "greek"):
                raise NoFormulaHere
            sign = self._sign("negative" if token.text == "-" else "plus", token)
            return FormulaRow((sign, self._primary()))
        if token.text == "(":
            return self._bare(self._primary())
        if token.kind == "command" and token.text == "\\circ":
            return self._sign("degrees", token)
        if token.text == "*":
            raise NoFormulaHere
        return self._primary()


def _superscript(token: FormulaToken) -> FormulaNode:
    """Return the exponent of "⁻⁴" or "ⁿ"."""
    text = token.text.translate(signs.SUPERSCRIPTS)
    start = token.start
    items: list[FormulaNode] = []
    if text[0] in "-+":
        items.append(FormulaLeaf(LeafKind.SIGN, "negative" if text[0] == "-" else "plus", start, token.stop))
    elif text[-1] in "-+":  # "2⁺", a charge
        sign = "minus" if text[-1] == "-" else "plus"
        items.append(FormulaLeaf(LeafKind.SIGN, sign, start, token.stop))
    bare = text.strip("-+")
    if bare:
        kind = LeafKind.NUMBER if bare.isdigit() else LeafKind.LETTER
        items.append(FormulaLeaf(kind, bare, start, token.stop))
    return FormulaRow(tuple(items))


_Primary = Callable[[FormulaParser, FormulaToken], FormulaNode]
_PRIMARIES: dict[str, _Primary] = {
    "number": FormulaParser._number,
    "quantity": FormulaParser._quantity,
    "science": FormulaParser._science,
    "greek": FormulaParser._greek,
    "sign": FormulaParser._symbol,
    "word": FormulaParser._word,
    "root": FormulaParser._root,
    "big": FormulaParser._big,
    "mark": FormulaParser._mark,
    "command": FormulaParser._command,
}
