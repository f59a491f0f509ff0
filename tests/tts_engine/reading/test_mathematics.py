"""Mathematics and chemistry in text: readings by language, splits, hostile input, and linear work."""

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("wetext")

from benches.readings import SentenceReading, comparable, readings_of, spoken
from vivavoce.tts_engine.reading.kit.mathematics.signs import OPERATORS, RELATIONS
from vivavoce.tts_engine.reading.languages.en import vocabulary
from vivavoce.tts_engine.reading.languages.en.rules import EnglishClauseNormalizer, normalize
from vivavoce.tts_engine.reading.normalizer import SpokenWord, TextNormalizer
from vivavoce.tts_engine.reading.open_formula import continues_formula

FOLDER = Path(__file__).parent / "mathematics"
LANGUAGES = sorted(path.stem for path in FOLDER.glob("*.txt"))
LETTERS = {name: letter for letter, name in vocabulary.LETTER_NAMES.items()}


def read(text: str, language: str) -> str:
    if language != "en":
        return spoken(text, language)
    return " ".join(LETTERS.get(word.text, word.text) for word in normalize(text))


def sentences(language: str) -> list[SentenceReading]:
    lines = (FOLDER / f"{language}.txt").read_text("utf-8").splitlines()
    rows = [line.split(" => ") for line in lines if " => " in line and not line.startswith("#")]
    return [
        SentenceReading(written, comparable(read(written, language)), readings_of(pattern, language))
        for written, pattern in rows
    ]


def push_pieces(text: str, sizes: int) -> list[SpokenWord]:
    """Return the words of a text that arrives in pieces of 1 to ``sizes`` characters."""
    random, normalizer, at, words = Random(text), TextNormalizer(EnglishClauseNormalizer()), 0, []
    while at < len(text):
        size = random.randint(1, sizes)
        words += [word for clause in normalizer.push(text[at : at + size]) for word in clause.words]
        at += size
    return words + [word for clause in normalizer.flush() for word in clause.words]


@pytest.mark.parametrize("language", LANGUAGES)
def test_19_of_20_formulas_are_read_as_a_careful_speaker_reads_them(language: str) -> None:
    found = sentences(language)
    assert len(found) >= (120 if language == "en" else 10)
    wrong = [(each.written, each.said) for each in found if not each.is_right]
    assert len(wrong) <= 0.05 * len(found), wrong


@pytest.mark.parametrize("sizes", [1, 7])
def test_a_formula_is_read_the_same_for_any_split(sizes: int) -> None:
    for each in sentences("en"):
        text = f"{each.written}\nSo it goes. {each.written}"
        words = push_pieces(text, sizes)
        assert words == normalize(text)
        assert all(one.start <= other.start for one, other in pairwise(words))
        assert all(0 <= word.start < word.stop <= len(text) for word in words)


def test_a_formula_goes_on_after_a_factorial_with_any_relation_or_operator() -> None:
    signs = {sign[0] for sign in (*RELATIONS, *OPERATORS)} - {"!"}
    assert all(map(continues_formula, signs)) and not continues_formula("!")


@pytest.mark.parametrize(
    "written",
    [
        "f(x, y) = x + y",
        "n! = n(n - 1)!",
        "2x - y = 3",
        "A - B = C",
        r"$a, b \in S$",
        r"$$x = 1, y = 2$$",
        r"\[x + 1," + "\n" + r"y\]",
        "(x, y) = (1, 2)",
    ],
)
def test_no_clause_ends_inside_a_formula(written: str) -> None:
    normalizer = TextNormalizer(EnglishClauseNormalizer())
    clauses = [clause for character in written for clause in normalizer.push(character)]
    assert len([*clauses, *normalizer.flush()]) == 1


@pytest.mark.parametrize(
    ("written", "reading"),
    [
        ("It is $5, or $6 for two.", "it is five dollars or six dollars for two"),
        ("From $5-$10 to $20.", "from five to ten dollars to twenty dollars"),
        ("The math $x$ costs $5.", "the math x costs five dollars"),
        (
            "Pay $5 and solve $x^2 = 4$ for $10.",
            "pay five dollars and solve x squared equals four for ten dollars",
        ),
        ("$5 + $3 = $8", "five dollars plus three dollars equals eight dollars"),
    ],
)
def test_dollars_beside_tex_are_money(written: str, reading: str) -> None:
    assert comparable(read(written, "en")) == comparable(reading)


@pytest.mark.parametrize(
    "written",
    [
        r"$x^{2 and more text",
        r"\frac{1}{",
        r"\frac",
        r"\sqrt[",
        r"$\left( x$",
        "((((((((((x = 1",
        "x^^^2 = 3",
        "√" * 300,
        "|" * 300 + "x = 1",
        r"\left" * 300,
        "$" * 300,
        r"\[" * 200,
        "f(" * 200 + "x = 1" + ")" * 200,
        "if (a < b && c > d) { return <T>; }",
        "{" * 100 + "}" * 100,
        r"$\text{a$ \text{",
    ],
)
def test_unbalanced_text_is_read_to_its_end(written: str) -> None:
    words = normalize(f"{written} then stop here now")
    assert [word.text for word in words[-3:]] == ["stop", "here", "now"]
