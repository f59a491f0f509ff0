"""Text to text ids: Qwen's byte-level BPE with the special tokens of CosyVoice 2 and 3.

    tokenizer = TextTokenizer.load(folder / "CosyVoice-BlankEN", CosyVoiceVersion.V2)
    tokenizer.encode("A [breath] and a word<|endofprompt|>")     special tokens become their ids
    tokenizer.encode_plain(text)                                 control tokens are encoded as characters

Untrusted text goes through ``encode_plain``, so that it cannot end the prompt. Any script can be encoded:
characters without a merge fall back to bytes.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/tokenizer/tokenizer.py:241-327 (special tokens and their
order); Qwen2's tokenizer (NFC, the pattern of words, byte-level BPE).
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import count, pairwise
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from ..config import CosyVoiceVersion

END_OF_PROMPT_TOKEN = "<|endofprompt|>"

_WORD_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", END_OF_PROMPT_TOKEN)
_SOUND_TOKENS = """
[breath] <strong> </strong> [noise] [laughter] [cough] [clucking] [accent] [quick_breath] <laughter>
</laughter> [hissing] [sigh] [vocalized-noise] [lipsmack] [mn]
"""
_CONTROL_TOKENS_V3 = ("<|endofsystem|>",)
_ARPABET_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_ARPABET_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
_PINYIN = """
a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè ié iòng ióng iù
iú iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou p q r s sh t u uang ue un uo uà
uài uàn uàng uá uái uán uáng uè ué uì uí uò uó uā uāi uān uāng uē uě uī uō uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh
à ài àn àng ào á ái án áng áo è èi èn èng èr é éi én éng ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi
ān āng āo ē ēi ēn ēng ě ěi ěn ěng ěr ī īn īng ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ
"""


def special_tokens(version: CosyVoiceVersion) -> tuple[str, ...]:
    """Special tokens in the order of their ids, which follow the merges; those of v2 come first in v3."""
    common = (*_CONTROL_TOKENS, *_SOUND_TOKENS.split())
    if version is CosyVoiceVersion.V2:
        return common
    return (*common, *_CONTROL_TOKENS_V3, *_bracketed(_arpabet()), *_bracketed(_PINYIN.split()))


class TextTokenizer:
    """Encodes and decodes text. Immutable and thread-safe.

    Attributes:
        vocab_size: number of ids with the special tokens; the text embedding needs as many rows.
        end_of_prompt: id of <|endofprompt|>, after which version 3 begins to interleave.
        marks: special tokens that untrusted text may hold, such as "[laughter]" and "[AY1]": all but the
            control tokens.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Iterable[tuple[str, str]],
        version: CosyVoiceVersion,
        first_special_id: int,
    ) -> None:
        ids = {token: first_special_id + index for index, token in enumerate(special_tokens(version))}
        merges = list(merges)
        mark_ids = {token: id for token, id in ids.items() if "|" not in token}
        self.marks = frozenset(mark_ids)
        self._with_control_tokens = _build(vocabulary, merges, ids)
        self._without_control_tokens = _build(vocabulary, merges, mark_ids)
        self.vocab_size = first_special_id + len(ids)
        self.end_of_prompt = ids[END_OF_PROMPT_TOKEN]

    @classmethod
    def load(cls, folder: Path, version: CosyVoiceVersion) -> "TextTokenizer":
        """Read vocab.json and merges.txt of a Qwen folder.

        Raises OSError if a file cannot be read, ValueError if it is damaged.
        """
        vocabulary: dict[str, int] = json.loads((folder / "vocab.json").read_text("utf-8"))
        # Special tokens follow the last id, and each id is a row of the text embedding.
        if sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise ValueError(f"vocab.json: its {len(vocabulary):,} tokens must have the ids 0, 1, 2, ...")
        lines = (folder / "merges.txt").read_text("utf-8").splitlines()
        merges = [
            _parse_merge(line, vocabulary) for line in lines if line and not line.startswith("#version")
        ]
        return cls(vocabulary, merges, version, len(vocabulary))

    @classmethod
    def from_ranks(
        cls, ranks: Mapping[bytes, int], version: CosyVoiceVersion, first_special_id: int | None = None
    ) -> "TextTokenizer":
        """Build from byte strings and their ranks, as in tiktoken files.

        ``first_special_id`` defaults to the id after the last rank.
        """
        first_id = max(ranks.values()) + 1 if first_special_id is None else first_special_id
        vocabulary = {_as_characters(token): rank for token, rank in ranks.items()}
        return cls(vocabulary, bpe_merges(ranks), version, first_id)

    def encode(self, text: str) -> list[int]:
        """Encode trusted text: special tokens become their ids. Nothing is added at either end."""
        ids: list[int] = self._with_control_tokens.encode(text, add_special_tokens=False).ids
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """Encode untrusted text: control tokens (``<|...|>``) are encoded as characters."""
        ids: list[int] = self._without_control_tokens.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, text_ids: Iterable[int]) -> str:
        """Decode ids to text, special tokens included."""
        text: str = self._with_control_tokens.decode(list(text_ids), skip_special_tokens=False)
        return text


def read_tiktoken_ranks(path: Path) -> dict[bytes, int]:
    """Read the ranks of a tiktoken file, which has a token in base 64 and its rank in each line."""
    lines = (line.split() for line in path.read_text("ascii").splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def bpe_merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[str, str]]:
    """Yield the pair that makes each token of more than one byte, by rising rank."""
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            parts = _split_by_rank(token, ranks, rank)
            if len(parts) == 2:
                yield _as_characters(parts[0]), _as_characters(parts[1])


def _split_by_rank(token: bytes, ranks: Mapping[bytes, int], below: int) -> list[bytes]:
    """Join neighbours, the lowest rank first, while a joined rank is below the bound."""
    parts = [token[index : index + 1] for index in range(len(token))]
    while len(parts) > 1:
        joined = [ranks.get(left + right, below) for left, right in pairwise(parts)]
        lowest = min(joined)
        if lowest >= below:
            break
        index = joined.index(lowest)
        parts[index : index + 2] = [parts[index] + parts[index + 1]]
    return parts


@cache
def byte_characters() -> str:
    """The character that stands for each byte in a vocabulary: itself if printable, else one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = count(256)
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


def _as_characters(token: bytes) -> str:
    return token.decode("latin-1").translate(byte_characters())


def _parse_merge(line: str, vocabulary: Mapping[str, int]) -> tuple[str, str]:
    left, _, right = line.partition(" ")
    if not (left in vocabulary and right in vocabulary and left + right in vocabulary):
        raise ValueError(f"merges.txt joins {line!r}, of which vocab.json lacks a part or the result")
    return left, right


def _build(vocabulary: Mapping[str, int], merges: list[tuple[str, str]], ids: Mapping[str, int]) -> Tokenizer:
    # The vocabulary fixes the ids of special tokens; the library would number them in order of addition.
    tokenizer = Tokenizer(BPE({**vocabulary, **ids}, merges, fuse_unk=False))
    tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(_WORD_PATTERN), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in ids])
    return tokenizer


def _arpabet() -> list[str]:
    """ARPAbet symbols in alphabetical order; vowels without a stress and with each of three."""
    vowels = [vowel + stress for vowel in _ARPABET_VOWELS.split() for stress in ("", "0", "1", "2")]
    return sorted([*vowels, *_ARPABET_CONSONANTS.split()])


def _bracketed(names: Iterable[str]) -> Iterator[str]:
    return (f"[{name}]" for name in names)
