"""Text ids of XTTS: byte pairs of vocab.json, with a tag of the language in front.

    "[en]" + "hello, you" with each space as "[SPACE]" -> ids

The text is cleaned before, see ``cleaner``. [START] and [STOP], which stand around the ids of a sentence, are
found by name; the ids of the release are 261 and 0.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/tokenizer.py (VoiceBpeTokenizer.encode).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace

VOCABULARY_FILE = "vocab.json"
MAX_VOCABULARY_BYTES = 16_000_000  # a release has 0.4 MB
_START, _STOP, _SPACE, _UNKNOWN = "[START]", "[STOP]", "[SPACE]", "[UNK]"
_TAG_OF_LANGUAGE = {"zh": "zh-cn"}


class XttsTokenizer:
    """The tokenizer of a vocab.json. vocabulary: id of each token. specials: tokens that are never split.

    Raises ValueError without one of the tokens that stand for ends, spaces and unknown characters.
    """

    def __init__(
        self, vocabulary: Mapping[str, int], merges: list[tuple[str, str]], specials: list[str]
    ) -> None:
        if missing := [name for name in (_START, _STOP, _SPACE, _UNKNOWN) if name not in vocabulary]:
            raise ValueError(f"{VOCABULARY_FILE} has no {' and no '.join(missing)}; is it of XTTS v2?")
        self.start_id, self.stop_id = vocabulary[_START], vocabulary[_STOP]
        self._vocabulary = vocabulary
        self._tokenizer = Tokenizer(BPE(dict(vocabulary), merges, unk_token=_UNKNOWN, fuse_unk=False))
        self._tokenizer.pre_tokenizer = Whitespace()
        self._tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in specials])

    @classmethod
    def load(cls, path: Path) -> "XttsTokenizer":
        """Read a vocab.json. Raises OSError, and ValueError if it is no tokenizer of XTTS."""
        if path.stat().st_size > MAX_VOCABULARY_BYTES:
            raise ValueError(f"{path.name}: {path.stat().st_size:,} bytes; expected up to 16 MB")
        try:
            stated: dict[str, Any] = json.loads(path.read_text("utf-8"))
            model, added = stated["model"], stated["added_tokens"]
            vocabulary = {str(token): int(id) for token, id in model["vocab"].items()}
            vocabulary |= {str(token["content"]): int(token["id"]) for token in added}
            merges = [_pair(merge) for merge in model["merges"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path.name}: not the tokenizer of XTTS: {repr(error)[:200]}") from error
        if loose := [pair for pair in merges if not {*pair, "".join(pair)} <= vocabulary.keys()]:
            raise ValueError(f"{path.name}: the merge {loose[0]} has a part outside the vocabulary")
        return cls(vocabulary, merges, [token["content"] for token in added])

    @property
    def vocab_size(self) -> int:
        """Number of text ids: one more than the highest."""
        return max(self._vocabulary.values()) + 1

    def speaks(self, language: str) -> bool:
        """Whether the vocabulary has a tag for a language's code, e.g. "en"."""
        return _tag(language) in self._vocabulary

    def encode(self, cleaned: str, language: str) -> list[int]:
        """Ids of cleaned text, the language's tag first. Raises ValueError for a language without a tag."""
        if not self.speaks(language):
            raise ValueError(f"language is {language!r}; {VOCABULARY_FILE} has no tag {_tag(language)}")
        ids: list[int] = self._tokenizer.encode(_tag(language) + cleaned.replace(" ", _SPACE)).ids
        return ids


def _pair(merge: str | list[str]) -> tuple[str, str]:
    """Two tokens that are joined; older files write them as one text with a space."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def _tag(language: str) -> str:
    code = language.lower()
    return f"[{_TAG_OF_LANGUAGE.get(code, code)}]"
