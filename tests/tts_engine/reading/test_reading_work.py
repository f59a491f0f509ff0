"""The work of reading grows with the length of a text and with nothing else, in every language.

Work is counted in calls of functions, which are the same on every machine; ``python -m benches text-reading``
measures the time.
"""

import re

import pytest

from shared.reading_work import (
    LANGUAGES,
    ORDINARY,
    UNITS,
    calls_of_reading,
    read,
    repeated,
    segmenter_maker,
)
from vivavoce.tts_engine.reading.kit.patterns import PatternBehind, max_width, needed_signs, signs_in
from vivavoce.tts_engine.reading.kit.tokenizer import Grammar
from vivavoce.tts_engine.reading.languages.en.grammar import ENGLISH_GRAMMAR
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.normalizer import TextNormalizer
from vivavoce.tts_engine.reading.unicode_scripts import ALL_SCRIPTS
from vivavoce.tts_engine.segmenter import Segmenter

MAX_CALLS_OF_ORDINARY_TEXT = 23  # for a character
MAX_CALLS = 300  # for a character of any text; "½" in English takes 270
MAX_COMPILED = 20  # patterns beside the rules, at most 3 ms each
CHARACTERS = 600  # more than the longest clause
# Those of the units whose characters take the most calls, and one of each other kind.
COSTLY_UNITS = (
    "½",
    "1½",
    "²",
    "1-",
    "1e",
    "1:",
    "3x",
    '"',
    "(",
    "<b>",
    "http://a.b/c?d=e&",
    "e\u0301",
    "abcdefghij",
    "x^",
    "$x = ",
)


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    if request.param in ("zh", "ja"):
        pytest.importorskip("wetext", reason="Chinese and Japanese: make test EXTRAS=dev,stt,cosyvoice")
    return str(request.param)


def test_twice_the_text_is_twice_the_work(language: str) -> None:
    make = segmenter_maker(language)
    for unit in (*COSTLY_UNITS, ORDINARY):
        read(make(), repeated(unit, CHARACTERS))  # compiles the patterns
        once, twice = (calls_of_reading(make(), repeated(unit, n * CHARACTERS)) for n in (1, 2))
        assert twice - once < max(1.3 * once, 30 * CHARACTERS), unit
        limit = MAX_CALLS_OF_ORDINARY_TEXT if unit == ORDINARY else MAX_CALLS
        assert twice - once < limit * CHARACTERS, unit


@pytest.mark.parametrize("language", [each for each in LANGUAGES if each != "en"], indirect=True)
def test_no_text_waits_for_the_rules_of_its_language(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grammars = LanguageGrammars.load([language])
    compiled: list[str] = []  # while text is read
    compile = re.compile

    def compile_noted(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
        compiled.append(pattern)
        return compile(pattern, flags)

    monkeypatch.setattr(re, "compile", compile_noted)
    for unit in (*COSTLY_UNITS, ORDINARY):
        clauses = grammars.clause_normalizer(language)
        read(Segmenter(reader=TextNormalizer(clauses), scripts=ALL_SCRIPTS), repeated(unit, 200))
    assert len(compiled) <= MAX_COMPILED


def grammar_of(language: str) -> Grammar:
    return ENGLISH_GRAMMAR if language == "en" else LanguageGrammars.load([language]).grammar(language)


def test_a_pattern_that_is_left_out_matches_nowhere_in_the_text(language: str) -> None:
    texts = [
        ORDINARY,
        "no sign at all",
        *UNITS,
        *(f"{unit} {other}" for unit in UNITS for other in UNITS[::9]),
    ]
    grammar = grammar_of(language)
    for text in texts:
        part = grammar.part_for(text)
        kept = {id(rule) for rule in (*part.lines, *part.letters, *part.digits, *part.symbols)}
        for rule in (*grammar.lines, *grammar.letters, *grammar.digits, *grammar.symbols):
            assert id(rule) in kept or rule[0].compiled.search(text) is None, (rule[0].pattern, text)


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        (r"\d{1,3}/\d", [{"0"}, {"/"}, {"0"}]),
        (r"[$£]?\d", [{"0"}]),
        (r"(?:€|EUR) ", [{"€", "A"}]),
        (r"(?i:EUR)%", [{"%"}]),
        (r"(?:a|-)x", []),
        (r"(?=[A-Z])(?:AB)+", [{"A"}, {"A"}, {"A"}]),
        (r"(?!-)a(?<!\()", []),
        (r"[^a-z]#{2,}", [{"#"}]),
        (r"\w°", [{"°"}]),
        (r"(?i)x:", [{":"}]),
    ],
)
def test_the_needs_of_a_pattern_are_what_every_match_contains(pattern: str, needs: list[set[str]]) -> None:
    assert set(needed_signs(pattern)) == {frozenset(need) for need in needs}


def test_the_signs_of_a_text_are_its_marks_digits_and_capitals() -> None:
    assert signs_in("Pay 5 € now, é²_") == {"A", "0", "€", ",", "_", ""}


def test_a_pattern_behind_finds_what_a_search_of_the_whole_text_finds() -> None:
    source = r"\b(?:up|down)\b[^.;]{0,9} by \Z"
    behind, text = PatternBehind(source), "down, up to two, up. And down by, by the way, up by "
    assert max_width(source) == 4 + 9 + 4
    for at in range(len(text) + 1):
        found, expected = behind.search(text, at), re.compile(source).search(text, 0, at)
        assert (found and found.span()) == (expected and expected.span())
