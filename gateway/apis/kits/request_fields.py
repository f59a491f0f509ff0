"""Fields of requests: of a body that is JSON, a form with files, or a URL-encoded form, and ids of contexts.

body -> read_fields -> {"text": "...", "wav_file": UploadedRecording(...)} -> parse_fields -> a model
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from ....adapters.audio.encoders import Codec
from ...web.client_json import (
    read_body,
    replace_lone_surrogates,
    require_few_values,
    with_bounded_body,
)
from .error_table import InvalidField, InvalidRequest, RequestBodyTooLong

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

# Its length is a setting of the server. Without any limit, pydantic does not look for lone surrogates.
SpokenText = Annotated[str, Field(min_length=0)]

MAX_BODY_BYTES: Final = 16 * 2**20  # a minute of a recording in base64
MAX_MESSAGE_BYTES: Final = 512 * 1024  # 40,000 characters, each escaped as a surrogate pair
MAX_CONTEXT_ID_CHARACTERS: Final = 256
_THREAD_PARSING_BYTES: Final = 2**18  # above this, parsing would hold up the event loop for milliseconds
_MAX_FORM_FIELDS: Final = 40
_MAX_FORM_FIELD_BYTES: Final = 2**18  # of a text; a file is bounded by the body


class UploadedRecording:
    """A file of a form. Not a dataclass, which OpenAPI would describe by its fields.

    Attributes:
        name: as the client sent it; not a path of this machine.
        data: the file.
    """

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data = name, data


async def read_fields(request: Request, max_bytes: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """Return the fields of the body; raises InvalidField or RequestBodyTooLong."""
    too_long = RequestBodyTooLong(f"the body is longer than {max_bytes:,} bytes")
    bounded = with_bounded_body(request, max_bytes, too_long)
    content_type = request.headers.get("content-type", "")
    if content_type.startswith("multipart/"):
        return await _read_form(bounded)
    body = await bounded.body()
    # curl -d sends JSON as a form, unless it is told otherwise.
    if content_type.startswith("application/x-www-form") and not body.lstrip().startswith(b"{"):
        return await _read_form(bounded)
    if len(body) > _THREAD_PARSING_BYTES:
        return await asyncio.to_thread(parse_json_fields, body)
    return parse_json_fields(body)


async def _read_form(request: Request) -> dict[str, Any]:
    form = request.form(max_files=1, max_fields=_MAX_FORM_FIELDS, max_part_size=_MAX_FORM_FIELD_BYTES)
    try:
        async with form as fields:
            return {
                name: UploadedRecording(value.filename or "", await value.read())
                if isinstance(value, UploadFile)
                else value
                for name, value in fields.items()
            }
    except HTTPException as error:
        raise InvalidField("body", f"the form cannot be read: {error.detail}") from None


def parse_json_fields(body: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; raises InvalidField."""
    try:
        value = load_json(body)
    except (ValueError, RecursionError) as error:  # the latter for deep nesting
        raise InvalidField("body", f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidField("body", f"is a JSON {type(value).__name__}; an object is needed")
    return value


def parse_fields(model: type[M], fields: Mapping[str, Any]) -> M:
    """Return the model of the fields, of which None equals an absent one; raises InvalidField."""
    return validated(
        model.model_validate, {name: value for name, value in fields.items() if value is not None}
    )


def validated(validate: Callable[[Any], T], value: Any, whole: str = "body") -> T:
    """Return what pydantic's function makes of a value; raises InvalidField.

    whole: what a fault is in that is in no field.
    """
    try:
        return validate(value)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, fault["loc"])) or whole
        raise InvalidField(name, fault["msg"], (whole, *fault["loc"])) from None


def load_json(data: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """As ``json.loads``; raises ValueError for too many values too, and RecursionError for deep nesting."""
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
    require_few_values(text)
    return json.loads(text, parse_constant=parse_constant)


def parse_json(data: str | bytes, max_length: int, make_error: Callable[[str], Exception]) -> Any:
    """Parse a message or body of at most ``max_length`` characters or bytes; raises ``make_error(text)``."""
    if len(data) > max_length:
        raise make_error(f"the message is longer than {max_length} characters")
    try:
        return load_json(data)
    except (ValueError, RecursionError) as error:  # the latter for deep nesting
        raise make_error(f"this is not JSON: {error}") from None


def parse_json_object(
    data: str | bytes, max_length: int, make_error: Callable[[str], Exception]
) -> dict[str, Any]:
    """Parse a JSON object as ``parse_json``."""
    value = parse_json(data, max_length, make_error)
    if not isinstance(value, dict):
        raise make_error(f"got JSON that is a {type(value).__name__}; an object is needed")
    return value


async def read_json(request: Request) -> Any:
    """Return the JSON of a body of at most MAX_MESSAGE_BYTES; raises InvalidRequest, RequestBodyTooLong."""
    return parse_message(await read_body(request, MAX_MESSAGE_BYTES, RequestBodyTooLong))


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object of a body, as ``read_json``."""
    return parse_object(await read_body(request, MAX_MESSAGE_BYTES, RequestBodyTooLong))


def parse_message(data: str | bytes) -> Any:
    """Parse the JSON of a message or short body; raises InvalidRequest."""
    return parse_json(data, MAX_MESSAGE_BYTES, InvalidRequest)


def parse_object(data: str | bytes) -> dict[str, Any]:
    """Parse a JSON object, as ``parse_message``."""
    return parse_json_object(data, MAX_MESSAGE_BYTES, InvalidRequest)


def context_id_in(data: str | bytes, *names: str) -> str | None:
    """Return the beginning of what an invalid message names as its context, None if no answer can name it.

    names: of the field, the first one ahead.
    """
    try:
        fields = parse_object(data)
    except InvalidRequest:
        return None
    return reported_context_id(next((fields[name] for name in names if name in fields), None))


def reported_context_id(named: object) -> str | None:
    """Return the beginning of what a message names as its context, None if no answer can name it."""
    if not isinstance(named, str):
        return None
    context_id = named[:MAX_CONTEXT_ID_CHARACTERS]
    return context_id if replace_lone_surrogates(context_id) == context_id else None


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


LOWER_CASE: Final = BeforeValidator(_lower)
UPPER_CASE: Final = BeforeValidator(_upper)
# Names that other servers have for a format; files of Opus are Ogg here.
_OTHER_NAMES: Final = {"ogg": "opus", "oga": "opus", "mpeg": "mp3"}


def _codec_name(value: object) -> object:
    name = _lower(value)
    return _OTHER_NAMES.get(name, name) if isinstance(name, str) else name


CodecName = Annotated[Codec, BeforeValidator(_codec_name)]
