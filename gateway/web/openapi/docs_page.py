"""The OpenAPI document as one HTML page, to read and to try; it loads nothing from anywhere.

Its script and its style sheet are in the page. Operations are grouped by tag, in the order of the document.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, Final

Node = Mapping[str, Any]  # a JSON object of the document

_LIMITS: Final = {"minimum": "from", "maximum": "to", "maxLength": "characters up to"}
_MULTIPART: Final = "multipart/form-data"
_KEY_FIELD: Final = (
    "<p class=key><label>API key, for the requests of this page; a server without keys needs none"
    "<input id=key type=password autocomplete=off></label>"
)


def html_page(document: Node) -> str:
    """Return the page of an OpenAPI document."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    names = [tag["name"] for tag in document["tags"]]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        "<meta name=viewport content='width=device-width'>"
        f"<style>{_file('docs_page.css')}</style>",
        "<nav aria-label=APIs>",
        *(f"<a href=#{_anchor(name)}>{escape(name)}</a>" for name in names),
        f"</nav><main><h1>{title}</h1><p>{escape(info['description'])} "
        "<a href=/openapi.json>openapi.json</a>",
        _KEY_FIELD,
    ]
    for name in names:
        parts.append(f"<h2 id={_anchor(name)}>{escape(name)}</h2>")
        parts += _section(document, name)
    return "\n".join([*parts, f"</main><script>{_file('docs_page.js')}</script>"]) + "\n"


@cache
def page_headers() -> Mapping[str, str]:
    """Return the headers of the page: a browser runs its own script only, and sends to this server only."""
    digest = b64encode(sha256(_file("docs_page.js").encode()).digest()).decode()
    return {
        "content-security-policy": (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
            "connect-src 'self'; media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


@cache
def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _anchor(tag: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", tag.lower())


def _section(document: Node, tag: str) -> Iterator[str]:
    for path, websocket in document.get("x-websockets", {}).items():
        if tag in websocket["tags"]:
            yield from _websocket(document, path, websocket)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag in operation["tags"]:
                yield from _operation(document, method.upper(), path, operation)


def _operation(document: Node, method: str, path: str, operation: Node) -> Iterator[str]:
    yield from _heading(f"{method} {path}", operation["summary"])
    yield f"<p>{escape(operation.get('description', ''))}"
    parameters = operation.get("parameters", ())
    yield from _rows((one["name"], _describe_parameter(one)) for one in parameters)
    for content_type, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(document, content["schema"])
        yield f"<p>Body: {escape(content_type)}. {escape(schema.get('description', ''))}</p>"
        yield from _rows(_fields(document, schema))
    yield "<p>Answers:"
    yield from _rows((status, answer["description"]) for status, answer in operation["responses"].items())
    yield f"<pre>{escape(curl_example(method, path, operation))}</pre>"
    yield from _form(document, method, path, operation)
    yield "</details>"


def curl_example(method: str, path: str, operation: Node) -> str:
    """Return a command that sends the example of an operation; $VIVAVOCE is the server, $KEY the key."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
    words = [f"curl -X {method} $VIVAVOCE{path}"]
    if operation["security"]:
        words.append('-H "Authorization: Bearer $KEY"')
    content_type, content = _body_of(operation)
    if content_type == _MULTIPART:
        words += [
            f"-F {_quoted(f'{name}={_form_value(value)}')}" for name, value in content["example"].items()
        ]
    elif content_type:
        words += [f"-H 'Content-Type: {content_type}'", f"-d {_quoted(_body_text(content['example']))}"]
    return " \\\n  ".join(words)


def _body_of(operation: Node) -> tuple[str, Node]:
    """Return the first content type of an operation's body and its description; "" without a body."""
    contents: Node = operation.get("requestBody", {}).get("content", {})
    content_type, content = next(iter(contents.items()), ("", {}))
    return content_type, {"example": {}, **content}


def _body_text(example: Any, indent: int | None = None) -> str:
    return example if isinstance(example, str) else json.dumps(example, ensure_ascii=False, indent=indent)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _form_value(value: object) -> str:
    return f"@{value}" if str(value).endswith(".wav") else str(value)


def _form(document: Node, method: str, path: str, operation: Node) -> Iterator[str]:
    """Yield the form that sends the operation; the script reads it."""
    content_type, content = _body_of(operation)
    yield f'<form data-method={method} data-path="{escape(path)}" data-content="{escape(content_type)}">'
    for parameter in operation.get("parameters", ()):
        name = escape(parameter["name"])
        yield f'<label>{name} <input name="{name}" data-in={parameter["in"]}></label>'
    if content_type == _MULTIPART:
        for name, field in _resolved(document, content["schema"])["properties"].items():
            is_file = field.get("format") == "binary"
            value = "" if is_file else escape(str(content["example"].get(name, "")))
            kind, label = "file" if is_file else "text", escape(name)
            yield f'<label>{label} <input name="{label}" data-in=form type={kind} value="{value}"></label>'
    elif content_type:
        body = _body_text(content["example"], indent=1)
        rows = min(12, body.count("\n") + 1)
        yield f"<label>Body <textarea name=body data-in=body rows={rows}>{escape(body)}</textarea></label>"
    yield "<button>Send</button><output></output></form>"


def _describe_parameter(parameter: Node) -> str:
    return f"in the {parameter['in']}. {parameter.get('description', '')}"


def _websocket(document: Node, path: str, websocket: Node) -> Iterator[str]:
    yield from _heading(f"WebSocket {path}", websocket["summary"])
    for side, title in (("clientMessages", "Client"), ("serverMessages", "Server")):
        for schema in _alternatives(document, websocket.get(side, {})):
            yield f"<p>{title}: {escape(schema.get('description', ''))}</p>"
            yield from _rows(_fields(document, schema))
    yield from _socket_form(path, websocket["example"])
    yield "</details>"


def _socket_form(path: str, example: Node) -> Iterator[str]:
    """Yield the form that opens the socket and sends the messages, one a line; the script reads it."""
    address = escape(f"{path}?{example['query']}" if example["query"] else path)
    messages = escape("\n".join(map(_body_text, example["messages"])))
    yield f'<form data-socket="{escape(path)}"><label>Path <input name=address value="{address}"></label>'
    yield f"<label>Messages, one a line <textarea name=messages rows=4>{messages}</textarea></label>"
    yield "<button>Send</button><output></output></form>"


def _heading(name: str, text: str) -> Iterator[str]:
    yield f"<details><summary><code>{escape(name)}</code>{escape(text)}</summary>"


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
