"""Descriptions of a dialect's routes for the OpenAPI document: errors of speech, queries, forms, events."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel

from ....adapters.audio.encoders import AudioFormat, Codec
from ...web.openapi.operations import (
    ACCESS_ERRORS,
    JSON,
    Responses,
    Schema,
    error_responses,
    json_body,
    reference,
)

EVENT_STREAM: Final = "text/event-stream"
BINARY_CONTENT: Final[Schema] = {"schema": {"type": "string", "format": "binary"}}
# Media types of all formats, without their parameters.
AUDIO_CONTENT_TYPES: Final = tuple(
    AudioFormat(codec).content_type.partition(";")[0] for codec in get_args(Codec)
)

RATE_LIMITED: Final = {429: "The key has exceeded a limit."}
BODY_TOO_LONG: Final = {413: "The body is too long."}
SPEECH_ERRORS: Final = {
    **RATE_LIMITED,
    500: "The speech failed.",
    503: "The server is at capacity or shutting down.",
}
ENROLLMENT_NOTE: Final = "Needs the scope 'enrol', and a server of CosyVoice 2 or 3 with a folder for voices."


def speech_errors(model: type[BaseModel], *errors: Mapping[int, str]) -> Responses:
    """Describe the errors of a route that speaks; those of the key, the body and the speech are added."""
    return error_responses(model, ACCESS_ERRORS, *errors, BODY_TOO_LONG, SPEECH_ERRORS)


def query(name: str, description: str = "", kind: str = "string", **schema: Any) -> Schema:
    """Describe a parameter of the query."""
    described = {"description": description} if description else {}
    return {"name": name, "in": "query", **described, "schema": {"type": kind, **schema}}


def form_body(model: type[BaseModel]) -> Schema:
    """Describe a multipart form by its model."""
    return json_body(model, "multipart/form-data")


def event_stream(*events: type[BaseModel]) -> Schema:
    """Describe server-sent events, each with the JSON of one of these models."""
    data = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": {"anyOf": [reference(event, "serialization") for event in events]},
    }
    item = {"type": "object", "properties": {"data": data}, "required": ["data"]}
    # OpenAPI 3.1, which most tools read, has no word for the items of a stream: 3.2's as an extension.
    return {EVENT_STREAM: {"x-itemSchema": item}}
