"""Loading of words in TOML: the tables beside the code of a language."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..phrase_cuts import PhraseWords

_PHRASES = "phrases.toml"


def load_tables(module_file: str, name: str) -> dict[str, Any]:
    """Return the contents of the TOML file ``name`` in the folder of ``module_file``.

    importlib.resources would add several milliseconds to the start of an engine.
    """
    return tomllib.loads(Path(module_file).with_name(name).read_text(encoding="utf-8"))


def expand_names(table: Mapping[str, str]) -> dict[str, str]:
    """Return ``table`` with an entry for each of the blank-separated names in its keys."""
    return {name: value for names, value in table.items() for name in names.split()}


@cache
def phrase_words(module_file: str) -> PhraseWords:
    """The words of the language in whose folder ``module_file`` is; none if it has no file of them."""
    if not Path(module_file).with_name(_PHRASES).exists():
        return PhraseWords()
    return PhraseWords(
        **{name: tuple(words.split()) for name, words in load_tables(module_file, _PHRASES).items()}
    )
