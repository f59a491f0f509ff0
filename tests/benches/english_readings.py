"""Share of English sentences that are read as a careful person reads them, beside another normalizer's.

The sentences are in ``tests/tts_engine/reading``, a line each: "written => reading". ``{a|b}`` is a choice of
equally usual words. Not compared: pauses, capitals, "oh" for "zero", and "and" after hundred, thousand,
dollars and the like. The other normalizer is that of WeText (WeTextProcessing), which the extra ``cosyvoice``
has for Chinese; its words are compared in the same way.
"""

import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

from vivavoce.gateway.cli.bench.report import BenchFigure
from vivavoce.tts_engine.errors import MissingExtra
from vivavoce.tts_engine.reading.english import vocabulary
from vivavoce.tts_engine.reading.english.clause_normalizer import normalize

MIN_RIGHT_PERCENT = 95.0
FOLDER = Path(__file__).parents[1] / "tts_engine/reading"
FILES = ("independent_sentences.txt", "independent_sentences_2.txt", "independent_sentences_3.txt")
_LETTERS = {name: letter for letter, name in vocabulary.LETTER_NAMES.items()}
_LETTER_WITH_ENDING = re.compile(r"\b([a-z])'s\b")
_OPTIONAL_AND = re.compile(r"\b(hundred|thousand|million|billion|dollars?|pounds?|euros?|francs?) and\b")


def read_sentences(file: str) -> list[tuple[str, set[str]]]:
    """Return each sentence of a file with its readings."""
    lines = (FOLDER / file).read_text("utf-8").splitlines()
    rows = [line.split(" => ") for line in lines if " => " in line and not line.startswith("# ")]
    return [(written, _readings(pattern)) for written, pattern in rows]


def spoken(text: str) -> str:
    """Return the spoken words, with the names of letters as letters."""
    return comparable(" ".join(_letter_of(word.text) for word in normalize(text)))


def comparable(text: str) -> str:
    """Return the words without what is not compared."""
    words = re.sub(r"[^a-z' ]", " ", text.lower())
    words = _LETTER_WITH_ENDING.sub(r"\1 s", words)
    return _OPTIONAL_AND.sub(r"\1", " ".join(re.sub(r"\boh\b", "zero", words).split()))


def figures() -> Iterator[BenchFigure]:
    """Measure each file, and WeText beside. Raises MissingExtra without WeText."""
    wetext = _load_wetext()
    for file in FILES:
        sentences = read_sentences(file)
        name = f"en, {len(sentences)} sentences of {file}: read right"
        yield BenchFigure(name, _right_percent(sentences, spoken), "%", at_least=MIN_RIGHT_PERCENT)
        yield BenchFigure(f"{name} by WeText", _right_percent(sentences, wetext), "%")


def _right_percent(sentences: list[tuple[str, set[str]]], read: Callable[[str], str]) -> float:
    return 100 * sum(read(written) in right for written, right in sentences) / len(sentences)


def _load_wetext() -> Callable[[str], str]:
    try:
        from wetext import Normalizer
    except ImportError:
        raise MissingExtra("the comparison with WeText", "cosyvoice") from None
    normalizer = Normalizer(lang="en", operator="tn")
    return lambda text: comparable(normalizer.normalize(text))


def _readings(pattern: str) -> set[str]:
    """Return all readings of a pattern with choices, such as "call {oh|zero} two"."""
    parts = [part.split("|") if odd % 2 else [part] for odd, part in enumerate(re.split("[{}]", pattern))]
    return {comparable("".join(choice)) for choice in product(*parts)}


def _letter_of(word: str) -> str:
    name = word.removesuffix("'s")
    return _LETTERS.get(name, name) + word[len(name) :]
