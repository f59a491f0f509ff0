"""Signs of mathematics in plain text, Unicode and TeX, by the names that the words of a language have.

Text is folded before: "−" is "-", "²" is "^2", "·" is "•".
Source: Unicode 15.1, blocks Mathematical Operators and Superscripts; LaTeX, "The Not So Short Introduction".
"""

from typing import Final

RELATIONS: Final = {
    "=": "eq",
    "==": "eq",
    "≠": "ne",
    "!=": "ne",
    "<": "lt",
    ">": "gt",
    "<=": "le",
    ">=": "ge",
    "≤": "le",
    "≥": "ge",
    "⩽": "le",
    "⩾": "ge",
    "≈": "approx",
    "≃": "approx",
    "≅": "congruent",
    "≡": "equivalent",
    "∝": "proportional",
    "∈": "in",
    "∉": "not_in",
    "⊂": "subset",
    "⊆": "subset",
    "⇒": "implies",
    "⇔": "iff",
}
OPERATORS: Final = {
    "+": "plus",
    "-": "minus",
    "+/-": "plus_minus",
    "±": "plus_minus",
    "∓": "minus_plus",
    "*": "times",
    "×": "times",
    "•": "times",
    "⋅": "times",
    "÷": "divided",
    "/": "divided",
    "∪": "union",
    "∩": "intersection",
    "∧": "and",
    "∨": "or",
}
SIGNS: Final = {
    "∞": "infinity",
    "∅": "empty_set",
    "∂": "partial",
    "∇": "nabla",
    "∀": "for_all",
    "∃": "exists",
}
BIG_SIGNS: Final = {"∑": "sum", "∏": "product", "∫": "integral"}
ROOTS: Final = {"√": "", "∛": "3", "∜": "4"}
GREEK_NAMES: Final = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu "
    "nu xi omicron pi rho sigma tau upsilon phi chi psi omega"
).split()
_SMALL: Final = "αβγδεζηθικλμνξοπρστυφχψω"
GREEK: Final = {
    **dict(zip(_SMALL, GREEK_NAMES, strict=True)),
    **dict(zip(_SMALL.upper(), GREEK_NAMES, strict=True)),
    **{"ϵ": "epsilon", "ϑ": "theta", "ϕ": "phi", "∆": "delta"},
}
SUPERSCRIPTS: Final = str.maketrans("⁻⁺ⁿⁱ", "-+ni", "^{}")
FUNCTIONS: Final = frozenset(
    """
    sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp max min gcd det arg sup inf
    """.split()
)

# Of TeX, without the backslash
TEX_RELATIONS: Final = {
    **{
        "eq": "eq",
        "neq": "ne",
        "ne": "ne",
        "lt": "lt",
        "gt": "gt",
        "leq": "le",
        "le": "le",
        "leqslant": "le",
    },
    **{"geq": "ge", "ge": "ge", "geqslant": "ge", "approx": "approx", "simeq": "approx", "sim": "approx"},
    **{"cong": "congruent", "equiv": "equivalent", "propto": "proportional", "in": "in", "notin": "not_in"},
    **{"subset": "subset", "subseteq": "subset", "to": "to", "rightarrow": "to", "longrightarrow": "to"},
    **{"mapsto": "to", "implies": "implies", "Rightarrow": "implies", "iff": "iff", "Leftrightarrow": "iff"},
    **{"ll": "lt", "gg": "gt"},
}
RELATION_NAMES: Final = frozenset((*RELATIONS.values(), *TEX_RELATIONS.values()))
TEX_OPERATORS: Final = {
    **{"times": "times", "cdot": "times", "ast": "times", "div": "divided", "pm": "plus_minus"},
    **{"mp": "minus_plus", "cup": "union", "cap": "intersection", "land": "and", "wedge": "and"},
    **{"lor": "or", "vee": "or", "bmod": "mod", "pmod": "mod", "mod": "mod", "setminus": "minus"},
}
TEX_SIGNS: Final = {
    **{"infty": "infinity", "emptyset": "empty_set", "varnothing": "empty_set", "partial": "partial"},
    **{"nabla": "nabla", "forall": "for_all", "exists": "exists", "ldots": "dots", "cdots": "dots"},
    **{"dots": "dots", "%": "percent", "circ": "degrees", "prime": "prime", "therefore": "implies"},
}
TEX_BIG_SIGNS: Final = {
    **{"sum": "sum", "prod": "product", "int": "integral", "iint": "integral", "oint": "integral"},
    "lim": "limit",
}
TEX_GREEK: Final = {
    **{name: name for name in GREEK_NAMES},
    **{name.title(): name for name in GREEK_NAMES},
    **{f"var{name}": name for name in GREEK_NAMES},
}
TEX_FRACTIONS: Final = frozenset(("frac", "dfrac", "tfrac", "cfrac"))
TEX_VECTORS: Final = frozenset(("vec", "overrightarrow"))
TEX_TEXTS: Final = frozenset(("text", "textbf", "textit", "textrm", "mathrm", "operatorname", "mbox"))
TEX_COMMANDS: Final = frozenset(
    (
        *TEX_RELATIONS,
        *TEX_OPERATORS,
        *TEX_SIGNS,
        *TEX_BIG_SIGNS,
        *TEX_GREEK,
        *TEX_FRACTIONS,
        *TEX_VECTORS,
        *TEX_TEXTS,
        *FUNCTIONS,
        "sqrt",
    )
)
