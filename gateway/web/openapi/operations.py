"""Descriptions of routes for the OpenAPI document, built from pydantic models.

    router.add_api_route("/v1/models", list_models, **operation(
        "listModels", "List the models.", json_response(ModelList), error_responses(ErrorBody,
        ACCESS_ERRORS)))

Routes read their requests and write their responses themselves, so FastAPI cannot infer either:
``operation`` passes FastAPI references to the models. ``resolve_references`` puts their schemas in the
document when somebody asks for it: making those of all routes would be a part of every start.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from fastapi import Response
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

Schema = dict[str, Any]
Responses = dict[int, Schema]

JSON: Final = "application/json"

ACCESS_ERRORS: Final = {
    401: "The API key is missing or invalid.",
    403: "The key lacks the scope, or the page's origin is not allowed.",
}
# Schemes of references to models of the code, "x-validation:module:Name"
_REFERENCES: Final[Mapping[JsonSchemaMode, str]] = {
    "validation": "x-validation:",
    "serialization": "x-serialization:",
}
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

    def describe(self, components: dict[str, Schema]) -> Schema:
        """Return the description; the models that it refers to by name are added to the components."""
        description: Schema = {
            "summary": self.summary,
            "tags": [self.tag],
            "clientMessages": _schema_of(self.receives, "validation", components),
            "example": {"query": self.query, "messages": list(self.example)},
        }
        if self.sends is not None:
            description["serverMessages"] = _schema_of(self.sends, "serialization", components)
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
    content = {JSON: {"schema": reference(model, "serialization")}}
    return {status: {"description": description, "content": content, **present}}


def content_response(description: str, *content_types: str, status: int = 200) -> Responses:
    """Describe a response that is not JSON of a model."""
    return {status: {"description": description, "content": {name: {} for name in content_types}}}


def error_responses(
    model: type[BaseModel], *errors: Mapping[int, str], headers: Mapping[str, Schema] | None = None
) -> Responses:
    """Describe errors of one dialect by status; those worth a retry carry Retry-After."""
    return {
        status: {
            "content": {JSON: {"schema": reference(model, "serialization")}},
            "description": description,
            "headers": {**(headers or {}), **(_RETRY_AFTER if status in _RETRYABLE_STATUSES else {})},
        }
        for some in errors
        for status, description in some.items()
    }


def json_body(model: type[BaseModel], content_type: str = JSON, *, example: Schema | None = None) -> Schema:
    """Describe a request body by its model; its example is made of those of the fields if none is given."""
    schema = reference(model, "validation")
    content = {content_type: {"schema": schema, **({"example": example} if example else {})}}
    return {"requestBody": {"required": True, "content": content}}


def links(parameter: str, pointer: str, *operation_ids: str) -> dict[str, Schema]:
    """Name the operations that take a value of the response, at the JSON pointer, as a parameter."""
    return {
        operation_id: {
            "operationId": operation_id,
            "parameters": {parameter: f"$response.body#{pointer}"},
        }
        for operation_id in operation_ids
    }


def resolve_references(document: Schema) -> None:
    """Put the schemas of all models that a document refers to in its place, and in its components."""
    components = document.setdefault("components", {}).setdefault("schemas", {})
    for node in tuple(objects_in(document)):
        components |= node.pop("$defs", {})
        schema = _schema_at(str(node.get("$ref", "")), components)
        if schema is not None:
            node.clear()
            node |= schema
    document["components"]["schemas"] = dict(sorted(components.items()))


def objects_in(node: Any) -> Iterator[Schema]:
    """Yield every JSON object in a document, outer ones first."""
    if isinstance(node, dict):
        yield node
    for inner in tuple(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from objects_in(inner)


def reference(model: type[BaseModel], mode: JsonSchemaMode) -> Schema:
    """Return an object that ``resolve_references`` replaces by the schema of a model.

    The schema of a model without a name in a module, as ``RootModel[list[str]]``, is made at once.
    """
    if _model_at(model.__module__, model.__qualname__) is model:
        return {"$ref": f"{_REFERENCES[mode]}{model.__module__}:{model.__qualname__}"}
    components: dict[str, Schema] = {}
    schema = _schema_of(model, mode, components)
    return {**schema, "$defs": components} if components else schema


def _model_at(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _schema_at(reference: str, components: dict[str, Schema]) -> Schema | None:
    """Return the schema that a reference stands for; None for a reference of JSON schema."""
    for mode, scheme in _REFERENCES.items():
        if reference.startswith(scheme):
            module, _, name = reference.removeprefix(scheme).partition(":")
            return _schema_of(_model_at(module, name), mode, components)
    return None


def _schema_of(kind: Any, mode: JsonSchemaMode, components: dict[str, Schema]) -> Schema:
    """Return the schema of a type; the models that it refers to by name are added to the components."""
    schemas, definitions = TypeAdapter.json_schemas(
        [("kind", mode, TypeAdapter(kind))], ref_template="#/components/schemas/{model}"
    )
    described, added = dict(schemas["kind", mode]), definitions.get("$defs", {})
    for node in objects_in([described, added]):
        if node.get("default", "") is None:  # says nothing, and need not be of the field's type
            del node["default"]
    components |= added
    return described
