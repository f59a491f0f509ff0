"""Parser of formulas: tokens become a tree, as far as they are a formula.

Text has formulas among its words, so the parser stops where one ends. In plain text a blank separates
operands, and a word ends the formula; in TeX neither does. Nesting is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import signs
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
    FormulaVector,
    LeafKind,
)

MAX_DEPTH = 16  # of parts in parts
_CLOSERS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
_DECORATIONS = frozenset(
    """
    left right big Big bigg Bigg bigl bigr Bigl Bigr mathbf mathrm mathbb mathcal mathit mathsf boldsymbol
    quad qquad displaystyle textstyle limits nolimits bar hat tilde overline underline dot ddot
    """.split()
)
_SPACES = frozenset(("\\,", "\\;", "\\!", "\\:", "\\ ", "\\|"))
_FUNCTION_LETTERS = frozenset("fghFGPpu")  # before brackets, which hold an argument
_VOWELS_OF_PRODUCTS = frozenset("eiouyEOUY")  # "ma" and "IR" are products, "of" and "is" are words


class NoFormulaHere(Exception):
    """The tokens are no formula from here on."""


@dataclass(frozen=True, slots=True)
class FormulaStep:
    """An operand with the sign before it. ``features``: what shows that it is mathematics."""

    nodes: tuple[FormulaNode, ...]
    stop: int  # in the view
    features: frozenset[str]


class FormulaParser:
    """Parser of the tokens of one formula. ``at``: the next token."""

    def __init__(self, tokens: Sequence[FormulaToken], at: int = 0, *, tex: bool = False) -> None:
        self.at = at
        self._tokens = tokens
        self._tex = tex
        self._depth = 0
        self._features: set[str] = set()

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

    # Signs between operands

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
        if token.text in (",", ";", ":") and (self._tex or self._depth):
            self.at += 1
            return FormulaLeaf(LeafKind.PAUSE, "", token.start, token.stop)
        return None

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

    def _sign(self, name: str, token: FormulaToken) -> FormulaLeaf:
        self.at += 1
        return FormulaLeaf(LeafKind.SIGN, name, token.start, token.stop)

    # Operands

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
        return after.text in ("(", "^", "_") or after.kind in ("superscript", "greek")

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
            return FormulaScript(leaf, self._number(after), None)
        primes: FormulaNode = leaf
        if after.text == "'" and (self._tex or self._peek(1).text == "("):
            primes = FormulaRow((leaf, self._sign("prime", after)))
            after = self._peek()
        if after.text == "(" and leaf.value in _FUNCTION_LETTERS:
            return FormulaApplication(primes, self._bare(self._primary()), is_named=True)
        return primes

    def _function(self, token: FormulaToken) -> FormulaNode:
        self.at += 1
        self._features.add("letter")
        name = token.text.removeprefix("\\")
        leaf = FormulaLeaf(LeafKind.FUNCTION, name, token.start, token.stop)
        function = self._scripted(leaf)
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
        below, above = self._scripts()
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

    def _inside_tex_braces(self) -> tuple[FormulaNode, int]:
        tex, self._tex = self._tex, True
        try:
            return self._inside("}")
        finally:
            self._tex = tex

    # TeX

    def _command(self, token: FormulaToken) -> FormulaNode:
        name = token.text[1:]
        if token.text in _SPACES or name in _DECORATIONS:
            if not self._tex and token.text in _SPACES:
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

    # Tokens

    def _peek(self, ahead: int = 0) -> FormulaToken:
        at = self.at + ahead
        return self._tokens[at] if at < len(self._tokens) else END

    def _skip_blanks(self) -> None:
        while self._peek().kind == "blank" or (self._tex and self._peek().text in ("\n", "&", *_SPACES)):
            self.at += 1


def _is_variable(token: FormulaToken) -> bool:
    return token.kind == "word" and len(token.text) == 1 and token.text.isascii()


def _is_fraction(above: str, below: str) -> bool:
    """Whether "1/2" is a part of one, and no division."""
    return above.isdigit() and below.isdigit() and len(below) < 3 and int(above) < int(below)


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
_COMMANDS: dict[str, Callable[[FormulaParser], FormulaNode]] = {
    **dict.fromkeys(signs.TEX_FRACTIONS, FormulaParser._fraction),
    **dict.fromkeys(signs.TEX_VECTORS, FormulaParser._vector),
    **dict.fromkeys(signs.TEX_TEXTS, FormulaParser._text),
    "sqrt": FormulaParser._root_command,
}
