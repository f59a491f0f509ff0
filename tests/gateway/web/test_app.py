"""The HTTP app in process, and the server on a real socket."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request, WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from shared.counted_work import counted_calls
from shared.event_loop import until
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.web.app import Mount, make_app, warm_up_app
from vivavoce.gateway.web.http_server import HttpServer
from vivavoce.tts_engine.errors import Overloaded
from vivavoce.tts_engine.metrics import Metrics


def get(path: str, *, reason: str | None = None, metrics: Metrics | None = None) -> httpx.Response:
    app = make_app(
        unready=lambda: reason, registry=(metrics or Metrics()).registry, access=AccessControl.open_to_all()
    )

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.get(path)

    return asyncio.run(request())


def test_a_server_that_is_not_ready_is_healthy() -> None:
    assert get("/healthz", reason="shutting down").status_code == 200


def test_the_first_request_to_a_warm_app_is_no_more_work_than_the_next() -> None:
    routes = [APIRouter() for _ in range(20)]
    for number, router in enumerate(routes):
        router.add_api_route(f"/{number}", lambda: None, methods=["GET"])
    mounts = [Mount(router, None) for router in routes]
    access = AccessControl.open_to_all()

    async def test() -> None:
        app = make_app(unready=lambda: None, registry=Metrics().registry, access=access, mounts=mounts)
        await warm_up_app(app)
        work = []
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
            for _ in range(3):
                with counted_calls() as calls:
                    await client.get("/metrics")
                work.append(calls[0])
        assert work[0] < 2 * work[-1]

    asyncio.run(test())


def test_a_ready_server_reports_it() -> None:
    assert (get("/readyz").status_code, get("/readyz").json()) == (200, {"status": "ready"})


def test_an_unready_server_reports_the_reason() -> None:
    answer = get("/readyz", reason="full")
    assert (answer.status_code, answer.json()) == (503, {"status": "unready", "reason": "full"})


def test_metrics_are_the_engines_in_prometheus_text_format() -> None:
    metrics = Metrics()
    metrics.refusals.labels("calls").inc(3)
    answer = get("/metrics", metrics=metrics)
    assert 'vivavoce_refusals_total{reason="calls"} 3.0' in answer.text.splitlines()
    assert answer.headers["content-type"].startswith("text/plain; version=")


def test_fastapi_s_pages_which_load_scripts_from_other_hosts_are_disabled() -> None:
    assert {get(path).status_code for path in ("/docs", "/redoc", "/openapi.json")} == {404}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/healthz", 405),
        ("GET", "/full", 503),
        ("GET", "/../etc/passwd", 404),
    ],
)
def test_every_error_has_the_same_shape(method: str, path: str, status: int) -> None:
    router = APIRouter()

    @router.get("/full")
    async def full() -> None:
        raise Overloaded("all lines are busy", reason="calls", retry_after_s=4.2)

    app = make_app(
        unready=lambda: None,
        registry=Metrics().registry,
        access=AccessControl.open_to_all(),
        mounts=[Mount(router, Scope.CALLS)],
    )

    async def request() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
            return await client.request(method, path)

    answer = asyncio.run(request())
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert answer.headers.get("retry-after") == ("5" if status == 503 else None)
    assert answer.headers.get("allow") == ("GET, HEAD" if status == 405 else None)


def test_a_refused_websocket_gets_the_same_shape_and_logs_no_error(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("caller", (Scope.CALLS,), KeyLimits())
    router = APIRouter()

    @router.websocket("/socket")
    async def socket_of(socket: WebSocket, audio: Literal["in", "none"] = "none") -> None:
        """Never called: both handshakes are refused."""

    app = make_app(
        unready=lambda: None,
        registry=Metrics().registry,
        access=AccessControl(keys),
        mounts=[Mount(router, Scope.CALLS)],
    )

    async def refused_handshakes() -> list[tuple[int, str]]:
        found = []
        async with serving(app) as base:
            for query, sent in (("", "no key"), ("?audio=loud", key)):
                with pytest.raises(InvalidStatus) as refused:
                    url = f"ws://{base}/socket{query}"
                    await connect(url, additional_headers={"x-api-key": sent}, proxy=None)
                answer = refused.value.response
                found.append((answer.status_code, json.loads(answer.body or b"")["error"]))
        return found

    (no_key, no_audio) = asyncio.run(refused_handshakes())
    assert (no_key[0], no_key[1][:16]) == (401, "no valid API key")
    assert (no_audio[0], no_audio[1][:12]) == (422, "query.audio:")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_client_that_leaves_during_an_upload_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    router = APIRouter()
    reads: list[str] = []

    @router.post("/upload")
    async def upload(request: Request) -> None:
        reads.append("begun")
        try:
            await request.body()
        finally:
            reads.append("ended")

    app = make_app(
        unready=lambda: None,
        registry=Metrics().registry,
        access=AccessControl.open_to_all(),
        mounts=[Mount(router, None)],
    )

    async def leave() -> None:
        async with serving(app) as base:
            host, port = base.split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
            await until(lambda: reads)
            writer.close()
            await until(lambda: len(reads) == 2)

    asyncio.run(leave())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """Serve the app; yields host:port."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(app, sock)
    task = asyncio.create_task(server.run_until_closed())
    await server.wait_started(task)
    yield f"127.0.0.1:{sock.getsockname()[1]}"
    server.close()
    await task


async def served(app: FastAPI) -> tuple[httpx.Response, bool]:
    before = signal.getsignal(signal.SIGTERM)
    async with serving(app) as base, httpx.AsyncClient(trust_env=False) as client:
        is_kept = signal.getsignal(signal.SIGTERM) is before
        return await client.get(f"http://{base}/healthz"), is_kept


def test_the_server_serves_its_socket_and_keeps_signal_handlers() -> None:
    answer, keeps_handlers = asyncio.run(
        served(
            make_app(unready=lambda: None, registry=Metrics().registry, access=AccessControl.open_to_all())
        )
    )
    assert answer.json() == {"status": "ok"}
    assert keeps_handlers
