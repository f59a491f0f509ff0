"""HEAD, slashes at the end, unknown paths and origins of apps, asked of a whole gateway."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from shared.gateways.running_gateway import ask_gateway
from vivavoce.gateway.cli.configuration.settings_loader import load_settings
from vivavoce.gateway.configuration.settings_table import SettingsError

SPEECH = {"input": "One.", "response_format": "pcm"}


def test_head_is_answered_wherever_get_is() -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        document = (await client.get("/openapi.json")).json()
        paths = [path for path, methods in document["paths"].items() if "get" in methods]
        assert {"/", "/health", "/healthz", "/readyz", "/metrics", "/docs", "/v1/models"} <= set(paths)
        for path in [*paths, "/page/speak.js", "/call/call.js", "/v1/models/tts-1/"]:
            got, head = await client.get(path), await client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b""), path
            assert head.headers["content-type"] == got.headers["content-type"]
            if path != "/metrics":  # it counts what was asked before
                assert head.headers["content-length"] == got.headers["content-length"]
        posted = await client.head("/dev/captioned_speech")
        assert (posted.status_code, posted.headers["allow"]) == (405, "POST")
        assert (await client.head("/nowhere")).status_code == 404

    ask_gateway(questions)


def test_health_is_healthz() -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        for path in ("/health", "/healthz", "/health/"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    ask_gateway(questions)


@pytest.mark.parametrize(
    ("method", "path", "status", "fields"),
    [
        ("POST", "/v1/chat/completions", 404, {"error": {"message", "type", "param", "code"}}),
        ("PUT", "/v1/audio/speech", 405, {"error": {"message", "type", "param", "code"}}),
        ("GET", "/v1", 404, {"error": {"message", "type", "param", "code"}}),
        ("POST", "/api/v1/services/aigc/nothing", 404, {"request_id": str, "code": str, "message": str}),
        ("GET", "/api/v1/services/audio/tts/customization", 405, {"request_id": str, "code": str}),
        ("PUT", "/v1/calls", 405, {"error": str}),
        ("GET", "/v1/calls/one/two/three", 404, {"error": str}),
        ("GET", "/v2/audio/speech", 404, {"error": str}),
        ("GET", "/v10", 404, {"error": str}),
    ],
)
def test_unknown_paths_and_methods_have_the_errors_of_their_api(
    method: str, path: str, status: int, fields: dict[str, Any]
) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        answer = await client.request(method, path)
        body = answer.json()
        assert answer.status_code == status
        for name, kind in fields.items():
            assert set(body[name]) == kind if isinstance(kind, set) else isinstance(body[name], kind)
        assert path in str(body) or status == 404

    ask_gateway(questions)


@pytest.mark.parametrize("path", ["/v1/nothing", "/api-ws/v1/nothing", "/ws", "/v1/audio/speech"])
def test_an_unknown_websocket_is_refused_with_404(path: str) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        url = str(client.base_url).replace("http", "ws").rstrip("/")
        with pytest.raises(InvalidStatus) as refused:
            await connect(url + path, proxy=None)
        answer = refused.value.response
        assert answer.status_code == 404
        error = json.loads(answer.body or b"")
        assert ("request_id" if path.startswith("/api") else "error") in error

    ask_gateway(questions)


def test_superfluous_slashes_in_a_path_change_nothing() -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        plain = await client.post("/v1/audio/speech", json=SPEECH)
        base = str(client.base_url).rstrip("/")
        for path in ("/v1/audio/speech/", "/v1/audio/speech//", "//v1/audio/speech", "//v1//audio/speech/"):
            slashed = await client.post(f"{base}{path}", json=SPEECH)
            assert (slashed.status_code, slashed.content) == (200, plain.content)
        assert (await client.get("/v1/models/")).json()["object"] == "list"
        assert (await client.get("/v1/audio/voices/")).json()["voices"]
        wrong = await client.get("/dev/captioned_speech/")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        nowhere = await client.get(f"{base}//v1//nowhere")
        assert (nowhere.status_code, nowhere.json()["error"]["type"]) == (404, "invalid_request_error")
        url = str(client.base_url).replace("http", "ws").rstrip("/")
        async with connect(f"{url}/v1/audio/speech/stream/", proxy=None) as socket:
            await socket.send('{"type": "session.close"}')

    ask_gateway(questions)


@pytest.mark.parametrize(
    "origin", ["app://obsidian.md", "chrome-extension://abcdefghijklmnop", "https://app.example.org"]
)
def test_apps_and_extensions_are_origins(origin: str) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        preflight = {"origin": origin, "access-control-request-method": "POST"}
        allowed = await client.options("/v1/audio/speech", headers=preflight)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, origin)
        spoken = await client.post("/v1/audio/speech", json=SPEECH, headers={"origin": origin})
        assert (spoken.status_code, spoken.headers["access-control-allow-origin"]) == (200, origin)
        refused = await client.post("/v1/audio/speech", json=SPEECH, headers={"origin": "app://other"})
        assert refused.status_code == 403

    ask_gateway(questions, http_allowed_origins=(origin,))


def test_a_browser_is_told_before_a_request_which_pages_may_send_it() -> None:
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
        "access-control-request-private-network": "true",  # of a page on the internet
    }

    async def questions(client: httpx.AsyncClient) -> None:
        for origin in ("https://app.example.org", "https://app.example.net", "https://a.b.example.net"):
            allowed = await client.options("/v1/audio/speech", headers={**asked, "origin": origin})
            assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, origin)
            assert allowed.headers["access-control-allow-headers"] == "authorization,content-type"
            assert allowed.headers["access-control-allow-private-network"] == "true"
        for origin in ("https://example.net", "http://app.example.net", "https://evil-example.net", "null"):
            refused = await client.options("/v1/audio/speech", headers={**asked, "origin": origin})
            assert (refused.status_code, "allowed_origins" in refused.text) == (403, True)
            assert "access-control-allow-origin" not in refused.headers

    ask_gateway(questions, http_allowed_origins=("https://app.example.org", "https://*.example.net"))


def test_without_allowed_origins_a_browser_is_told_of_the_setting() -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        preflight = {"origin": "https://app.example.org", "access-control-request-method": "POST"}
        refused = await client.options("/v1/audio/speech", headers=preflight)
        assert (refused.status_code, "allowed_origins" in refused.text) == (403, True)

    ask_gateway(questions)


@pytest.mark.parametrize(
    "origin",
    [
        "obsidian.md",
        "app:obsidian.md",
        "https://app.example.org/",
        "://x",
        "*",
        "https://*",
        "https://a.*.org",
    ],
)
def test_what_is_no_origin_is_refused_at_the_start(origin: str, tmp_path: Path) -> None:
    file = tmp_path / "vivavoce.toml"
    file.write_text(f'http.allowed_origins = ["{origin}"]\n')
    with pytest.raises(SettingsError, match="allowed is a list of origins"):
        load_settings(file)
