"""Case l_tokenizer_proxy: text ids of texts and special tokens, by the public ranks of Qwen.

All 151,643 ranks come with the dashscope wheel. The repository has those that its own texts use; with these a
text of another folder may get other ids.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from golden.reference.comparison import Comparison, compare_rows, read_rows
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.text_tokenizer import TextTokenizer, read_tiktoken_ranks

KNOWN_RANKS = Path(__file__).with_name("qwen_ranks_of_the_golden_texts.tiktoken")

_FIRST_SPECIAL_ID = 151_643


def check_text_ids(folder: Path) -> Iterator[Comparison]:
    """Compare the ids with both versions' special tokens, of which version 2's are the first."""
    stated = read_rows(folder, "l_tokenizer_proxy")
    ranks = read_tiktoken_ranks(_ranks_file(folder))
    for version in CosyVoiceVersion:
        tokenizer = TextTokenizer.from_ranks(ranks, version, _FIRST_SPECIAL_ID)
        ours = [tokenizer.encode(row["text"]) for row in stated["cases"]]
        theirs = [row["ids"] for row in stated["cases"]]
        yield compare_rows("l_tokenizer_proxy", f"cases v{version.value}", ours, theirs)
        special = [tokenizer.encode(token) for token in stated["special"]]
        expected = [[id] for id in stated["special"].values()]
        yield compare_rows("l_tokenizer_proxy", f"special v{version.value}", special, expected)


def _ranks_file(folder: Path) -> Path:
    """The folder's own ranks, else the installed ones, else the known ones."""
    own = next(iter(sorted(folder.glob("*.tiktoken"))), None)
    found = find_spec("dashscope")
    installed = Path(found.origin).parent / "resources" / "qwen.tiktoken" if found and found.origin else None
    return own or (installed if installed and installed.exists() else KNOWN_RANKS)
