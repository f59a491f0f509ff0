"""Examples of request bodies, made of the examples of their fields.

An object's example has its required fields, and the optional ones that have an example of their own. A
required field needs ``examples``, a default or a fixed value.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

Schema = Mapping[str, Any]

_FILE: Final = "recording.wav"  # stands for the content of a file


class MissingExample(LookupError):
    """A required field has no example."""


def add_examples(document: dict[str, Any]) -> None:
    """Give each request body of an OpenAPI document an example, and each parameter of a path."""
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                with suppress(MissingExample):  # of a dialect of another package
                    content.setdefault("example", example_of(content["schema"], schemas, path))
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter.setdefault("example", parameter["name"].upper())


def example_of(schema: Schema, schemas: Mapping[str, Schema], place: str) -> Any:
    """Return an example of a schema; raises MissingExample with the place of the field that has none."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas, place)
    if "const" in schema:
        return schema["const"]
    union = schema.get("oneOf") or schema.get("anyOf")
    if union:
        return example_of(union[0], schemas, place)
    if "properties" in schema:
        return _object_example(schema, schemas, place)
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("format") == "binary":
        return _FILE
    if schema.get("type") == "array":
        return [example_of(schema["items"], schemas, place)]
    raise MissingExample(f"{place} has no example")


def _object_example(schema: Schema, schemas: Mapping[str, Schema], place: str) -> dict[str, Any]:
    required = schema.get("required", ())
    return {
        name: example_of(field, schemas, f"{place}.{name}")
        for name, field in schema["properties"].items()
        if name in required or "examples" in field
    }
