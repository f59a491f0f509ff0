"""Descriptions of routes for the OpenAPI document, built from pydantic models.

    router.add_api_route("/v1/models", list_models, **operation(
        "listModels", "List the models.", json_response(ModelList), error_responses(ErrorBody,
        ACCESS_ERRORS)))

Routes read their requests and write their responses themselves, so FastAPI cannot infer either:
``operation`` passes the models to FastAPI's ``responses`` and ``openapi_extra``. FastAPI generates the
schemas of responses; those of requests, events and messages travel in ``SCHEMAS_KEY``, from where the
document collects them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from fastapi import Response
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

Schema = dict[str, Any]
Responses = dict[int, Schema]

SCHEMAS_KEY: Final = "x-schemas"  # an operation's models, until the document moves them to its components
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
BINARY_CONTENT: Final[Schema] = {"schema": {"type": "string", "format": "binary"}}

ACCESS_ERRORS: Final = {
    401: "The API key is missing or invalid.",
    403: "The key lacks the scope, or the page's origin is not allowed.",
}
RATE_LIMITED: Final = {429: "The key has exceeded a limit."}
BODY_TOO_LONG: Final = {413: "The body is too long."}
SPEECH_ERRORS: Final = {
    **RATE_LIMITED,
    500: "The speech failed.",
    503: "The server is at capacity or shutting down.",
}
ENROLLMENT_NOTE: Final = "Needs the scope 'enrol', and a server of CosyVoice 2 or 3 with a folder for voices."
_RETRYABLE_STATUSES: Final = (429, 503)
_RETRY_AFTER: Final[Schema] = {"retry-after": {"description": "Seconds.", "schema": {"type": "integer"}}}


@dataclass(frozen=True, slots=True)
class WebSocketOperation:
    """A WebSocket route, which OpenAPI itself cannot describe; the document has it under ``x-websockets``."""

    path: str
    summary: str
    receives: object  # type of the client's JSON messages
    sends: object = None  # type of the server's JSON messages, None if there is no model of them
    tag: str = ""  # the API that it belongs to
    example: tuple[Mapping[str, object], ...] = ()  # messages that have a text spoken
    query: str = ""  # of the path, in the example

    def describe(self) -> Schema:
        """Return the description, with the messages' schemas in ``SCHEMAS_KEY``."""
        clients, schemas = _schema_of(self.receives, "validation")
        description: Schema = {
            "summary": self.summary,
            "tags": [self.tag],
            "clientMessages": clients,
            "example": {"query": self.query, "messages": list(self.example)},
            SCHEMAS_KEY: schemas,
        }
        if self.sends is not None:
            servers, server_schemas = _schema_of(self.sends, "serialization")
            description |= {"serverMessages": servers, SCHEMAS_KEY: schemas | server_schemas}
        return description


def operation(
    operation_id: str,
    summary: str,
    *responses: Responses,
    description: str = "",
    path_parameters: Sequence[str] = (),
    other_parameters: Sequence[Schema] = (),
    body: Schema | None = None,
    public: bool = False,
) -> dict[str, Any]:
    """Return the keyword arguments that document a route.

    path_parameters: those that the route's function does not declare. other_parameters: OpenAPI's parameter
    objects, of headers and queries. body: ``json_body`` or ``form_body``.
    public: no key is needed.
    """
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in path_parameters
    ]
    extra: Schema = {"parameters": [*parameters, *other_parameters], **(body or {})}
    if public:
        extra["security"] = []
    return {
        "operation_id": operation_id,
        "summary": summary,
        "description": description,
        "response_class": Response,  # FastAPI would otherwise describe a JSON body of any kind
        "response_model": None,
        "responses": dict(sorted((item for some in responses for item in some.items()), key=itemgetter(0))),
        "openapi_extra": extra,
    }


def json_response(
    model: type[BaseModel],
    status: int = 200,
    description: str = "OK",
    links: Mapping[str, Schema] | None = None,
    headers: Mapping[str, Schema] | None = None,
) -> Responses:
    """Describe a JSON response."""
    optional = {"links": links, "headers": headers}
    present = {name: value for name, value in optional.items() if value}
    return {status: {"model": model, "description": description, **present}}


def content_response(description: str, *content_types: str, status: int = 200) -> Responses:
    """Describe a response that is not JSON of a model."""
    return {status: {"description": description, "content": {name: {} for name in content_types}}}


def speech_errors(model: type[BaseModel], *errors: Mapping[int, str]) -> Responses:
    """Describe the errors of a route that speaks; those of the key, the body and the speech are added."""
    return error_responses(model, ACCESS_ERRORS, *errors, BODY_TOO_LONG, SPEECH_ERRORS)


def query(name: str, description: str = "", kind: str = "string", **schema: Any) -> Schema:
    """Describe a parameter of the query."""
    described = {"description": description} if description else {}
    return {"name": name, "in": "query", **described, "schema": {"type": kind, **schema}}


def error_responses(
    model: type[BaseModel], *errors: Mapping[int, str], headers: Mapping[str, Schema] | None = None
) -> Responses:
    """Describe errors of one dialect by status; those worth a retry carry Retry-After."""
    return {
        status: {
            "model": model,
            "description": description,
            "headers": {**(headers or {}), **(_RETRY_AFTER if status in _RETRYABLE_STATUSES else {})},
        }
        for some in errors
        for status, description in some.items()
    }


def json_body(model: type[BaseModel], content_type: str = JSON, *, example: Schema | None = None) -> Schema:
    """Describe a request body by its model; its example is made of those of the fields if none is given."""
    schema, schemas = _schema_of(model, "validation")
    content = {content_type: {"schema": schema, **({"example": example} if example else {})}}
    return {"requestBody": {"required": True, "content": content}, SCHEMAS_KEY: schemas}


def form_body(model: type[BaseModel]) -> Schema:
    """Describe a multipart form by its model."""
    return json_body(model, "multipart/form-data")


def event_stream(*events: type[BaseModel]) -> Schema:
    """Describe server-sent events, each with the JSON of one of these models."""
    described = [_schema_of(event, "serialization") for event in events]
    data = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": {"anyOf": [schema for schema, _ in described]},
    }
    item = {"type": "object", "properties": {"data": data}, "required": ["data"]}
    schemas = {name: one for _, some in described for name, one in some.items()}
    # OpenAPI 3.1, which most tools read, has no word for the items of a stream: 3.2's as an extension.
    return {EVENT_STREAM: {"x-itemSchema": item, SCHEMAS_KEY: schemas}}


def links(parameter: str, pointer: str, *operation_ids: str) -> dict[str, Schema]:
    """Name the operations that take a value of the response, at the JSON pointer, as a parameter."""
    return {
        operation_id: {
            "operationId": operation_id,
            "parameters": {parameter: f"$response.body#{pointer}"},
        }
        for operation_id in operation_ids
    }


def _schema_of(kind: Any, mode: JsonSchemaMode) -> tuple[Schema, dict[str, Schema]]:
    """Return the schema of a type, and the models that it refers to by name."""
    schemas, definitions = TypeAdapter.json_schemas(
        [("kind", mode, TypeAdapter(kind))], ref_template="#/components/schemas/{model}"
    )
    return dict(schemas["kind", mode]), definitions.get("$defs", {})
