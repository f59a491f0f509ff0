"""Reads yaml and JSON settings of a bundle as plain data, by dotted key, and checks sizes of networks.

The yaml of a release is written for a loader that builds objects and calls functions while it reads. Here a
tag stays a name that is never looked up, and a reference is followed to a number and no further.
"""

import json
import math
import re
import reprlib
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ..bundle_files import require_file

MAX_SETTINGS_BYTES = 1_000_000
MAX_NUMBER = 2**24
MAX_LIST_NUMBERS = 16  # a release lists three upsampling stages

_REFERENCE = re.compile(r"<([A-Za-z_][A-Za-z_0-9]*)>")


class BundleConfigError(ValueError):
    """Settings cannot be read or do not fit this engine; the message names the file and the key."""


class SettingsFile:
    """Settings of one file, found by dotted key. Every method raises BundleConfigError for a missing key."""

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self.name, self._data = name, data

    @classmethod
    def read_yaml(cls, path: Path) -> "SettingsFile":
        """Read a yaml file. Raises BundleConfigError."""
        return cls(path.name, parse_yaml(_read_text(path, path.name), path.name))

    @classmethod
    def read_json(cls, path: Path, name: str | None = None) -> "SettingsFile":
        """Read a JSON file. name: in messages, the file's own without one. Raises BundleConfigError."""
        name = name or path.name
        return cls(name, _parse_json(_read_text(path, name), name))

    def find(self, key: str) -> Any:
        """The value of a key, references resolved."""
        found: Any = self._data
        for part in key.split("."):
            if not isinstance(found, dict) or part not in found:
                raise BundleConfigError(f"{self.name}: {key} is missing")
            found = found[part]
        return self._resolved(found)

    def has(self, key: str) -> bool:
        """Whether the mapping that should hold the key has it."""
        parent, _, name = key.rpartition(".")
        return name in (self.find(parent) if parent else self._data)

    def number(self, key: str) -> int:
        """A whole number from 1 to MAX_NUMBER."""
        value = self.find(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_NUMBER:
            raise self._unexpected(key, value, f"a whole number from 1 to {MAX_NUMBER:,}")
        return value

    def float_number(self, key: str) -> float:
        """A number, whole or not."""
        value = self.find(key)
        if isinstance(value, str):  # yaml 1.1 reads 1e-06 as text
            value = _parse_float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            raise self._unexpected(key, value, "a number")
        return float(value)

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return self._whole_numbers(key, self.find(key))

    def number_rows(self, key: str) -> tuple[tuple[int, ...], ...]:
        """A list of lists of whole numbers."""
        rows = self.find(key)
        if not isinstance(rows, list) or not 0 < len(rows) <= MAX_LIST_NUMBERS:
            raise self._unexpected(key, rows, f"up to {MAX_LIST_NUMBERS} rows of numbers")
        return tuple(self._whole_numbers(key, row) for row in rows)

    def require(self, key: str, wanted: Any) -> None:
        """Raise BundleConfigError unless the key has this value."""
        found = self.find(key)
        if found != wanted:
            raise self._unexpected(key, found, repr(wanted))

    def require_class(self, key: str, wanted: str) -> None:
        """Raise BundleConfigError unless the key is tagged with this class name."""
        found = self.find(key)
        tag = str(found.get("!", "nothing")) if isinstance(found, dict) else type(found).__name__
        if tag.rpartition(".")[2] != wanted:
            raise BundleConfigError(f"{self.name}: {key} is {tag[:100]}; expected a {wanted}")

    def _resolved(self, value: Any) -> Any:
        """Turn a reference, or a product of references, into the number it stands for."""
        if not isinstance(value, str) or not (names := _REFERENCE.findall(value)):
            return value
        factors = [self._data.get(name) for name in names]
        if _REFERENCE.sub("", value).strip(" *") or not all(isinstance(f, int) for f in factors):
            return value
        return math.prod(factors)

    def _whole_numbers(self, key: str, value: Any) -> tuple[int, ...]:
        is_list = isinstance(value, list) and 0 < len(value) <= MAX_LIST_NUMBERS
        if not is_list or not all(type(n) is int and 0 < n <= MAX_NUMBER for n in value):
            raise self._unexpected(key, value, f"up to {MAX_LIST_NUMBERS} whole numbers above 0")
        return tuple(value)

    def _unexpected(self, key: str, value: Any, wanted: str) -> BundleConfigError:
        # Abbreviated, because a few lines of yaml can describe a value of gigabytes.
        return BundleConfigError(f"{self.name}: {key} is {reprlib.repr(value)}; expected {wanted}")


def parse_yaml(text: str, name: str) -> dict[str, Any]:
    """Parse yaml to plain data: a mapping keeps its tag under ``!``, a reference stays text like ``<name>``.

    ``name`` is for the message of a BundleConfigError.
    """
    try:
        data = yaml.load(text, Loader=_PlainLoader)  # a safe loader that builds nothing
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BundleConfigError(
            f"{name}: not readable as yaml: {' '.join(str(error).split())[:300]}"
        ) from error
    except RecursionError:
        raise BundleConfigError(f"{name}: not readable as yaml: nested too deeply") from None
    return _require_mapping(data, name)


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Keeps tags as names."""


def _construct_plain(loader: Any, suffix: str, node: Any) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {"!": suffix, **loader.construct_mapping(node, deep=True)}
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_PlainLoader.add_multi_constructor("!", _construct_plain)


def _parse_json(text: str, name: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise BundleConfigError(f"{name}: not readable as JSON: {error}") from error
    except RecursionError:
        raise BundleConfigError(f"{name}: not readable as JSON: nested too deeply") from None
    return _require_mapping(data, name)


def _require_mapping(data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise BundleConfigError(f"{name}: found {type(data).__name__}, expected named settings")
    return data


def _read_text(path: Path, name: str) -> str:
    try:
        require_file(path)
        if path.stat().st_size > MAX_SETTINGS_BYTES:
            raise BundleConfigError(
                f"{name}: {path.stat().st_size:,} bytes; settings have at most {MAX_SETTINGS_BYTES:,}"
            )
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise BundleConfigError(
            f"{name}: not text in UTF-8 ({error.reason} at byte {error.start})"
        ) from error
    except OSError as error:
        raise BundleConfigError(f"{name}: {error.strerror}") from error


def _parse_float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


MAX_LAYERS = 1000  # of one stack; bounds what a damaged config can allocate


def require(holds: bool, name: str, got: float, allowed: str) -> None:
    """Raise ValueError with the value and what is allowed, unless ``holds``."""
    if not holds:
        raise ValueError(f"{name} is {got:,}; it must be {allowed}")


def require_multiple(name: str, value: int, of: str, part: int) -> None:
    """Raise ValueError unless ``value`` is a multiple of ``part``; both have to be positive."""
    require(part > 0, of, part, "above 0")
    require(value > 0 and value % part == 0, name, value, f"a multiple of {of}, which is {part}")


def require_layers(**counts: int) -> None:
    """Raise ValueError unless each number of layers is from 1 to MAX_LAYERS."""
    for name, count in counts.items():
        require(1 <= count <= MAX_LAYERS, name, count, f"from 1 to {MAX_LAYERS:,}")
