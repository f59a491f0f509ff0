"""The HTTP routes, asked in process, and the server around them on a real socket."""

import asyncio
import signal
import socket

import httpx
from fastapi import FastAPI
from vivavoce.gateway.access.access import Access
from vivavoce.gateway.http import HttpServer, make_app
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
