"""Settings that had other names, or are no longer settings: what an operator sets instead.

``former_settings.toml`` lists them. Of a bundle, ``bundle.KEY`` is also ``bundles.NAME.KEY``.
"""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path


@functools.cache
def former_settings() -> Mapping[str, Mapping[str, str]]:
    """The tables ``renamed``, of what is set now, and ``removed``, of what holds now, by former name."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def describe_former(name: str, *, as_variable: str = "") -> str:
    """What to set in place of a former setting, as a sentence; "" for any other name.

    as_variable: the prefix of variables, whose names have underscores for dots, and may go on with a key of
    the setting's table.
    """
    renamed, removed = former_settings()["renamed"], former_settings()["removed"]
    by_flat_name = {former.replace(".", "_"): former for former in (*renamed, *removed)}
    former = by_flat_name.get(name.replace(".", "_"))
    if former is None and as_variable:
        former = next(
            (full for flat, full in by_flat_name.items() if "." in full and name.startswith(f"{flat}_")), None
        )
    if former is None:
        return ""
    if former in removed:
        return f"no longer a setting: {removed[former]}. CHANGELOG.md lists what has changed."
    key, _, value = renamed[former].partition(" = ")
    if as_variable:
        key = as_variable + key.replace(".", "_").upper()
    new = f"{key} = {value}" if value else key
    return f"it is now {new}; CHANGELOG.md lists the new names, which an upgrade needs."
