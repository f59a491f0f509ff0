"""The tagger's weights, decoded when they are used, against hibari's own loader."""

import gzip
import json
from pathlib import Path

import hibari
from hibari.g2p import G2P

from vivavoce.models.hibari.tagger_weights import load_g2p, load_tagger

ASSETS = Path(hibari.__file__).parent / "assets"
TEXT = "I read the record that she will record; the {live} show, 'the \"bow\", and vivavoce's O'Neill."


def test_every_table_is_that_of_the_file() -> None:
    with gzip.open(ASSETS / "tagger.json.gz", "rt", encoding="utf-8") as file:
        model = json.load(file)
    tagger = load_tagger(ASSETS / "tagger.json.gz")
    assert len(tagger.weights) == len(model["weights"])
    assert [key for key, table in model["weights"].items() if tagger.weights.get(key) != table] == []
    assert tagger.weights.get("no such feature") is None
    assert (tagger.tags, tagger.tagdict, tagger.vocab) == (
        model["tags"],
        model["tagdict"],
        set(model["vocab"]),
    )


def test_the_converter_is_hibaris_own() -> None:
    own, ours = G2P(), load_g2p(ASSETS)
    assert vars(ours).keys() == vars(own).keys()
    assert ours(TEXT) == own(TEXT)
