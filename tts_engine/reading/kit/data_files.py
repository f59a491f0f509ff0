"""Loading of words in TOML: the tables beside the code of a language, and lexicons of users."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def load_tables(module_file: str, name: str) -> dict[str, Any]:
    """Return the contents of the TOML file ``name`` in the folder of ``module_file``.

    importlib.resources would add several milliseconds to the start of an engine.
    """
    return tomllib.loads(Path(module_file).with_name(name).read_text(encoding="utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """Return a TOML document; raises ValueError with the line."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def expand_names(table: Mapping[str, str]) -> dict[str, str]:
    """Return ``table`` with an entry for each of the blank-separated names in its keys."""
    return {name: value for names, value in table.items() for name in names.split()}
