"""The OpenAPI document as one plain HTML page that loads nothing: no script, no style sheet, no font."""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

Node = Mapping[str, Any]  # a JSON object of the document

_STYLE = (
    "body{font:1rem/1.5 system-ui;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "td{padding-right:1rem;vertical-align:top}code{font-size:1.05em}"
)
_LIMITS = {"minimum": "from", "maximum": "to", "maxLength": "characters up to"}


def html_page(document: Node) -> str:
    """Return the page of an OpenAPI document."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>",
        f"<h1>{title}</h1><p>{escape(info['description'])} <a href=/openapi.json>openapi.json</a></p>",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += _operation(document, f"{method.upper()} {path}", operation)
    for path, websocket in document.get("x-websockets", {}).items():
        parts += _websocket(document, path, websocket)
    return "\n".join(parts) + "\n"


def _operation(document: Node, name: str, operation: Node) -> Iterator[str]:
    yield from _heading(name, f"{operation['summary']} {operation.get('description', '')}")
    for content_type, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(document, content["schema"])
        yield f"<p>Body: {escape(content_type)}. {escape(schema.get('description', ''))}</p>"
        yield from _rows(_fields(document, schema))
    yield from _rows((status, answer["description"]) for status, answer in operation["responses"].items())


def _websocket(document: Node, path: str, websocket: Node) -> Iterator[str]:
    yield from _heading(f"WebSocket {path}", websocket["summary"])
    for side, title in (("clientMessages", "Client"), ("serverMessages", "Server")):
        for schema in _alternatives(document, websocket.get(side, {})):
            yield f"<p>{title}: {escape(schema.get('description', ''))}</p>"
            yield from _rows(_fields(document, schema))


def _heading(name: str, text: str) -> Iterator[str]:
    yield f"<h2><code>{escape(name)}</code></h2><p>{escape(text)}</p>"


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "<table>"
    for name, text in rows:
        yield f"<tr><td><code>{escape(name)}</code><td>{escape(text)}"
    yield "</table>"


def _resolved(document: Node, schema: Node) -> Node:
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].rpartition("/")[2]
    found: Node = document["components"]["schemas"][name]
    return found


def _alternatives(document: Node, schema: Node) -> list[Node]:
    """Return the models that a schema allows: those of a union, or the one that it is."""
    schema = _resolved(document, schema)
    if not schema:
        return []
    union = schema.get("oneOf") or schema.get("anyOf")
    return [schema] if not union else [one for each in union for one in _alternatives(document, each)]


def _fields(document: Node, schema: Node, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the names and descriptions of an object's fields, "outer.inner" for those of objects in it."""
    for name, field in schema.get("properties", {}).items():
        models = _alternatives(document, field)
        # A field that may also be a plain value is one row; only objects are unfolded.
        if not all("properties" in model for model in models):
            yield f"{prefix}{name}", _describe_field(document, field)
            continue
        for model in models:
            yield from _fields(document, model, f"{prefix}{name}.")


def _describe_field(document: Node, field: Node) -> str:
    """Return what a field may hold: its types or values, limits, default and description."""
    models = _alternatives(document, field)
    allowed = [name for model in models for name in _allowed_values(model) if name != "null"]
    limits = [f"{word} {model[key]}" for model in models for key, word in _LIMITS.items() if key in model]
    has_default = "const" not in field and field.get("default") not in (None, "")
    default = [f"default {field['default']}"] if has_default else []
    words = ", ".join([" | ".join(allowed), *limits, *default])
    return f"{words}. {field.get('description', '')}".strip()


def _allowed_values(schema: Node) -> list[str]:
    if "enum" in schema:
        return [str(value) for value in schema["enum"] if value is not None]
    kind = schema["const"] if "const" in schema else schema.get("type", "any")
    return [str(one) for one in (kind if isinstance(kind, list) else [kind])]
