"""JSON of OpenAI's requests and messages parsed into models, with OpenAI's error for the first fault.

    bytes -> parse_json_object -> validate -> a model, or InvalidRequestError

Clients compare ``code`` and ``param``, so pydantic's error types are mapped to OpenAI's codes here and
nowhere else.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..request_fields import load_json
from .errors import InvalidRequestError
from .speech_settings import MAX_NAME_CHARACTERS

M = TypeVar("M", bound=BaseModel)


def parse_json_object(body: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; raises InvalidRequestError, also for NaN and Infinity, which are not JSON."""
    try:
        value = load_json(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # the latter for deep nesting
        raise InvalidRequestError(f"We could not parse the JSON body of your request: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequestError(f"got JSON that is a {type(value).__name__}; an object is needed")
    return value


def invalid_request_error(error: ValidationError, *models: type[BaseModel]) -> InvalidRequestError:
    """Convert the first fault that pydantic found to OpenAI's terms.

    models: the models that were validated, in which the limits of the field at fault are looked up.
    """
    fault = error.errors(include_url=False)[0]
    name = str(fault["loc"][-1])
    message, code = _describe_fault(name, fault, models)
    return InvalidRequestError(message, name, code)


def validate(model: type[M], values: Mapping[str, object], context: Mapping[str, Any] | None = None) -> M:
    """Validate the fields of a request; raises InvalidRequestError."""
    try:
        return model.model_validate(values, context=dict(context or {}))
    except ValidationError as error:
        raise invalid_request_error(error, model) from None


def validate_texts(model: type[M], values: Mapping[str, str], context: Mapping[str, Any] | None = None) -> M:
    """Validate the fields of a query, in which everything is text; raises InvalidRequestError."""
    try:
        return model.model_validate_strings(dict(values), strict=False, context=dict(context or {}))
    except ValidationError as error:
        raise invalid_request_error(error, model) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _describe_fault(
    name: str, fault: ErrorDetails, models: tuple[type[BaseModel], ...]
) -> tuple[str, str | None]:
    """Message and code of a fault in a field."""
    value, limits = fault["input"], fault.get("ctx", {})
    match fault["type"]:
        case "missing":
            return f"'{name}' is required", "missing_required_parameter"
        case "string_too_long":
            return _too_long(name, value, limits["max_length"])
        case "string_too_short":
            return f"'{name}' is empty; at least 1 character is needed", "string_below_min_length"
        case "string_unicode":
            return f"'{name}' has half a surrogate pair in it", "invalid_value"
        # pydantic has one error for every wrong literal; a wrong type and an excessive length come first.
        case "literal_error" if not isinstance(value, str):
            return _wrong_type(name, value, "a string")
        case "literal_error" if len(value) > MAX_NAME_CHARACTERS:
            return _too_long(name, value, MAX_NAME_CHARACTERS)
        case "literal_error":
            allowed = limits["expected"].replace("'", "").replace(" or ", ", ")
            return f"'{name}' is {value!r}; allowed are {allowed}", "invalid_value"
        case "greater_than_equal" | "less_than_equal":
            return _out_of_range(name, value, models)
        # An integer that no float can hold.
        case "float_type" if isinstance(value, int) and not isinstance(value, bool):
            return _out_of_range(name, value, models)
        case "string_type" | "float_type" | "int_type" | "bool_type" | "dict_type" as error_type:
            return _wrong_type(name, value, _TYPES[error_type])
        case "float_parsing" | "int_parsing" | "bool_parsing" as error_type:  # of a query
            expected = _TYPES[error_type.replace("parsing", "type")]
            return f"'{name}' is {value[:40]!r}; {expected} is needed", "invalid_type"
        case "voice_without_id" | "file_for_text" | "file_missing":
            return f"'{name}' {fault['msg']}", None
        case error_type:  # a validator of ours: its message is complete
            return fault["msg"], "invalid_value" if error_type == "invalid_value" else None


_TYPES: Final = {
    "string_type": "a string",
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "an object",
}


def _wrong_type(name: str, value: object, expected: str) -> tuple[str, str]:
    return f"'{name}' is of type {type(value).__name__}; {expected} is needed", "invalid_type"


def _too_long(name: str, value: str, max_characters: int) -> tuple[str, str]:
    problem = f"'{name}' has {len(value)} characters; at most {max_characters} are allowed"
    return problem, "string_above_max_length"


def _out_of_range(name: str, value: float | str, models: tuple[type[BaseModel], ...]) -> tuple[str, str]:
    minimum, maximum = _limits_of(name, models)
    if isinstance(minimum, int):  # OpenAI's decimal codes are for fractions only
        return f"'{name}' is out of range; allowed is {minimum} to {maximum}", "invalid_value"
    number = float(value) if isinstance(value, str) else value  # a text in a query
    code = "decimal_below_min_value" if number < minimum else "decimal_above_max_value"
    return f"'{name}' is {value}; allowed is {minimum:g} to {maximum:g}", code


def _limits_of(name: str, models: tuple[type[BaseModel], ...]) -> tuple[Any, Any]:
    """Return the least and the greatest value of a number's field, as the model declares them."""
    metadata = next(model.model_fields[name].metadata for model in models if name in model.model_fields)
    minimum = next(limit.ge for limit in metadata if hasattr(limit, "ge"))
    return minimum, next(limit.le for limit in metadata if hasattr(limit, "le"))
