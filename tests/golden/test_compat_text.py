"""Golden case k: upstream's text rules without wetext; a token is what lies between blanks."""

import json
from pathlib import Path
from typing import Any

import pytest

from golden.reference import upstream_text
from golden.reference.upstream_text import UpstreamTextRules

GOLDEN = Path(__file__).parent / "data"
CASE: dict[str, Any] = json.loads((GOLDEN / "k_frontend.json").read_text("utf-8"))


def tokenize(text: str) -> list[str]:
    return text.split(" ")


@pytest.mark.parametrize("row", CASE["en"], ids=lambda row: row["text"][:20])
def test_english(row: dict[str, Any]) -> None:
    assert upstream_text.spell_out_numbers(row["text"]) == row["spelled"]
    spelled = row["spelled"]
    assert upstream_text.split_paragraph(spelled, tokenize, UpstreamTextRules.OTHER) == row["split"]


@pytest.mark.parametrize("row", CASE["zh"], ids=lambda row: row["text"][:8])
def test_chinese(row: dict[str, Any]) -> None:
    text = row["text"]
    assert upstream_text.remove_blanks(text) == row["blank"]
    assert upstream_text.spell_out_corner_marks(text) == row["corner"]
    assert upstream_text.remove_brackets(text) == row["bracket"]
    assert upstream_text.split_paragraph(text, tokenize, UpstreamTextRules.CHINESE) == row["split"]


@pytest.mark.parametrize("row", CASE["text_normalize_no_wetext"], ids=lambda row: row["text"][:8])
def test_whole_texts(row: dict[str, Any]) -> None:
    assert upstream_text.prepare(row["text"], tokenize) == row["split"]
    assert upstream_text.normalize(row["text"]) == row["nosplit"]


@pytest.mark.parametrize(("text", "expected"), CASE["only_punct"])
def test_bare_punctuation(text: str, expected: bool) -> None:
    assert upstream_text.is_only_punctuation(text) is expected


@pytest.mark.parametrize(("text", "expected"), CASE["contains_chinese"])
def test_the_script(text: str, expected: bool) -> None:
    assert (upstream_text.rules_for(text) is UpstreamTextRules.CHINESE) is expected
