"""Places in unfinished text that are inside a formula, where no clause ends.

They are decided by the text before them, and at most one sign after it.
"""

import re

_MAX_OPEN = 200  # characters for whose end a boundary waits
_DOLLAR = r"(?<![\w$\\])\$(?![\s$])"
_SPAN_OR_OPENING = re.compile(
    r"\$\$[^$]{1,300}\$\$|\\\[.{1,300}?\\\]|\\\(.{1,300}?\\\)"
    rf"|{_DOLLAR}[^$\n]{{1,200}}?(?<![\s\\])\$(?![\d$])|(?P<block>\$\$|\\\[)|(?P<inline>\\\(|{_DOLLAR})",
    re.DOTALL,
)
# Text without it has no place for which ``is_inside_tex`` holds; "$5 or" is money.
TEX_OPENING = re.compile(r"\\[(\[]|\$\$|\$(?=[^\s\d$])|\$(?=\d[^$\n]{0,200}[\\^_=+<>*{])")
_MONEY = re.compile(r"\$\d[\d.,]*[^\\^_=+<>*{]*\Z")
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,} [A-Za-z]{3,}")
_LIST_ENTRY = r"[-+]?(?:\d{1,9}(?:\.\d{1,9})?|[A-Za-z])"
_OPEN_LIST = re.compile(rf"(?:(?<![\w)\]])[A-Za-z]'?)?\((?:{_LIST_ENTRY}, ?){{0,8}}{_LIST_ENTRY}\Z")
_MAX_LIST = 60  # characters of such a list
_FACTORIAL = re.compile(r"(?<![^\W\d_])(?:[a-z]|\d{1,9}|\))\Z")
_TERM = re.compile(r"(?:\A|[\s(=+*/-])(?:\d+[a-z]?|[b-hj-zA-HJ-Z])\Z")
# The relations and operators of ``signs``, and a power.
_AFTER_FACTORIAL = frozenset("=≠<>≤≥⩽⩾≈≃≅≡∝∈∉⊂⊆⇒⇔+-±∓*×•⋅÷/∪∩∧∨^")


def is_inside_tex(view: str, at: int) -> bool:
    """Whether ``at`` is inside TeX whose end may still come."""
    opening = next((each for each in _SPAN_OR_OPENING.finditer(view, 0, at) if each.lastgroup), None)
    if opening is None or at - opening.start() > _MAX_OPEN:
        return False
    inside = view[opening.start() : at]
    return not (_MONEY.match(inside) or _WORDS.search(inside)) and not (
        opening.lastgroup == "inline" and "\n" in inside
    )


def is_inside_list(view: str, at: int) -> bool:
    """Whether the comma at ``at`` is inside brackets such as those of "f(x, y)"."""
    opened = view.rfind("(", max(0, at - _MAX_LIST), at)
    return opened >= 0 and _OPEN_LIST.search(view, max(0, opened - 2), at) is not None


def may_be_factorial(view: str, at: int) -> bool:
    """Whether the "!" at ``at`` may be that of "n! = 6"; the sign after it shows."""
    return _FACTORIAL.search(view, max(0, at - 10), at) is not None


def continues_formula(sign: str) -> bool:
    """Whether a sign after "n!" shows that it is a factorial."""
    return sign in _AFTER_FACTORIAL


def ends_with_term(before: str) -> bool:
    """Whether text before a dash ends with a variable or a number: "2x" of "2x - y"."""
    return _TERM.search(before, max(0, len(before) - 12)) is not None
