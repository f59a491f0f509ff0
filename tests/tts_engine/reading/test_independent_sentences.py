"""Share of sentences that are read as a careful person reads them; their author had not seen the rules."""

import re
from itertools import product
from pathlib import Path

import pytest

from vivavoce.tts_engine.reading.english import vocabulary
from vivavoce.tts_engine.reading.english.clause_normalizer import normalize

FOLDER = Path(__file__).parent
LETTERS = {name: letter for letter, name in vocabulary.LETTER_NAMES.items()}
_LETTER_WITH_ENDING = re.compile(r"\b([a-z])'s\b")
_OPTIONAL_AND = re.compile(r"\b(hundred|thousand|million|billion|dollars?|pounds?|euros?|francs?) and\b")


def read_sentences(name: str) -> list[tuple[str, set[str]]]:
    """Return each sentence of a file with its readings."""
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    rows = [line.split(" => ") for line in lines if " => " in line and not line.startswith("# ")]
    return [(written, readings(pattern)) for written, pattern in rows]


def readings(pattern: str) -> set[str]:
    """Return all readings of a pattern with choices, such as "call {oh|zero} two"."""
    parts = [part.split("|") if odd % 2 else [part] for odd, part in enumerate(re.split("[{}]", pattern))]
    return {comparable("".join(choice)) for choice in product(*parts)}


def comparable(text: str) -> str:
    """Return the words without what is not compared."""
    words = re.sub(r"[^a-z' ]", " ", text.lower())
    words = _LETTER_WITH_ENDING.sub(r"\1 s", words)
    return _OPTIONAL_AND.sub(r"\1", " ".join(re.sub(r"\boh\b", "zero", words).split()))


def spoken(text: str) -> str:
    """Return the spoken words, with the names of letters as letters."""
    return comparable(" ".join(letter_of(word.text) for word in normalize(text)))


def letter_of(word: str) -> str:
    name = word.removesuffix("'s")
    return LETTERS.get(name, name) + word[len(name) :]


@pytest.mark.parametrize("name", [f"independent_sentences{part}.txt" for part in ("", "_2", "_3")])
def test_19_of_20_sentences_are_read_as_a_careful_person_reads_them(name: str) -> None:
    sentences = read_sentences(name)
    wrong = [(written, spoken(written)) for written, right in sentences if spoken(written) not in right]
    assert len(wrong) <= 0.05 * len(sentences), wrong
