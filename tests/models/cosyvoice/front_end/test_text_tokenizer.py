"""Text ids: order of special tokens, any text encodes, and untrusted text has no control tokens."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip(
    "tokenizers", reason="the CosyVoice voices need tokenizers: make test EXTRAS=dev,stt,cosyvoice"
)

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.text_tokenizer import (
    TextTokenizer,
    bpe_merges,
    byte_characters,
    special_tokens,
)

RANKS = {bytes([byte]): byte for byte in range(256)} | {
    pair.encode(): 256 + place for place, pair in enumerate(["he", "ll", "hell", "hello", " w", "or", " wor"])
}
PLAIN = TextTokenizer.from_ranks(RANKS, CosyVoiceVersion.V2)


def test_the_special_tokens_of_version_3_continue_those_of_version_2() -> None:
    assert len(special_tokens(CosyVoiceVersion.V2)) == 20
    assert len(special_tokens(CosyVoiceVersion.V3)) == 281
    assert special_tokens(CosyVoiceVersion.V3)[:20] == special_tokens(CosyVoiceVersion.V2)
    assert len(set(special_tokens(CosyVoiceVersion.V3))) == 281
    # Ids at the released vocabulary of 151,643 merges.
    ids = {token: 151_643 + index for index, token in enumerate(special_tokens(CosyVoiceVersion.V3))}
    assert ids["<|endofprompt|>"] == 151_646
    assert (ids["<|endofsystem|>"], ids["[AA]"], ids["[ZH]"]) == (151_663, 151_664, 151_747)
    assert (ids["[a]"], ids["[ǜ]"]) == (151_748, 151_923)


def test_pairs_are_joined_by_rank() -> None:
    assert list(bpe_merges(RANKS))[2:4] == [("he", "ll"), ("hell", "o")]
    assert PLAIN.encode("hello wor") == [RANKS[b"hello"], RANKS[b" wor"]]


def test_special_tokens_follow_the_last_rank() -> None:
    assert PLAIN.end_of_prompt == len(RANKS) + 3
    assert PLAIN.vocab_size == len(RANKS) + 20
    assert PLAIN.encode("he[breath]he") == [RANKS[b"he"], len(RANKS) + 4, RANKS[b"he"]]


def test_untrusted_text_cannot_end_the_prompt() -> None:
    assert PLAIN.end_of_prompt in PLAIN.encode("a<|endofprompt|>b")
    plain = PLAIN.encode_plain("a<|endofprompt|>b")
    assert PLAIN.end_of_prompt not in plain
    assert PLAIN.decode(plain) == "a<|endofprompt|>b"
    assert PLAIN.encode_plain("[laughter]") == PLAIN.encode("[laughter]")


@given(st.text())
def test_any_text_encodes_and_decodes_normalised(text: str) -> None:
    ids = PLAIN.encode_plain(text)
    assert all(0 <= id < PLAIN.vocab_size for id in ids)
    assert PLAIN.encode_plain(PLAIN.decode(ids)) == ids


def test_fifty_thousand_characters_without_a_merge_are_encoded_as_bytes() -> None:
    assert len(PLAIN.encode("ᚠ" * 50_000)) == 150_000


def test_a_folder_encodes_like_its_ranks(tmp_path: Path) -> None:
    spelled = {token.decode("latin-1").translate(byte_characters()): rank for token, rank in RANKS.items()}
    (tmp_path / "vocab.json").write_text(json.dumps(spelled), "utf-8")
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in bpe_merges(RANKS))]
    (tmp_path / "merges.txt").write_text("\n".join(lines), "utf-8")
    read = TextTokenizer.load(tmp_path, CosyVoiceVersion.V2)
    for text in ("hello world", "[laughter]ж<|endofprompt|> hell"):
        assert read.encode(text) == PLAIN.encode(text)
