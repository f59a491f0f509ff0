"""What this server takes and answers over HTTP, told: ``/openapi.json``, and ``/docs`` to read.

Most routes read their requests by hand, so the document is written by hand too, in ``openapi_paths`` and
``openapi_schemas``; a test holds it against the routes, and schemathesis against what is answered. The page
is plain HTML, with nothing from elsewhere.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, JSONResponse

from .... import __version__
from .paths import PATHS, responses
from .schemas import schemas

_DESCRIPTION: Final = (
    "Speech over HTTP, as clients of OpenAI and of DashScope ask for it, and calls of phones and browsers. "
    "Keys go into 'Authorization: Bearer KEY' or 'X-API-Key: KEY'; a server without keys asks for none. "
    "Beside it there are WebSockets: /v1/audio/speech/stream, whose session.config has the fields of "
    "CreateSpeechRequest but for input and stream_format, /api-ws/v1/inference and /v1/calls/{id}/socket."
)


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "vivavoce", "version": __version__, "description": _DESCRIPTION},
        "security": [{}, {"bearer": []}, {"header": []}],
        "paths": PATHS,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
            "responses": responses(),
            "schemas": schemas(),
        },
    }


class OpenApiRoutes:
    """The document and its page; nobody needs a key for them."""

    def __init__(self) -> None:
        self.document = openapi_document()
        self._page = html_page(self.document)

    def routes(self) -> APIRouter:
        """Both of them."""
        router = APIRouter()

        @router.get("/openapi.json")
        async def openapi() -> JSONResponse:
            return JSONResponse(self.document)

        @router.get("/docs")
        async def docs() -> HTMLResponse:
            return HTMLResponse(self._page)

        return router


def html_page(document: Mapping[str, Any]) -> str:
    """The document as HTML."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        "<style>body{font:1rem/1.5 system-ui;max-width:50rem;margin:2rem auto;padding:0 1rem}"
        "td{padding-right:1rem;vertical-align:top}code{font-size:1.05em}</style>",
        f"<h1>{title}</h1><p>{escape(info['description'])} <a href=/openapi.json>openapi.json</a></p>",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                parts += _operation(document, f"{method.upper()} {path}", operation)
    return "\n".join(parts) + "\n"


def _operation(document: Mapping[str, Any], name: str, operation: Mapping[str, Any]) -> Iterator[str]:
    about = f"{operation['summary']} {operation.get('description', '')}"
    yield f"<h2><code>{escape(name)}</code></h2><p>{escape(about)}</p>"
    for content_type, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(document, content["schema"])
        yield f"<p>Body: {escape(content_type)}. {escape(schema.get('description', ''))}</p>"
        yield from _rows((field, _describe_field(about)) for field, about in _fields(schema))
    yield from _rows((status, answer["description"]) for status, answer in operation["responses"].items())


def _rows(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield "<table>"
    for name, about in rows:
        yield f"<tr><td><code>{escape(name)}</code><td>{escape(about)}"
    yield "</table>"


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    resolved: Any = document
    for step in schema["$ref"].removeprefix("#/").split("/"):
        resolved = resolved[step]
    return dict(resolved)


def _fields(schema: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The fields of an object and of the objects in it, "outer.inner"."""
    for name, about in schema.get("properties", {}).items():
        either = about.get("anyOf", [about])
        if not all("properties" in one for one in either):
            yield f"{within}{name}", about
            continue
        for one in either:
            yield from _fields(one, f"{within}{name}.")


def _describe_field(schema: Mapping[str, Any]) -> str:
    """What a field may hold, in words."""
    allowed = schema.get("enum") or [schema.get("const") or schema.get("type", "string")]
    names = [str(one) for value in allowed for one in (value if isinstance(value, list) else [value])]
    limits = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "from"), ("maximum", "to"), ("maxLength", "characters up to"))
        if key in schema
    ]
    default = [f"default {schema['default']}"] if "default" in schema else []
    words = ", ".join([" | ".join(name for name in names if name not in ("null", "None")), *limits, *default])
    return f"{words}. {schema.get('description', '')}".strip()
