"""Speaker of formulas: the words of a tree, each with the characters that it stands for."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..tokenizer import ScanState
from .signs import RELATION_NAMES
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
from .words import MathematicsWords

_PART = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True, slots=True)
class FormulaVoice:
    """What a language says in formulas.

    Attributes:
        words: its words.
        number: the words of a number as it is written.
        letter: the name of a letter.
        read: emits a text, written at a place, as the language's grammar reads it.
        comma: the mark of a pause.
    """

    words: MathematicsWords
    number: Callable[[str], str]
    letter: Callable[[ScanState, str], str]
    read: Callable[[ScanState, str, int, int], None]
    comma: str = ","


class FormulaSpeaker:
    """Speaker of the formulas of one scan."""

    def __init__(self, scan: ScanState, voice: FormulaVoice, start: int) -> None:
        self._scan = scan
        self._voice = voice
        self._words = voice.words
        self._at = start, start + 1  # of the last word, so that ranges never go back

    def say(self, node: FormulaNode) -> None:
        """Emit the words of ``node``."""
        match node:
            case FormulaLeaf():
                self._say_leaf(node)
            case FormulaRow(items):
                self._say_row(items)
            case FormulaFraction(above, below):
                self._say_fraction(above, below)
            case FormulaRoot(degree, body):
                self._say_root(degree, body)
            case FormulaScript(base, below, above):
                self._say_script(base, below, above)
            case FormulaGroup():
                self._say_group(node)
            case FormulaApplication(function, argument, is_named):
                self.say(function)
                self._say_template(self._words.application if is_named else "{}", {"": argument})
            case FormulaBig():
                self._say_big(node)
            case FormulaVector(body):
                self._say_template(self._words.vector, {"": body})

    def emit(self, words: str, start: int | None = None, stop: int = 0) -> None:
        """Emit words written at ``start`` to ``stop``; without a place, at that of the last word."""
        if start is not None:
            begin = max(start, self._at[0])
            self._at = begin, max(stop, begin + 1)
        self._scan.emit(words, *self._at)

    def _say_row(self, items: tuple[FormulaNode, ...]) -> None:
        """Say the items one after another; the words of a relation may go around its right side."""
        for at, item in enumerate(items):
            template = self._words.signs.get(item.value, "") if isinstance(item, FormulaLeaf) else ""
            if "{}" not in template or not isinstance(item, FormulaLeaf):
                self.say(item)
                continue
            rest = items[at + 1 :]
            stop = next((index for index, each in enumerate(rest) if _is_relation(each)), len(rest))
            self.emit("", item.start, item.stop)
            self._say_template(template, {"": FormulaRow(rest[:stop])})
            self._say_row(rest[stop:])
            return

    def _say_leaf(self, leaf: FormulaLeaf) -> None:
        voice, place = self._voice, (leaf.start, leaf.stop)
        match leaf.kind:
            case LeafKind.NUMBER:
                self.emit(voice.number(leaf.value), *place)
            case LeafKind.LETTER:
                self.emit(voice.letter(self._scan, leaf.value), *place)
            case LeafKind.SIGN:
                self.emit(self._words.signs.get(leaf.value, ""), *place)
            case LeafKind.FUNCTION:
                self.emit(self._words.functions.get(leaf.value, leaf.value), *place)
            case LeafKind.TEXT:
                self.emit("", *place)
                voice.read(self._scan, leaf.value, *self._at)
            case LeafKind.PAUSE:
                self._scan.punctuate(voice.comma)

    def _say_fraction(self, above: FormulaNode, below: FormulaNode) -> None:
        known = self._words.fractions.get(f"{_value(above)}/{_value(below)}")
        if known:
            self.emit(known, *_place(above))
        else:
            self._say_template(self._words.fraction, {"above": above, "below": below})

    def _say_root(self, degree: FormulaNode | None, body: FormulaNode) -> None:
        roots = self._words.roots
        value = _value(degree) if degree is not None else "2"
        parts = {"": body} if degree is None else {"": body, "degree": degree}
        self._say_template(roots.get(value, roots[""]), parts)

    def _say_script(self, base: FormulaNode, below: FormulaNode | None, above: FormulaNode | None) -> None:
        self.say(base)
        if below is not None:
            is_base = isinstance(base, FormulaLeaf) and base.kind is LeafKind.FUNCTION and base.value == "log"
            self._say_template(self._words.log_base if is_base else self._words.index, {"": below})
        if above is None:
            return
        if _value(above) in ("degrees", "prime", "times"):
            self.say(above)
            return
        exponents, value = self._words.exponents, _value(above)
        if value and value in exponents:
            self.emit(exponents[value], *_place(above))
        else:
            self._say_template(exponents[""], {"": above})

    def _say_group(self, group: FormulaGroup) -> None:
        if group.name == "braces" or (group.name == "brackets" and _is_single(group.body)):
            self.say(group.body)
            return
        template = self._words.absolute if group.name == "absolute" else self._words.brackets
        self.emit("", group.start, group.start + 1)
        self._say_template(template, {"": group.body}, group.stop - 1)

    def _say_big(self, big: FormulaBig) -> None:
        bounds = self._words.bounds
        self.emit("", big.start, big.stop)
        if big.below is None:
            self.emit(bounds[big.name])
        elif big.above is None:
            self._say_template(bounds[f"{big.name} below"], {"below": big.below})
        else:
            self._say_template(bounds[f"{big.name} between"], {"below": big.below, "above": big.above})

    def _say_template(self, template: str, parts: dict[str, FormulaNode], last: int | None = None) -> None:
        """Emit a template and its parts; ``last``: where the words after the last part are written."""
        at = 0
        for part in _PART.finditer(template):
            self.emit(template[at : part.start()])
            self.say(parts[part.group(1)])
            at = part.end()
        self.emit(template[at:], last, last + 1) if last is not None else self.emit(template[at:])


def _is_relation(node: FormulaNode) -> bool:
    return isinstance(node, FormulaLeaf) and node.kind is LeafKind.SIGN and node.value in RELATION_NAMES


def _is_single(node: FormulaNode) -> bool:
    """Whether brackets around ``node`` need not be said: one operand, with a sign or without."""
    if not isinstance(node, FormulaRow):
        return True
    signs = [
        item
        for item in node.items
        if isinstance(item, FormulaLeaf) and item.value in ("negative", "plus_minus")
    ]
    pauses = any(isinstance(item, FormulaLeaf) and item.kind is LeafKind.PAUSE for item in node.items)
    return pauses or len(node.items) - len(signs) <= 1


def _only(node: FormulaNode | None) -> FormulaLeaf | None:
    """The leaf that ``node`` is, or that is all of it."""
    while isinstance(node, FormulaRow) and len(node.items) == 1:
        node = node.items[0]
    return node if isinstance(node, FormulaLeaf) else None


def _value(node: FormulaNode | None) -> str:
    leaf = _only(node)
    return leaf.value if leaf is not None else ""


def _place(node: FormulaNode) -> tuple[int, int]:
    leaf = _only(node)
    assert leaf is not None  # its value was found in a table
    return leaf.start, leaf.stop
