"""The FastAPI app: mounts of routes, access control, CORS, errors, and the operator's routes.

    request -> CORS -> scope of its mount -> route -> response, or {"error": message}

The speech APIs have errors of their own, so they check keys themselves (``Mount.scope`` is None). Other
routes raise, and the handlers here answer. ``http_server`` runs the app.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import WebSocketRequestValidationError
from fastapi.requests import HTTPConnection
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send
from starlette.types import Scope as AsgiScope

from ... import __version__
from ...tts_engine.errors import BadRequest, Overloaded
from ..access.access_control import AccessControl
from ..access.cross_origin import CrossOriginMiddleware
from ..access.dependencies import GrantMiddleware, require_scope
from ..access.errors import (
    DestinationRefused,
    GrantEnded,
    KeyRefused,
    OriginRefused,
    RateLimited,
    ScopeMissing,
    SignatureRefused,
)
from ..access.keys import Scope
from .connection_limits import IdentityMiddleware
from .errors import ErrorBody, ResourceConflict, ResourceNotFound, Status, native_errors
from .openapi.operations import content_response, json_response, operation
from .unmatched import ErrorFormat, HeadMiddleware, UnmatchedPaths, plain_path

# The first class that matches counts; any other BadRequest is 400.
_STATUS_BY_ERROR: Final[Mapping[type[Exception], int]] = {
    KeyRefused: 401,
    ScopeMissing: 403,
    DestinationRefused: 403,
    OriginRefused: 403,
    SignatureRefused: 403,
    ResourceNotFound: 404,
    ResourceConflict: 409,
    RateLimited: 429,
    Overloaded: 503,
}
# Headings of the OpenAPI document.
CALLS_TAG: Final = "Calls"
BROWSER_TAG: Final = "Browser calls"
OPERATION_TAG: Final = "Operation"

_CLIENT_CLOSED_REQUEST: Final = 499  # as nginx has it; the client does not see it

_HEALTH: Final = operation("health", "Whether the process is alive.", json_response(Status), public=True)
_HEALTH_ALIAS: Final = operation("healthAlias", "The same as /healthz.", json_response(Status), public=True)
_READINESS: Final = operation(
    "readiness",
    "Whether the server accepts calls.",
    json_response(Status),
    json_response(Status, 503, "Not now."),
    public=True,
)
_METRICS: Final = operation(
    "metrics",
    "Metrics for Prometheus.",
    content_response("Prometheus text format.", "text/plain"),
    native_errors(),
    description="Needs the scope 'admin'.",
)


@dataclass(frozen=True, slots=True)
class Mount:
    """Routes and the scope that a key needs for them."""

    router: APIRouter
    scope: Scope | None  # None for routes that check keys themselves
    error_formats: Sequence[ErrorFormat] = ()  # for paths near its routes that are no routes
    tag: str = OPERATION_TAG  # of its routes in the OpenAPI document


def make_app(
    *,
    unready: Callable[[], str | None],
    registry: CollectorRegistry,
    access: AccessControl,
    mounts: Sequence[Mount] = (),
    impaired: Callable[[], str | None] = lambda: None,
) -> FastAPI:
    """Return the app.

    unready: returns why the server accepts no calls now, None if it does. registry: what /metrics shows.
    impaired: returns which voices cannot speak now although calls are accepted, None if all can.
    """
    # FastAPI's own pages load scripts from other hosts; ``openapi.document`` has others.
    app = FastAPI(title="vivavoce", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes, app.router.default = False, UnmatchedPaths(app.router)  # no redirects
    app.state.error_formats = [one for mount in mounts for one in mount.error_formats]
    app.add_exception_handler(BadRequest, _handle_error)
    app.add_exception_handler(Overloaded, _handle_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(WebSocketRequestValidationError, _handle_invalid_query)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)
    app.add_middleware(GrantMiddleware, refuse=_refuse_ended_grant)
    app.add_middleware(CrossOriginMiddleware, origins=access.origins)
    app.add_middleware(HeadMiddleware)
    app.add_middleware(IdentityMiddleware, access=access)
    for mount in mounts:
        _add_routes(app, mount, access)

    @app.get("/health", tags=[OPERATION_TAG], **_HEALTH_ALIAS)
    @app.get("/healthz", tags=[OPERATION_TAG], **_HEALTH)
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz", tags=[OPERATION_TAG], **_READINESS)
    async def readyz() -> JSONResponse:
        reason = unready()
        if reason is not None:
            return JSONResponse({"status": "unready", "reason": reason}, status_code=503)
        return JSONResponse(Status(status="ready", reason=impaired()).model_dump(exclude_none=True))

    @app.get(
        "/metrics",
        tags=[OPERATION_TAG],
        dependencies=[Depends(require_scope(access, Scope.ADMIN))],
        **_METRICS,
    )
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def _add_routes(app: FastAPI, mount: Mount, access: AccessControl) -> None:
    if mount.scope is not None:
        needs_scope = Depends(require_scope(access, mount.scope))
        app.include_router(mount.router, dependencies=[needs_scope], tags=[mount.tag])
        return
    # ``include_router`` would build each route again, at the first request.
    for route in mount.router.routes:
        if isinstance(route, APIRoute):
            route.tags = [mount.tag, *route.tags]
        app.router.routes.append(route)


async def warm_up_app(app: FastAPI) -> None:
    """Answer a request of our own: FastAPI builds its routes at the first one, for a tenth of a second."""

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        return None

    path = "/healthz"
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app(
        {**scope, "root_path": "", "scheme": "http", "http_version": "1.1", "headers": []}, receive, send
    )


class _ErrorResponse(JSONResponse):
    """The answer to a request or, before it is accepted, to a WebSocket."""

    def __init__(self, body: BaseModel, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body.model_dump(), status, headers)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)
        # uvicorn ends a refused WebSocket in its next step; returning before is logged as an error.
        await asyncio.sleep(0)


async def _handle_error(connection: HTTPConnection, error: Exception) -> JSONResponse:
    response = _ErrorResponse(ErrorBody(error=str(error)), _status_of(error))
    if isinstance(error, KeyRefused):
        # A browser that opens a page asks its user for a password, which is the key.
        accepts_html = "text/html" in connection.headers.get("accept", "")
        response.headers["www-authenticate"] = 'Basic realm="vivavoce"' if accepts_html else "Bearer"
    if isinstance(error, RateLimited | Overloaded):
        response.headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return response


def _status_of(error: Exception) -> int:
    return next((status for kind, status in _STATUS_BY_ERROR.items() if isinstance(error, kind)), 400)


async def _handle_http_exception(connection: HTTPConnection, error: Exception) -> JSONResponse:
    """Answer what the framework refuses: a path, a method, a body that is not JSON."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if headers.get("Allow") == "GET":
        headers["Allow"] = "GET, HEAD"
    nearest = _error_format(connection)
    if nearest is None:
        return _ErrorResponse(ErrorBody(error=error.detail), error.status_code, headers)
    message = f"{error.detail}: {connection.scope.get('method', 'WebSocket')} {connection.scope['path']}"
    return _ErrorResponse(nearest.make_body(error.status_code, message), error.status_code, headers)


def _refuse_ended_grant(connection: HTTPConnection, error: GrantEnded) -> JSONResponse:
    """Answer a request whose key was valid when it came."""
    nearest, status = _error_format(connection), _status_of(error)
    body = ErrorBody(error=str(error)) if nearest is None else nearest.make_body(status, str(error))
    return _ErrorResponse(body, status)


def _error_format(connection: HTTPConnection) -> ErrorFormat | None:
    """Return the error format of the API that a path belongs to."""
    path = plain_path(connection.scope["path"])
    formats = [one for one in connection.app.state.error_formats if one.covers(path)]
    return max(formats, key=lambda one: len(one.prefix), default=None)


async def _handle_invalid_query(connection: HTTPConnection, error: Exception) -> JSONResponse:
    assert isinstance(error, WebSocketRequestValidationError)
    first = error.errors()[0]
    return _ErrorResponse(ErrorBody(error=f"{'.'.join(map(str, first['loc']))}: {first['msg']}"), 422)


async def _handle_disconnect(connection: HTTPConnection, error: Exception) -> Response:
    """End a request whose client left while it sent the body; that is no fault of the server."""
    return Response(status_code=_CLIENT_CLOSED_REQUEST)
