"""The OpenAPI document, generated from the app's routes, and its routes ``/openapi.json`` and ``/docs``.

    app.routes, each with ``operation(...)`` -> FastAPI -> + the schemas of the models -> document

WebSockets are under ``x-websockets``, as OpenAPI has no place for them.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.routing import BaseRoute

from .... import __version__
from .docs_page import html_page, page_headers
from .examples import add_examples
from .operations import JSON, WebSocketOperation, content_response, operation, resolve_references

_DESCRIPTION: Final = (
    "Speech over HTTP and WebSockets for clients of OpenAI and of DashScope; calls from phones and browsers. "
    "Send the API key as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'; a server without keys needs none."
)
_SECURITY_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_FIRST_TAGS: Final = ("vivavoce stream", "Calls", "Browser calls")
_LAST_TAGS: Final = ("Carriers", "Operation")
# FastAPI's error for invalid parameters; every parameter here is a string of a path, which is never invalid.
_UNUSED_SCHEMAS: Final = ("HTTPValidationError", "ValidationError")


def openapi_document(
    routes: Sequence[BaseRoute], websockets: Sequence[WebSocketOperation] = ()
) -> dict[str, Any]:
    """Return the document of an app's routes."""
    document = get_openapi(title="vivavoce", version=__version__, description=_DESCRIPTION, routes=routes)
    for described in _operations(document):
        described.setdefault("tags", ["Other"])
        # {}: no key is needed on a server without keys.
        described.setdefault("security", [{}, *({name: []} for name in _SECURITY_SCHEMES)])
    document["tags"] = [{"name": name} for name in _ordered_tags(document, websockets)]
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    document["x-websockets"] = {websocket.path: websocket.describe(schemas) for websocket in websockets}
    components["securitySchemes"] = _SECURITY_SCHEMES
    _remove_fastapi_errors(document)
    resolve_references(document)
    add_examples(document)
    return document


class OpenApiRoutes:
    """The document and the page that shows it; no key is needed for them."""

    def __init__(self, websockets: Sequence[WebSocketOperation] = ()) -> None:
        self._websockets = websockets
        self._document: dict[str, Any] | None = (
            None  # built at the first request, when all routes are mounted
        )

    def routes(self) -> APIRouter:
        """Return both routes."""
        router = APIRouter()

        @router.get(
            "/openapi.json",
            **operation("document", "This document.", content_response("OpenAPI 3.1.", JSON), public=True),
        )
        async def openapi(request: Request) -> JSONResponse:
            return JSONResponse(await self._document_of(request))

        @router.get(
            "/docs",
            **operation(
                "docs",
                "This document, to read and to try.",
                content_response("HTML", "text/html"),
                public=True,
            ),
        )
        async def docs(request: Request) -> HTMLResponse:
            return HTMLResponse(html_page(await self._document_of(request)), headers=page_headers())

        return router

    async def _document_of(self, request: Request) -> dict[str, Any]:
        if self._document is None:
            # On a thread: it takes tens of milliseconds, which calls cannot wait.
            self._document = await asyncio.to_thread(openapi_document, request.app.routes, self._websockets)
        return self._document


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (described for path in document["paths"].values() for described in path.values())


def _ordered_tags(document: dict[str, Any], websockets: Sequence[WebSocketOperation]) -> list[str]:
    """Return the tags: those of this server first, then those of other APIs, then the operator's."""
    found = [tag for described in _operations(document) for tag in described["tags"]]
    others = dict.fromkeys([*(websocket.tag for websocket in websockets), *found])
    ordered = dict.fromkeys([*_FIRST_TAGS, *others])
    return [tag for tag in ordered if tag in others and tag not in _LAST_TAGS] + [
        tag for tag in _LAST_TAGS if tag in others
    ]


def _remove_fastapi_errors(document: dict[str, Any]) -> None:
    for described in _operations(document):
        if "HTTPValidationError" in str(described["responses"].get("422", "")):
            del described["responses"]["422"]
    for name in _UNUSED_SCHEMAS:
        document["components"].get("schemas", {}).pop(name, None)
