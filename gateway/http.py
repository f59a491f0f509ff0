"""The HTTP side: is the process alive, is it ready for calls, and its numbers for Prometheus.

Runs inside the gateway's own event loop; signals are the process's affair, not this server's.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from .. import __version__
from ..tts_engine.errors import BadRequest
from .call_registry import CallHeld, CallUnknown

_OPEN_CONNECTIONS_S = 2  # that a slow reader of /metrics may hold up the end


def make_app(
    *, unready: Callable[[], str | None], registry: CollectorRegistry, routers: Sequence[APIRouter] = ()
) -> FastAPI:
    """The routes. ``unready`` answers why no call should be sent here now, or None."""
    app = FastAPI(title="vivavoce", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(BadRequest, _answer_bad_request)
    for router in routers:
        app.include_router(router)

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        reason = unready()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "unready", "reason": reason}, status_code=503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


_STATUS: Mapping[type[Exception], int] = {CallUnknown: 404, CallHeld: 409}


async def _answer_bad_request(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=_STATUS.get(type(error), 400))


class HttpServer(uvicorn.Server):
    """An app on a bound socket, inside the running loop; ``run`` is a task that the gateway owns."""

    def __init__(self, app: FastAPI, sock: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=_OPEN_CONNECTIONS_S,
            )
        )
        self._sock = sock

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signal handlers alone."""
        yield

    async def run_until_closed(self) -> None:
        """Serve until ``close`` is called."""
        await self.serve([self._sock])

    async def wait_started(self, task: "asyncio.Task[None]") -> None:
        """Wait until requests are answered; raises what ``task``, which runs this server, failed with."""
        while not self.started:
            if task.done():
                await task
                raise RuntimeError("the HTTP server ended before it began")
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Answer what is under way, then end."""
        self.should_exit = True
