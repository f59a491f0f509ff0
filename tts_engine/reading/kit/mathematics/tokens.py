"""Tokens of formulas in folded text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...unicode_scripts import HANGUL, NO_SPACE_SCRIPTS
from . import signs

# Letters of a script with blanks; Han, kana and Hangul may stand beside a formula.
_LETTER = rf"(?![{NO_SPACE_SCRIPTS}{HANGUL}ⁿⁱ])[^\W\d_]"
_GREEK = "".join(signs.GREEK)
_SUPERSCRIPT = "[⁻⁺ⁿⁱ]"  # those that folding keeps
_NUMBER = r"\d{1,3}(?:[, ]\d{3})+(?!\d)(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+"
_LONG_UNIT = "km|cm|mm|nm|kg|mg|ms|min|kWh|kW|MW|kJ|MJ|Hz|kHz|MHz|GHz|kPa|Pa|yr|mol|mL|ml|dm|km/h|°[CF]?|Ω|kΩ"
_UNIT = (
    rf"(?: ?(?:{_LONG_UNIT})| (?:m|g|s|h|N|J|W|V|A|K|L))(?:\^[23])?"
    r"(?:/(?:s|h|min|m|L|mL|ml|dL|kg|mol|cm|mm|K|d|day|yr)(?:\^[23])?)?"
)
_TOKEN = re.compile(
    rf"(?P<blank> +)"
    rf"|(?P<heart>(?<= )<3(?![\w.]))"
    rf"|(?P<tag></?[A-Za-z][^<>\n]{{0,60}}>)"
    rf"|(?P<arrow><?-{{1,2}}>|<-(?![\d ])|===|!==|<=>|=>|[+*/-]=|\+\+|--|\|\||&&|<<|>>)"
    r"|(?P<hexadecimal>0[xX][0-9A-Fa-f]+(?!\w))"
    # "90e+3" is a minute of play.
    rf"|(?P<science>(?!(?:45|90|105|120)e\+)\d+(?:\.\d+)?[eE][-+]?\d{{1,3}}(?!\w|\.\d))"
    rf"|(?P<quantity>(?:{_NUMBER}){_UNIT}(?![\w^/]))"
    rf"|(?P<number>(?:{_NUMBER})(?![.,:]\d))"
    rf"|(?P<command>\\(?:[A-Za-z]+|[^\w\s]|[ ]))"
    rf"|(?P<superscript>(?:{_SUPERSCRIPT}|\^\d(?=\^\d|{_SUPERSCRIPT}))(?:{_SUPERSCRIPT}|\^\d)*)"
    rf"|(?P<power>\*\*|\^)"
    rf"|(?P<operator>\+/-|[{re.escape(''.join(s for s in signs.OPERATORS if len(s) == 1))}])"
    rf"|(?P<relation>[!<>=]=|[{re.escape(''.join(s for s in signs.RELATIONS if len(s) == 1))}])"
    rf"|(?P<greek>[{_GREEK}](?![{_GREEK}]))"
    rf"|(?P<word>(?:{_LETTER})+(?:'(?:{_LETTER})+)*)"
    rf"|(?P<sign>[{''.join(signs.SIGNS)}])"
    rf"|(?P<big>[{''.join(signs.BIG_SIGNS)}])"
    rf"|(?P<root>[{''.join(signs.ROOTS)}])"
    r"|(?P<mark>[(){}\[\]|_!%',:;&°?.])"
    r"|(?P<other>.|\n)"
)


@dataclass(frozen=True, slots=True)
class FormulaToken:
    """A token, written at ``start`` to ``stop`` of a view; ``kind`` is a group of the pattern above."""

    kind: str
    text: str
    start: int
    stop: int


END = FormulaToken("end", "", 0, 0)


def tokens_of(view: str, start: int, stop: int) -> list[FormulaToken]:
    """Return the tokens of a part of a view."""
    return list(_tokens(view, start, stop))


def _tokens(view: str, start: int, stop: int) -> Iterator[FormulaToken]:
    for match in _TOKEN.finditer(view, start, stop):
        yield FormulaToken(match.lastgroup or "other", match.group(), *match.span())
