"""Request bodies and forms of OpenAI's API parsed into models, with OpenAI's error for the first fault.

    bytes -> parse_json_object -> pydantic -> CreateSpeechRequest, or InvalidRequestError

Clients compare ``code`` and ``param``, so pydantic's error types are mapped to OpenAI's codes here and
nowhere else. The native stream's messages are parsed by the same functions.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from ....web.client_json import load_json
from ....web.request_body import with_bounded_body
from ...shell.error_table import RequestBodyTooLong
from .errors import InvalidRequestError
from .extension_models import CaptionedSpeechRequest
from .models import (
    MAX_BODY_BYTES,
    MAX_NAME_CHARACTERS,
    CreateSpeechRequest,
    CreateVoiceForm,
)

M = TypeVar("M", bound=BaseModel)

_THREAD_PARSING_BYTES: Final = 2**18  # above this, parsing would hold up the event loop for milliseconds
_MAX_RECORDINGS: Final = 16  # of one voice
_MAX_FORM_FIELDS: Final = 20  # the form has six; clients may send others
_MAX_FORM_FIELD_BYTES: Final = 64 * 1024  # of a text; the file is bounded by the body


async def read_speech_request(request: Request, max_text_characters: int) -> CreateSpeechRequest:
    """Read and parse the body of a speech request; a long body is parsed on a thread.

    Raises InvalidRequestError, or RequestBodyTooLong before the whole of an excessive body is read.
    """
    return await _read(request, CreateSpeechRequest, max_text_characters)


async def read_captioned_speech_request(request: Request, max_text_characters: int) -> CaptionedSpeechRequest:
    """Read and parse the body of a request for speech with word times, as ``read_speech_request``."""
    return await _read(request, CaptionedSpeechRequest, max_text_characters)


def parse_speech_request(body: bytes, max_text_characters: int) -> CreateSpeechRequest:
    """Parse the body of a speech request; raises InvalidRequestError."""
    return _parse(CreateSpeechRequest, body, max_text_characters)


async def read_voice_form(request: Request) -> tuple[CreateVoiceForm, list[bytes]]:
    """Read the form of a new voice; returns it with the bytes of each ``audio_sample``, one or more.

    Raises InvalidRequestError, RequestBodyTooLong.
    """
    form = _bounded(request).form(
        max_files=_MAX_RECORDINGS, max_fields=_MAX_FORM_FIELDS, max_part_size=_MAX_FORM_FIELD_BYTES
    )
    try:
        async with form as fields:
            parsed = _validate(CreateVoiceForm, dict(fields))
            samples = [each for each in fields.getlist("audio_sample") if isinstance(each, UploadFile)]
            return parsed, [await each.read() for each in samples]
    except HTTPException as error:
        raise InvalidRequestError(f"the form cannot be read: {error.detail}") from None


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


async def _read(request: Request, model: type[M], max_text_characters: int) -> M:
    body = await _bounded(request).body()
    if len(body) > _THREAD_PARSING_BYTES:
        return await asyncio.to_thread(_parse, model, body, max_text_characters)
    return _parse(model, body, max_text_characters)


def _parse(model: type[M], body: bytes, max_text_characters: int) -> M:
    return _validate(model, parse_json_object(body), {"max_text_characters": max_text_characters})


def _bounded(request: Request) -> Request:
    problem = f"the body has more than the {MAX_BODY_BYTES:,} bytes that are allowed"
    return with_bounded_body(request, MAX_BODY_BYTES, RequestBodyTooLong(problem))


def _validate(model: type[M], values: Mapping[str, object], context: Mapping[str, Any] | None = None) -> M:
    try:
        return model.model_validate(values, context=dict(context or {}))
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


def _out_of_range(name: str, value: float, models: tuple[type[BaseModel], ...]) -> tuple[str, str]:
    minimum, maximum = _limits_of(name, models)
    if isinstance(minimum, int):  # OpenAI's decimal codes are for fractions only
        return f"'{name}' is out of range; allowed is {minimum} to {maximum}", "invalid_value"
    code = "decimal_below_min_value" if value < minimum else "decimal_above_max_value"
    return f"'{name}' is {value}; allowed is {minimum:g} to {maximum:g}", code


def _limits_of(name: str, models: tuple[type[BaseModel], ...]) -> tuple[Any, Any]:
    """Return the least and the greatest value of a number's field, as the model declares them."""
    metadata = next(model.model_fields[name].metadata for model in models if name in model.model_fields)
    minimum = next(limit.ge for limit in metadata if hasattr(limit, "ge"))
    return minimum, next(limit.le for limit in metadata if hasattr(limit, "le"))
