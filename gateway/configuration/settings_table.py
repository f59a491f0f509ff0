"""The base class of the tables of the configuration, and the types of their fields.

A field's ``description`` is its meaning, as the reference prints it; its ``title`` is what it allows, as
error messages print it.
"""

import json
from ipaddress import ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ...tts_engine.errors import VivavoceError


class SettingsError(VivavoceError):
    """A key or value of the configuration is not allowed; the message is a sentence for the operator."""


class SettingsTable(BaseModel):
    """A table of the configuration. Frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _reject_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is wanted")
    return value


def _check_network(value: str) -> str:
    ip_network(value)
    return value


def _parse_digits(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _parse_json(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


DIGITS: Final = BeforeValidator(_parse_digits)  # variables are text, which a Literal of numbers refuses
JSON: Final = BeforeValidator(_parse_json)  # lists and tables, which are JSON in a variable
Integer = Annotated[int, BeforeValidator(_reject_bool)]
FiniteFloat = Annotated[float, BeforeValidator(_reject_bool), Field(allow_inf_nan=False)]
Host = Annotated[str, Field(min_length=1, max_length=253, title="a host name or an IP address")]
Port = Annotated[Integer, Field(ge=0, le=65_535, title="a port from 0 (any free one) to 65535")]
Network = Annotated[str, AfterValidator(_check_network)]
NamedText = Annotated[str, Field(min_length=1)]
