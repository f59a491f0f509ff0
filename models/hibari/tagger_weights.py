"""hibari's grapheme-to-phoneme converter with weights of its tagger that are decoded when they are used.

The weights are 80,000 small tables, of which a sentence uses about a hundred. Decoding them all takes as long
as the two lexicons together.

Source: hibari-tts 0.2.1 (Apache-2.0): g2p/__init__.py and g2p/tagger.py; tagger.json.gz.
"""

import gzip
import json
import re
from pathlib import Path

from hibari import g2p
from hibari.g2p.lexicon import Lexicon
from hibari.g2p.tagger import Tagger
from hibari.g2p.tokenize import Tokenizer

_WEIGHTS_KEY = '"weights":{"'
# "feature":{"tag":weight,...}; a quoted feature may hold escapes and braces, a table holds neither.
_ENTRY = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)":(\{[^{}]*\})')


class TaggerWeights:
    """The table of each feature: weight by part-of-speech tag."""

    def __init__(self, entries: dict[str, str]) -> None:
        self._entries = entries  # feature -> JSON of its table
        self._decoded: dict[str, dict[str, float]] = {}

    def get(self, feature: str) -> dict[str, float] | None:
        """The table of a feature, None if it has none."""
        table = self._decoded.get(feature)
        if table is None and (entry := self._entries.get(feature)) is not None:
            table = self._decoded[feature] = json.loads(entry)
        return table

    def __len__(self) -> int:
        return len(self._entries)


def load_tagger(path: Path) -> Tagger:
    """Load hibari's part-of-speech tagger from its .json.gz file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read()
    start = text.rindex(_WEIGHTS_KEY)
    model = json.loads(text[:start] + '"weights":{}}')
    entries = _ENTRY.findall(text, start + len(_WEIGHTS_KEY) - 1)
    model["weights"] = TaggerWeights(
        {json.loads(f'"{feature}"') if "\\" in feature else feature: table for feature, table in entries}
    )
    return Tagger(model)


def load_g2p(assets: Path) -> g2p.G2P:
    """Load hibari's American English converter from its folder of assets."""
    converter = g2p.G2P.__new__(g2p.G2P)  # its constructor decodes every weight
    converter.lexicon = Lexicon(
        g2p._load_json("lexicon_us_gold.json.gz"), g2p._load_json("lexicon_us_silver.json.gz"), False
    )
    converter.tokenizer = Tokenizer(g2p._load_json("tokenizer_exceptions.json"))
    converter.tagger = load_tagger(assets / "tagger.json.gz")
    converter._oov, converter.unk, converter.british = None, "", False
    return converter
