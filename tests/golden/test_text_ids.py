"""Text ids of both versions against the public ranks of Qwen: golden case l_tokenizer_proxy.

The repository has the ranks that the texts of the case use, not all 151,643.
"""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from golden.reference.text_ids import KNOWN_RANKS, check_text_ids
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.text_tokenizer import (
    TextTokenizer,
    read_tiktoken_ranks,
)

DATA = Path(__file__).parent / "data"
CASE: dict[str, Any] = json.loads((DATA / "l_tokenizer_proxy.json").read_text("utf-8"))


@pytest.fixture(scope="module", params=list(CosyVoiceVersion))
def tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    return TextTokenizer.from_ranks(read_tiktoken_ranks(KNOWN_RANKS), request.param, first_special_id=151_643)


@pytest.mark.parametrize("row", CASE["cases"], ids=lambda row: row["text"][:12])
def test_a_text_has_its_ids(tokenizer: TextTokenizer, row: dict[str, Any]) -> None:
    assert tokenizer.encode(row["text"]) == row["ids"]


@pytest.mark.parametrize(("token", "id"), CASE["special"].items())
def test_a_special_token_has_its_id(tokenizer: TextTokenizer, token: str, id: int) -> None:
    assert tokenizer.encode(token) == [id]


def test_the_check_passes() -> None:
    assert [comparison for comparison in check_text_ids(DATA) if not comparison.passed] == []
