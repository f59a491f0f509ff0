"""Access control on real routes: HTTP, WebSockets and the cookie of the page."""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path

import pytest
from fastapi import APIRouter, WebSocket
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse

from vivavoce.gateway.access.access_control import PAGE_COOKIE_NAME, AccessControl, Grant
from vivavoce.gateway.access.errors import RateLimited
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.access.origins import Origins
from vivavoce.gateway.calls.ways_in.browser.routes import page_routes
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.tts_engine.metrics import Metrics

PAGE = {"accept": "text/html,application/xhtml+xml"}


def routes() -> APIRouter:
    router = APIRouter()

    @router.get("/")
    async def page() -> str:
        return "page"

    @router.get("/busy")
    async def busy() -> str:
        raise RateLimited("too much", 1.2)

    @router.websocket("/socket")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    return router


def client(access: AccessControl) -> TestClient:
    app = make_app(
        unready=lambda: None,
        registry=Metrics().registry,
        access=access,
        mounts=[Mount(routes(), Scope.CALLS), Mount(page_routes(access), None)],
    )
    return TestClient(app, base_url="http://127.0.0.1:8080")


@pytest.fixture
def keys(tmp_path: Path) -> KeysFile:
    return KeysFile(tmp_path / "keys.json")


def bearer(keys: KeysFile, *scopes: Scope) -> dict[str, str]:
    return {"authorization": "Bearer " + keys.add("test", scopes, KeyLimits())}


@pytest.mark.parametrize("path", ["/", "/metrics", "/busy"])
def test_every_route_but_health_requires_a_key(keys: KeysFile, path: str) -> None:
    answer = client(AccessControl(keys)).get(path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "no valid API key" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_health_routes_need_no_key(keys: KeysFile, path: str) -> None:
    assert client(AccessControl(keys)).get(path).status_code == 200


def test_each_route_requires_its_scope(keys: KeysFile) -> None:
    calls, admin = bearer(keys, Scope.CALLS), bearer(keys, Scope.ADMIN)
    http = client(AccessControl(keys))
    assert [http.get(path, headers=calls).status_code for path in ("/", "/metrics")] == [200, 403]
    assert [http.get(path, headers=admin).status_code for path in ("/", "/metrics")] == [200, 200]
    assert http.get("/", headers=bearer(keys, Scope.SPEAK)).status_code == 403


def test_a_websocket_is_refused_before_it_opens(keys: KeysFile) -> None:
    http = client(AccessControl(keys))
    with (
        pytest.raises(WebSocketDenialResponse) as denial,
        http.websocket_connect("ws://127.0.0.1:8080/socket"),
    ):
        pass
    assert denial.value.status_code == 401
    with http.websocket_connect("ws://127.0.0.1:8080/socket", headers=bearer(keys, Scope.CALLS)) as socket:
        assert socket.receive_text() == "hello"


def test_a_browser_is_asked_for_a_key_and_gets_a_cookie(keys: KeysFile) -> None:
    key = keys.add("me", (Scope.CALLS,), KeyLimits())
    http = client(AccessControl(keys))
    assert http.get("/", headers=PAGE).headers["www-authenticate"] == 'Basic realm="vivavoce"'
    login = {"authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}
    cookie = http.get("/call", headers=PAGE | login).headers["set-cookie"]
    assert cookie.startswith(f"{PAGE_COOKIE_NAME}=") and key not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    with http.websocket_connect(
        "ws://127.0.0.1:8080/socket", headers={"origin": "http://127.0.0.1:8080"}
    ) as socket:
        assert socket.receive_text() == "hello"
    with (
        pytest.raises(WebSocketDenialResponse) as denial,
        http.websocket_connect("ws://127.0.0.1:8080/socket", headers={"origin": "https://evil.example"}),
    ):
        pass
    assert denial.value.status_code == 403


def test_a_wrong_key_gets_no_cookie(keys: KeysFile) -> None:
    keys.add("me", (Scope.CALLS,), KeyLimits())
    login = {"authorization": "Basic " + base64.b64encode(b"me:wrong").decode()}
    answer = client(AccessControl(keys)).get("/call", headers=PAGE | login)
    assert answer.status_code == 401 and "set-cookie" not in answer.headers


def test_a_page_of_another_origin_cannot_use_a_server_without_keys() -> None:
    http = client(AccessControl.open_to_all(Origins(loopback_names_only=True)))
    with http.websocket_connect("ws://127.0.0.1:8080/socket") as socket:
        assert socket.receive_text() == "hello"
    for headers in (
        {"origin": "https://evil.example"},
        {"host": "evil.example", "origin": "http://evil.example"},
    ):
        with (
            pytest.raises(WebSocketDenialResponse) as denial,
            http.websocket_connect("ws://127.0.0.1:8080/socket", headers=headers),
        ):
            pass
        assert denial.value.status_code == 403


def test_an_allowed_origin_gets_the_cors_headers() -> None:
    app = "https://app.example.org"
    http = client(AccessControl.open_to_all(Origins(frozenset({app}))))
    answer = http.get("/", headers={"origin": app})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, app)
    asked = {
        "origin": app,
        "access-control-request-method": "POST",
        "access-control-request-headers": "x-api-key",
    }
    assert http.options("/", headers=asked).status_code == 200
    assert "access-control-allow-origin" not in http.get("/", headers={"origin": "https://b.example"}).headers


def test_a_rate_limited_request_gets_429_and_retry_after() -> None:
    answer = client(AccessControl.open_to_all()).get("/busy")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


def test_the_grant_is_created_on_the_event_loop(keys: KeysFile, monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: list[bool] = []
    grant = AccessControl.grant

    def recording_grant(access: AccessControl, headers: Mapping[str, str]) -> Grant:
        on_loop.append(asyncio._get_running_loop() is not None)
        return grant(access, headers)

    monkeypatch.setattr(AccessControl, "grant", recording_grant)
    assert client(AccessControl(keys)).get("/", headers=bearer(keys, Scope.CALLS)).status_code == 200
    assert on_loop == [True]
