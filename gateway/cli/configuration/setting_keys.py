"""The settings, one by one: their names, defaults, and what is allowed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
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
