"""A language that another package adds with an entry point."""

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from vivavoce.tts_engine.packaging import plug_ins
from vivavoce.tts_engine.reading.kit.patterns import RulePattern
from vivavoce.tts_engine.reading.kit.tokenizer import WORD, Grammar, ScanState, compile_rules
from vivavoce.tts_engine.reading.language import Language
from vivavoce.tts_engine.reading.languages import registry
from vivavoce.tts_engine.reading.languages.mul import rules as multilingual_rules
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.normalizer import TextNormalizer


def read_number(scan: ScanState, match: re.Match[str]) -> int:
    """Read a number as so many strokes."""
    scan.emit(" ".join(["tok"] * int(match.group())), *match.span())
    return match.end()


def read_word(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(match.group(), *match.span())
    return match.end()


def toy_grammar() -> Grammar:
    digits = compile_rules((r"\d", read_number))
    return Grammar((), (), digits, (), (RulePattern(WORD.pattern), read_word))


TOY = Language("qtk", "Tok", toy_grammar, aliases=("qtl",))


def forget() -> None:
    registry.languages_by_code.cache_clear()
    registry._aliases.cache_clear()
    multilingual_rules._boundary_rules.cache_clear()


@pytest.fixture(autouse=True)
def installed_toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def entry_points(group: str, path: tuple[str, ...]) -> list[Any]:
        return [SimpleNamespace(load=lambda: TOY)] if group == "vivavoce.languages" else []

    monkeypatch.setattr(plug_ins, "installed_entry_points", entry_points)
    forget()
    yield
    forget()


@pytest.mark.parametrize("tag", ["qtk", "qtk-XA", "QTL"])
def test_it_is_found_by_its_tags_and_read(tag: str) -> None:
    assert registry.is_supported_language(tag)
    normalizer = TextNormalizer(LanguageGrammars.load([tag]).clause_normalizer(tag))
    clauses = [*normalizer.push("mila 3 kanu."), *normalizer.flush()]
    assert [word.text for clause in clauses for word in clause.words] == ["mila", "tok", "tok", "tok", "kanu"]


def test_each_language_of_this_package_has_a_code_and_a_name_of_its_own() -> None:
    assert len({each.code for each in registry.LANGUAGES}) == len(registry.LANGUAGES)
    assert len({each.name for each in registry.LANGUAGES}) == len(registry.LANGUAGES)
