"""Share of English sentences that are read as a careful person reads them, and the time of a sentence.

The lists are in ``tests/tts_engine/reading/languages/en/independent/``: "written => reading", by authors who
had not seen the rules. ``{a|b}`` is a choice of equally usual words. Not compared: pauses, capitals, "oh" for
"zero", and "and" after hundred, thousand and the units of money.
Beside each list is the share that WeText of the extra ``cosyvoice`` reads right, compared in the same way.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from vivavoce.gateway.cli.bench.report import BenchFigure
from vivavoce.tts_engine.errors import MissingExtra
from vivavoce.tts_engine.reading.languages.en import vocabulary
from vivavoce.tts_engine.reading.languages.en.rules import normalize

MIN_RIGHT_PERCENT = 95.0
FOLDER = Path(__file__).parents[1] / "tts_engine/reading/languages/en/independent"
_LETTERS = {name: letter for letter, name in vocabulary.LETTER_NAMES.items()}
_LETTER_WITH_ENDING = re.compile(r"\b([a-z])'s\b")
_MAX_CHANGED_WORDS = 4  # at the end of a reading, that its next part may change
_OPTIONAL_AND = re.compile(r"\b(hundred|thousand|million|billion|dollars?|pounds?|euros?|francs?) and\b")


@dataclass(frozen=True, slots=True)
class RightReadings:
    """All readings of a pattern with choices, such as "call {oh|zero} two". Test with ``in``."""

    pattern: str

    def __contains__(self, said: str) -> bool:
        """Whether the words, in comparable form, are one of the readings."""
        begun = {""}
        for odd, part in enumerate(re.split("[{}]", self.pattern)):
            choices = part.split("|") if odd % 2 else [part]
            begun = {start + choice for start in begun for choice in choices}
            begun = {reading for reading in begun if _may_begin(reading, said)}
        return said in {_comparable(reading) for reading in begun}


def sentence_lists() -> list[str]:
    """Return the names of the lists."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read_sentences(name: str) -> list[tuple[str, RightReadings]]:
    """Return each sentence of a list with its readings."""
    lines = (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    rows = [line.split(" => ") for line in lines if " => " in line and not line.startswith("# ")]
    return [(written, RightReadings(pattern)) for written, pattern in rows]


def spoken(text: str) -> str:
    """Return the spoken words, with the names of letters as letters."""
    return _comparable(" ".join(word.text for word in normalize(text)))


def misreadings(name: str) -> list[tuple[str, str]]:
    """Return the sentences of a list that are read otherwise, with the words that are spoken."""
    said = [(written, spoken(written), right) for written, right in read_sentences(name)]
    return [(written, words) for written, words, right in said if words not in right]


def measure_english(show_wrong: Callable[[str], None] | None = None) -> list[BenchFigure]:
    """Measure each list. show_wrong: receives the sentences that are read otherwise. Raises MissingExtra."""
    figures: list[BenchFigure] = []
    read_with_wetext = _load_wetext()
    for name in sentence_lists():
        wrong = misreadings(name)  # compiles the patterns
        sentences = read_sentences(name)
        begin = time.process_time()
        for written, _ in sentences:
            normalize(written)
        each_ms = 1000 * (time.process_time() - begin) / len(sentences)
        right_percent = 100 * (1 - len(wrong) / len(sentences))
        figures.append(BenchFigure(f"en, {name}: sentences", len(sentences), ""))
        figures.append(BenchFigure(f"en, {name}: read right", right_percent, "%", at_least=MIN_RIGHT_PERCENT))
        wetext = (
            100 * sum(read_with_wetext(written) in right for written, right in sentences) / len(sentences)
        )
        figures.append(BenchFigure(f"en, {name}: read right by WeText", wetext, "%"))
        figures.append(BenchFigure(f"en, {name}: a sentence", each_ms, "ms"))
        for written, said in wrong:
            if show_wrong:
                show_wrong(f"en: {written} -> {said}")
    return figures


def _load_wetext() -> Callable[[str], str]:
    try:
        wetext = import_module("wetext")
    except ImportError:
        raise MissingExtra("the comparison with WeText", "cosyvoice") from None
    normalizer = wetext.Normalizer(lang="en", operator="tn")

    def read(text: str) -> str:
        try:
            return _comparable(normalizer.normalize(text))
        except AssertionError:  # a sentence for which its grammar has no reading
            return ""

    return read


def _may_begin(reading: str, said: str) -> bool:
    """Whether a reading with these words at its start may be what is said."""
    certain = _comparable(reading).split()[:-_MAX_CHANGED_WORDS]
    return said.split()[: len(certain)] == certain


def _comparable(text: str) -> str:
    """Return the words without what is not compared; the name of a letter, and "eye", is the letter."""
    words = re.sub(r"[^a-z' ]", " ", " ".join(map(_letter_of, text.split())).lower())
    words = re.sub(r"\b'+(?= |\Z)", "", _LETTER_WITH_ENDING.sub(r"\1 s", words))
    return _OPTIONAL_AND.sub(r"\1", " ".join(re.sub(r"\boh\b", "zero", words).split()))


def _letter_of(word: str) -> str:
    name = word.removesuffix("'s")
    return _LETTERS.get(name, name) + word[len(name) :]
