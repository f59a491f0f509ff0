"""TODO."""

import json
from collections.abc import Mapping
from typing import Final, NoReturn

from ...tts_engine.errors import VivavoceError

_MAX_NAME_CHARACTERS: Final = 256


class InvalidRequestError(VivavoceError):
    """A request that is not one. param: the field at fault, None for the whole; code: OpenAI's, if any."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def parse_json_object(body: str | bytes) -> Mapping[str, object]:
    """The JSON object in a body; raises ProtocolError."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"We could not parse the JSON body of your request: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequestError(f"got JSON that is a {type(value).__name__}; an object is needed")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class JsonFields:
    """The fields of a JSON object, each read with its type and its limits; null is the same as not there."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def has(self, name: str) -> bool:
        """Whether a value is given."""
        return self.values.get(name) is not None

    def text(self, name: str, max_characters: int) -> str | None:
        """A string of at most ``longest`` characters, None where there is none; raises ProtocolError."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self._refuse_type(name, value, "a string")
        if len(value) > max_characters:
            problem = f"has {len(value)} characters; at most {max_characters} are allowed"
            self.refuse(name, problem, "string_above_max_length")
        try:
            value.encode()
        except UnicodeEncodeError:
            self.refuse(name, "has half a surrogate pair in it", "invalid_value")
        return value

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """A number within limits; raises ProtocolError."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse_type(name, value, "a number")
        if not minimum <= value <= maximum:
            code = "decimal_below_min_value" if value < minimum else "decimal_above_max_value"
            self.refuse(name, f"is {value}; allowed is {minimum:g} to {maximum:g}", code)
        return float(value)

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """A whole number within limits; raises ProtocolError."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse_type(name, value, "a whole number")
        if not minimum <= value <= maximum:
            self.refuse(name, f"is out of range; allowed is {minimum} to {maximum}", "invalid_value")
        return value

    def boolean(self, name: str) -> bool:
        """True or false, false where there is none; raises ProtocolError."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            self._refuse_type(name, value, "true or false")
        return bool(value)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """One of several strings, None where there is none; raises ProtocolError."""
        value = self.text(name, _MAX_NAME_CHARACTERS)
        if value is not None and value not in allowed:
            self.refuse(name, f"is {value!r}; allowed are {', '.join(allowed)}", "invalid_value")
        return value

    def refuse(self, name: str, problem: str, code: str | None = None) -> NoReturn:
        """Raise ProtocolError about a field."""
        raise InvalidRequestError(f"'{name}' {problem}", name, code)

    def _refuse_type(self, name: str, value: object, wanted: str) -> NoReturn:
        self.refuse(name, f"is of type {type(value).__name__}; {wanted} is needed", "invalid_type")
