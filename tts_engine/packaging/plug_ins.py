"""Records that other packages add to a registry with entry points: dialects, ways in, voices, languages.

Source: https://packaging.python.org/en/latest/specifications/entry-points/
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TypeVar

from ..errors import PlugInError

Record = TypeVar("Record")


def with_plug_ins(
    group: str, built_in: tuple[Record, ...], name_of: Callable[[Record], str]
) -> tuple[Record, ...]:
    """The built-in records, then those of the group's entry points.

    Raises PlugInError if one cannot be imported, is no record of this type, or has the name of another.
    """
    records = list(built_in)
    for entry in installed_entry_points(group, tuple(sys.path)):
        record, names = _load(entry), [name_of(each) for each in records]
        expected = type(built_in[0])
        if not isinstance(record, expected):
            raise PlugInError(f"{_describe(entry)}: {entry.value} is no {expected.__name__}")
        if name_of(record) in names:
            raise PlugInError(f"{_describe(entry)}: the name {name_of(record)!r} is taken")
        records.append(record)
    return tuple(records)


@cache
def installed_entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """The entry points of all packages on the path; reading them takes 15 ms."""
    return entry_points(group=group)


def _load(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise PlugInError(f"{_describe(entry)} cannot be imported: {fault}") from error


def _describe(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return f"entry point {entry.name!r} of {entry.group}, installed by {package}"
