"""One HTTP server for everything: whose routes it has, who is let in to them, and how the house refuses.

    request -> cookie of the page, CORS -> a mount's scope -> its routes -> an answer, or {"error": sentence}

An API that has words of its own for a refusal asks for keys and refuses itself (``Mount.scope`` None); all
other routes raise, and are answered here. Here, too, are the operator's routes: alive, ready, metrics. The
server runs in the gateway's own event loop; signals are the process's affair, not this server's.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import WebSocketRequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.requests import HTTPConnection
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from ... import __version__
from ...tts_engine.errors import BadRequest, Overloaded
from ..access.access_control import AccessControl
from ..access.dependencies import PageCookieMiddleware, require_scope
from ..access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ..access.keys import Scope
from ..calls.registry import CallAlreadyAttached, CallUnknown


@dataclass(frozen=True, slots=True)
class Mount:
    """Routes and the scope that each asks for; None where they ask themselves, in words of their own."""

    router: APIRouter
    scope: Scope | None


def make_app(
    *,
    unready: Callable[[], str | None],
    registry: CollectorRegistry,
    access: AccessControl,
    mounts: Sequence[Mount] = (),
) -> FastAPI:
    """The app. ``unready`` answers why no call should be sent here now, or None."""
    app = FastAPI(title="vivavoce", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(BadRequest, _handle_error)
    app.add_exception_handler(Overloaded, _handle_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(WebSocketRequestValidationError, _handle_invalid_query)
    _allow_browser_origins(app, access)
    for mount in mounts:
        keys = [] if mount.scope is None else [Depends(require_scope(access, mount.scope))]
        app.include_router(mount.router, dependencies=keys)

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        reason = unready()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "unready", "reason": reason}, status_code=503)

    @app.get("/metrics", dependencies=[Depends(require_scope(access, Scope.ADMIN))])
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def _allow_browser_origins(app: FastAPI, access: AccessControl) -> None:
    app.add_middleware(PageCookieMiddleware, access=access)
    if access.origins.allowed:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(access.origins.allowed),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )


_STATUS_BY_ERROR: Mapping[type[Exception], int] = {
    KeyRefused: 401,
    ScopeMissing: 403,
    OriginRefused: 403,
    CallUnknown: 404,
    CallAlreadyAttached: 409,
    RateLimited: 429,
    Overloaded: 503,
}


class _ErrorResponse(JSONResponse):
    """The answer to a request or, before it is accepted, to a WebSocket."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__({"error": message}, status, headers)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)
        # A WebSocket's server is done with it by then; returning before is an error in its log.
        await asyncio.sleep(0)


async def _handle_error(connection: HTTPConnection, error: Exception) -> JSONResponse:
    response = _ErrorResponse(str(error), _STATUS_BY_ERROR.get(type(error), 400))
    if isinstance(error, KeyRefused):
        # A browser that opens a page asks its user, a program does not.
        accepts_html = "text/html" in connection.headers.get("accept", "")
        response.headers["www-authenticate"] = 'Basic realm="vivavoce"' if accepts_html else "Bearer"
    if isinstance(error, RateLimited | Overloaded):
        response.headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return response


async def _handle_http_exception(connection: HTTPConnection, error: Exception) -> JSONResponse:
    """What is wrong with a request as such: a path, a method, a body that is no JSON."""
    assert isinstance(error, HTTPException)
    return _ErrorResponse(error.detail, error.status_code, error.headers)


async def _handle_invalid_query(connection: HTTPConnection, error: Exception) -> JSONResponse:
    assert isinstance(error, WebSocketRequestValidationError)
    first = error.errors()[0]
    return _ErrorResponse(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 422)
