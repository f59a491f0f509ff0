"""The HTTP routes, asked in process, and the server around them on a real socket."""

import asyncio
import signal
import socket

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from vivavoce.gateway.access.access import Access
from vivavoce.gateway.access.keys import Scope
from vivavoce.gateway.http import HttpServer, Mount, make_app
from vivavoce.tts_engine.errors import Overloaded
from vivavoce.tts_engine.metrics import Metrics


def get(path: str, *, reason: str | None = None, metrics: Metrics | None = None) -> httpx.Response:
    app = make_app(
        unready=lambda: reason, registry=(metrics or Metrics()).registry, access=Access.open_house()
    )

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_a_process_that_answers_is_healthy_also_when_it_is_not_ready() -> None:
    assert get("/healthz", reason="shutting down").status_code == 200


def test_ready_means_that_a_call_may_come() -> None:
    assert (get("/readyz").status_code, get("/readyz").json()) == (200, {"status": "ready"})


def test_unready_says_why() -> None:
    answer = get("/readyz", reason="full")
    assert (answer.status_code, answer.json()) == (503, {"status": "unready", "reason": "full"})


def test_metrics_are_those_of_the_engine_in_the_text_format() -> None:
    metrics = Metrics()
    metrics.refusals.labels("calls").inc(3)
    answer = get("/metrics", metrics=metrics)
    assert 'vivavoce_refusals_total{reason="calls"} 3.0' in answer.text.splitlines()
    assert answer.headers["content-type"].startswith("text/plain; version=")


def test_no_pages_that_load_scripts_from_elsewhere() -> None:
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
def test_whatever_is_refused_is_refused_in_one_shape(method: str, path: str, status: int) -> None:
    router = APIRouter()

    @router.get("/full")
    async def full() -> None:
        raise Overloaded("all lines are busy", reason="calls", retry_after_s=4.2)

    app = make_app(
        unready=lambda: None,
        registry=Metrics().registry,
        access=Access.open_house(),
        mounts=[Mount(router, Scope.CALLS)],
    )

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
            return await client.request(method, path)

    answer = asyncio.run(ask())
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert answer.headers.get("retry-after") == ("5" if status == 503 else None)
    assert answer.headers.get("allow") == ("GET" if status == 405 else None)


async def served(app: FastAPI) -> tuple[httpx.Response, bool]:
    sock = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/healthz"
    before = signal.getsignal(signal.SIGTERM)
    server = HttpServer(app, sock)
    task = asyncio.create_task(server.run_until_closed())
    await server.wait_started(task)
    kept = signal.getsignal(signal.SIGTERM) is before
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(url)
    server.close()
    await task
    return answer, kept


def test_the_server_answers_on_its_socket_and_leaves_signals_alone() -> None:
    answer, signals_kept = asyncio.run(
        served(make_app(unready=lambda: None, registry=Metrics().registry, access=Access.open_house()))
    )
    assert answer.json() == {"status": "ok"}
    assert signals_kept
