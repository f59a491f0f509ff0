"""The text tokenizer: byte-level BPE whose merges make most words of the world one token."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from small_voice.sizes import TEXT_TOKENS
from vivavoce.models.cosyvoice.front_end import text_tokenizer
from vivavoce.models.cosyvoice.front_end.text_tokenizer import TextTokenizer, byte_characters


def write_tokenizer(texts: Iterable[str], folder: Path) -> None:
    """Learn merges from texts, and write vocab.json and merges.txt."""
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(text_tokenizer._WORD_PATTERN), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, byte_level])
    trainer = BpeTrainer(
        vocab_size=TEXT_TOKENS, min_frequency=2, initial_alphabet=list(byte_characters()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in learned["merges"]]
    vocabulary: dict[str, int] = learned["vocab"]
    # Few texts have few merges; the ids of the special tokens are behind unreachable ones then.
    for unused in range(len(vocabulary), TEXT_TOKENS):
        vocabulary[f"<unused {unused}>"] = unused
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False, indent=0), "utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{pair}\n" for pair in merges), "utf-8")


def text_ids(tokenizer: TextTokenizer, text: str) -> tuple[list[int], list[int]]:
    """The ids of a text, and the index of the word that each belongs to."""
    ids: list[int] = []
    words: list[int] = []
    for index, word in enumerate(text.split(" ")):
        of_word = tokenizer.encode_plain(word if index == 0 else f" {word}")
        ids += of_word
        words += [index] * len(of_word)
    return ids, words
