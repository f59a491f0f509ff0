"""The settings, one by one: their names, defaults, and what is allowed; and what there was before them.

``former_settings.toml`` lists settings that had other names, or are no longer settings. Of a bundle,
``bundle.KEY`` is also ``bundles.NAME.KEY``.
"""

import functools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from ...configuration.settings import Settings


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One setting."""

    path: tuple[str, ...]  # of tables and the key
    field: FieldInfo

    @property
    def name(self) -> str:
        """The setting as messages name it, ``http.port``."""
        return ".".join(self.path)

    @property
    def default(self) -> str:
        """The default as TOML has it; "" for none."""
        value = self.field.default
        return "" if value is None or value in ((), {}) else json.dumps(value)

    @property
    def allowed(self) -> str:
        """What is allowed, for an error message."""
        return self.field.title or "true or false"

    @property
    def is_table(self) -> bool:
        """Whether its value is a table of other keys, or none."""
        return any(map(_is_table, get_args(self.field.annotation)))

    @property
    def fields_of_entries(self) -> tuple[str, ...]:
        """The keys of its entries, if those are tables by names of the operator."""
        tables = _tables_in(self.field.annotation) if isinstance(self.field.default, dict) else ()
        return tuple(name for table in tables for name in table.model_fields)

    @property
    def is_secret(self) -> bool:
        """Whether its values are not shown."""
        return _holds_secret(self.field.annotation)


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _tables_in(kind: object) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _tables_in(part)


def _holds_secret(kind: object) -> bool:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return any(_holds_secret(field.annotation) for field in kind.model_fields.values())
    return kind is SecretStr or any(map(_holds_secret, get_args(kind)))


def _keys_of(settings: type[BaseModel]) -> Iterator[SettingKey]:
    for name, field in settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            for key in _keys_of(field.annotation):
                yield SettingKey((name, *key.path), key.field)
        else:
            yield SettingKey((name,), field)


SETTING_KEYS: Final = tuple(_keys_of(Settings))


@functools.cache
def former_settings() -> Mapping[str, Mapping[str, str]]:
    """The tables ``renamed``, of what is set now, and ``removed``, of what holds now, by former name."""
    return tomllib.loads(Path(__file__).with_name("former_settings.toml").read_text(encoding="utf-8"))


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
