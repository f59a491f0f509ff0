"""Share of sentences that are read as a careful speaker reads them, by language, and the time of a sentence.

The English lists are those of ``english_readings.py``. Those of the other languages are in
``tests/tts_engine/reading/languages``, a file a language: "written => reading".
A reading is in lower case; a capital stands for the name of its letter. ``{a|b}`` is a choice of equally
usual words, and " | " separates whole readings. Not compared: pauses, capitals, the accent of é and the dots
of ё, hiragana against katakana, and hyphens and blanks, with which number words are written in several ways.
"""

import re
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from benches.english_readings import measure_english
from shared.language_tables import TABLE_LANGUAGES, language_table
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.normalizer import TextNormalizer

MIN_RIGHT_PERCENT = 98.0
FOLDER = Path(__file__).parents[1] / "tts_engine/reading/languages"
_LETTER_NAME = re.compile(r"(?<!\w)[^\W\d_a-zа-я](?!\w)")
_KATAKANA = {ord("ァ") + index: ord("ぁ") + index for index in range(86)}
_SILENT = re.compile(r"[\W\d_]")


@dataclass(frozen=True, slots=True)
class SentenceReading:
    """A sentence, what was read, and the readings that are right."""

    written: str
    said: str
    right: frozenset[str]

    @property
    def is_right(self) -> bool:
        """Whether the sentence was read in one of the right ways."""
        return self.said in self.right


def languages() -> list[str]:
    """Return the codes of the languages that have sentences."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


@cache
def grammars() -> LanguageGrammars:
    """Return the grammars of all languages."""
    return LanguageGrammars.load()


def read_sentences(language: str) -> list[SentenceReading]:
    """Read the sentences of a language, and compare."""
    lines = (FOLDER / f"{language}.txt").read_text("utf-8").splitlines()
    rows = [line.split(" => ") for line in lines if " => " in line and not line.startswith("#")]
    return [
        SentenceReading(written, comparable(spoken(written, language)), readings_of(pattern, language))
        for written, pattern in rows
    ]


def spoken(text: str, language: str) -> str:
    """Return the spoken words of a text."""
    normalizer = TextNormalizer(grammars().any_clause_normalizer(language))
    clauses = [*normalizer.push(text), *normalizer.flush()]
    return " ".join(word.text for clause in clauses for word in clause.words)


def comparable(text: str) -> str:
    """Return the letters that are compared."""
    lower = unicodedata.normalize("NFC", text.replace("İ", "i").lower()).replace("é", "e").replace("ё", "е")
    return _SILENT.sub("", lower).translate(_KATAKANA)


def readings_of(pattern: str, language: str) -> frozenset[str]:
    wholes = [_letters_named(whole, language) for whole in pattern.split(" | ")]
    parts = [re.split("[{}]", whole) for whole in wholes]
    choices = [[part.split("|") if odd % 2 else [part] for odd, part in enumerate(each)] for each in parts]
    return frozenset(comparable("".join(choice)) for each in choices for choice in product(*each))


def _letters_named(pattern: str, language: str) -> str:
    names = language_table(language).letters if language in TABLE_LANGUAGES else {}
    return _LETTER_NAME.sub(lambda letter: names.get(letter.group().lower(), letter.group()), pattern)


def measure(show_wrong: Callable[[str], None] | None = None) -> BenchReport:
    """Measure each language. show_wrong: receives the sentences that are read otherwise."""
    figures = measure_english(show_wrong)
    for language in languages():
        read_sentences(language)  # compiles the patterns
        begin = time.process_time()
        found = [spoken(each.written, language) for each in read_sentences(language)]
        each_ms = 1000 * (time.process_time() - begin) / len(found) / 2
        sentences = read_sentences(language)
        right = 100 * sum(each.is_right for each in sentences) / len(sentences)
        figures.append(BenchFigure(f"{language}: sentences", len(sentences), ""))
        figures.append(BenchFigure(f"{language}: read right", right, "%", at_least=MIN_RIGHT_PERCENT))
        figures.append(BenchFigure(f"{language}: a sentence", each_ms, "ms"))
        for each in sentences:
            if show_wrong and not each.is_right:
                show_wrong(f"{language}: {each.written} -> {spoken(each.written, language)}")
    return BenchReport(bench="readings", figures=tuple(figures))
