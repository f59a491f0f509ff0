"""Operands of formulas: numbers, variables, products of them, functions, roots, and brackets."""

from __future__ import annotations

from . import signs
from .cursor import FormulaCursor, NoFormulaHere
from .tokens import END, FormulaToken
from .tree import (
    FormulaApplication,
    FormulaBig,
    FormulaFraction,
    FormulaGroup,
    FormulaLeaf,
    FormulaNode,
    FormulaRoot,
    FormulaRow,
    FormulaScript,
    LeafKind,
)

_CLOSERS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
_NUMBERED_LETTERS = "vVQHpP"  # of a version or a speed, a quarter, a half of a year, a percentile
_FUNCTION_LETTERS = frozenset("fghFGPpu")  # before brackets, which hold an argument
_NAMES_OF_INDICES = frozenset(("max", "min"))
_VOWELS_OF_PRODUCTS = frozenset("eiouyEOUY")  # "ma" and "IR" are products, "of" and "is" are words


class OperandParser(FormulaCursor):
    """Parser of operands."""

    def _number(self, token: FormulaToken) -> FormulaNode:
        self.at += 1
        self._features.add("number")
        leaf = FormulaLeaf(LeafKind.NUMBER, token.text, token.start, token.stop)
        below = self._peek(1)
        if self._peek().text == "/" and below.kind == "number" and _is_fraction(token.text, below.text):
            self.at += 2
            self._features.add("operator")
            return FormulaFraction(leaf, FormulaLeaf(LeafKind.NUMBER, below.text, below.start, below.stop))
        return leaf

    def _quantity(self, token: FormulaToken) -> FormulaNode:
        self.at += 1
        self._features.add("number")
        return FormulaLeaf(LeafKind.TEXT, token.text, token.start, token.stop)

    def _science(self, token: FormulaToken) -> FormulaNode:
        """Take "1e-5"."""
        self.at += 1
        mantissa, exponent = token.text.lower().split("e")
        if exponent[0] in "+-":
            self._features.add("strong")
        start = token.start + len(mantissa)
        power = exponent.lstrip("+-")
        above: list[FormulaNode] = [FormulaLeaf(LeafKind.NUMBER, power, token.stop - len(power), token.stop)]
        if exponent[0] == "-":
            above.insert(0, FormulaLeaf(LeafKind.SIGN, "negative", start + 1, start + 2))
        ten = FormulaLeaf(LeafKind.NUMBER, "10", start, start + 1)
        return FormulaRow(
            (
                FormulaLeaf(LeafKind.NUMBER, mantissa, token.start, start),
                FormulaLeaf(LeafKind.SIGN, "times", start, start + 1),
                FormulaScript(ten, None, FormulaRow(tuple(above))),
            )
        )

    def _greek(self, token: FormulaToken) -> FormulaNode:
        self.at += 1
        self._features.add("letter")
        return FormulaLeaf(LeafKind.SIGN, signs.GREEK[token.text], token.start, token.stop)

    def _symbol(self, token: FormulaToken) -> FormulaNode:
        self._features |= {"strong", "letter"}
        return self._sign(signs.SIGNS[token.text], token)

    def _word(self, token: FormulaToken) -> FormulaNode:
        """Take a variable, a product of variables or the name of a function."""
        text = token.text
        if text in signs.FUNCTIONS and (self._tex or self._names_function()):
            return self._function(token)
        before = self._tokens[self.at - 1] if self.at else END
        if text in _NAMES_OF_INDICES and before.kind == "greek":  # "λmax"
            self.at += 1
            return FormulaLeaf(LeafKind.FUNCTION, text, token.start, token.stop)
        if text == "sqrt" and self._peek(1).text == "(":
            self.at += 1
            self._features.add("strong")
            return FormulaRoot(None, self._bare(self._primary()))
        if not text.isascii() or not text.isalpha() or not (self._tex or self._is_product(text)):
            raise NoFormulaHere
        self.at += 1
        self._features.add("letter")
        letters = tuple(
            FormulaLeaf(LeafKind.LETTER, letter, token.start + index, token.start + index + 1)
            for index, letter in enumerate(text)
        )
        if len(text) == 1:
            return self._variable(letters[0])
        self._features.add("product")
        return FormulaRow((*letters[:-1], self._scripted(letters[-1])))

    def _names_function(self) -> bool:
        """Whether the name of a function has an argument: "log(x)", "sin x", "sin²θ", but not "log in"."""
        after = self._peek(1)
        if after.kind == "blank":
            after = self._peek(2)
            return after.kind in ("greek", "number") or (len(after.text) == 1 and after.kind == "word")
        has_base = after.kind == "number" and self._peek().text == "log" and self._peek(2).text == "("
        return has_base or after.text in ("(", "^", "_") or after.kind in ("superscript", "greek")

    def _is_product(self, text: str) -> bool:
        before = self._tokens[self.at - 1] if self.at else END
        if len(text) == 1 or before.kind in ("number", "greek"):
            return len(text) <= 3
        is_short = len(text) <= 3 and not _VOWELS_OF_PRODUCTS.intersection(text)
        after = self._peek(1)
        has_power = after.kind in ("power", "superscript") and len(text) <= 3
        return has_power or (is_short and bool({"letter", "big"} & self._seen()))

    def _seen(self) -> set[str]:
        """What shows mathematics in the tokens before this one."""
        kinds = {token.kind for token in self._tokens[max(0, self.at - 8) : self.at]}
        names = (
            {"letter"} if any(_is_variable(t) for t in self._tokens[max(0, self.at - 8) : self.at]) else set()
        )
        return kinds | names

    def _variable(self, leaf: FormulaLeaf) -> FormulaNode:
        """Take what belongs to a variable: its index "x1", its argument "f(x)"."""
        after = self._peek()
        if after.kind == "number" and after.text.isdigit() and not self._tex:
            self._features.add("index")
            if leaf.value in _NUMBERED_LETTERS:
                return FormulaRow((leaf, self._number(after)))
            return FormulaScript(leaf, self._number(after), None)
        primes: FormulaNode = leaf
        if after.text == "'" and (self._tex or self._peek(1).text == "("):
            primes = FormulaRow((leaf, self._sign("prime", after)))
            after = self._peek()
        if after.text == "(" and leaf.value in _FUNCTION_LETTERS:
            return FormulaApplication(primes, self._bare(self._primary()), is_named=True)
        return primes

    # With other parts in them

    def _function(self, token: FormulaToken) -> FormulaNode:
        self.at += 1
        self._features.add("letter")
        name = token.text.removeprefix("\\")
        leaf = FormulaLeaf(LeafKind.FUNCTION, name, token.start, token.stop)
        function = self._scripted(leaf)
        if name == "log" and self._peek().kind == "number" and self._peek(1).text == "(":  # "log10(x)"
            self._features |= {"strong", "index"}
            function = FormulaScript(leaf, self._number(self._peek()), None)
        self._skip_blanks()
        if self._peek().kind == "command" and self._peek().text == "\\left":
            self.at += 1
        is_named = self._peek().text == "(" and "index" not in self._features
        argument = self._argument()
        return function if argument is None else FormulaApplication(function, argument, is_named=is_named)

    def _argument(self) -> FormulaNode | None:
        begin = self.at
        try:
            if self._peek().text == "(":
                return self._bare(self._primary())
            return self._operand_of_function()
        except NoFormulaHere:
            self.at = begin
            return None

    def _operand_of_function(self) -> FormulaNode:
        """Take "2x" of "sin 2x"."""
        nodes = [self._scripted(self._primary())]
        while self._peek().kind in ("word", "greek") and self._tokens[self.at - 1].kind != "blank":
            nodes.append(self._scripted(self._primary()))
        return nodes[0] if len(nodes) == 1 else FormulaRow(tuple(nodes))

    def _bare(self, node: FormulaNode) -> FormulaNode:
        """Return what is in brackets, which need not be said."""
        return node.body if isinstance(node, FormulaGroup) and node.name == "brackets" else node

    def _root(self, token: FormulaToken) -> FormulaNode:
        self.at += 1
        self._features.add("strong")
        degree = signs.ROOTS[token.text]
        leaf = FormulaLeaf(LeafKind.NUMBER, degree, token.start, token.stop) if degree else None
        self._skip_blanks() if self._tex else None
        body = self._bare(self._primary())
        return FormulaRoot(leaf, self._scripted(body) if not isinstance(body, FormulaRow) else body)

    def _big(self, token: FormulaToken) -> FormulaNode:
        self.at += 1
        name = signs.BIG_SIGNS.get(token.text) or signs.TEX_BIG_SIGNS[token.text[1:]]
        self._features |= {"strong", "big"}
        first: FormulaNode | None = None
        if self._peek().kind == "number" and self._peek(1).kind in ("power", "superscript"):  # "∫₀¹"
            first = self._number(self._peek())
        below, above = self._scripts()
        below = below or first
        return FormulaBig(name, below, above, token.start, token.stop)

    def _mark(self, token: FormulaToken) -> FormulaNode:
        if token.text in "([" or (token.text == "{" and self._tex):
            return self._group(token)
        if token.text == "|":
            return self._absolute(token)
        raise NoFormulaHere

    def _group(self, token: FormulaToken) -> FormulaNode:
        name = "braces" if token.text == "{" else "brackets"
        body, stop = self._inside(_CLOSERS[token.text])
        return FormulaGroup(name, body, token.start, stop)

    def _absolute(self, token: FormulaToken) -> FormulaNode:
        if self._peek(1).kind == "blank" and not self._tex:
            raise NoFormulaHere
        body, stop = self._inside("|")
        self._features.add("absolute")
        return FormulaGroup("absolute", body, token.start, stop)

    def _inside(self, closer: str) -> tuple[FormulaNode, int]:
        """Take what is between two brackets; ``at`` is at the first."""
        self.at += 1
        steps = self.steps(closer)
        self._skip_blanks()
        if self._peek().kind == "command" and self._peek().text == "\\right":
            self.at += 1
        closing = self._peek()
        if closing.text != closer or (not steps and not self._tex):
            raise NoFormulaHere
        self.at += 1
        return FormulaRow(tuple(node for step in steps for node in step.nodes)), closing.stop


def _is_variable(token: FormulaToken) -> bool:
    return token.kind == "word" and len(token.text) == 1 and token.text.isascii()


def _is_fraction(above: str, below: str) -> bool:
    """Whether "1/2" is a part of one, and no division."""
    return above.isdigit() and below.isdigit() and len(below) < 3 and int(above) < int(below)
