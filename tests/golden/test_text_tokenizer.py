"""Golden case l: text ids of both scripts, with marks, from the public ranks of Qwen.

The ranks themselves (151,643 of them) are not in the repository; those that the golden texts touch are.
"""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "tokenizers", reason="the CosyVoice voices need tokenizers: pip install 'vivavoce[cosyvoice]'"
)

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.text_tokenizer import TextTokenizer, read_tiktoken_ranks

GOLDEN = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]
CASE: dict[str, Any] = json.loads((GOLDEN / "l_tokenizer_proxy.json").read_text("utf-8"))


@pytest.fixture(scope="module", params=list(CosyVoiceVersion))
def tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    ranks = read_tiktoken_ranks(
        ROOT / "models" / "cosyvoice" / "golden" / "qwen_ranks_of_the_golden_texts.tiktoken"
    )
    return TextTokenizer.from_ranks(ranks, request.param, first_special_id=151_643)


@pytest.mark.parametrize("row", CASE["cases"], ids=lambda row: row["text"][:12])
def test_texts_have_their_ids(tokenizer: TextTokenizer, row: dict[str, Any]) -> None:
    assert tokenizer.encode(row["text"]) == row["ids"]


@pytest.mark.parametrize(("mark", "id"), CASE["special"].items())
def test_marks_have_their_ids(tokenizer: TextTokenizer, mark: str, id: int) -> None:
    assert tokenizer.encode(f"{mark}") == [id]
