"""The OpenAPI document is of the routes that there are, and its page needs nothing from elsewhere."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from vivavoce import __version__
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.access.url_guard import UrlGuard
from vivavoce.gateway.apis.speech_apis import SpeechApis
from vivavoce.gateway.browser.routes import routes as browser_routes
from vivavoce.gateway.calls import api
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.gateway.web.openapi.document import html_page, openapi_document
from vivavoce.tts_engine.metrics import Metrics

DOCUMENT: dict[str, Any] = openapi_document()
OPERATIONS = {
    (method, path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if method != "parameters"
}


class NoEngine:
    """Enough of an engine for routes that are not asked for speech."""

    metrics = Metrics()


def mounts(access: AccessControl) -> list[Mount]:
    """All that a gateway mounts, with nobody behind it."""
    nobody: Any = None
    engine: Any = NoEngine()
    return [
        *SpeechApis(engine, access, nobody, UrlGuard(), 100).mounts(),
        Mount(api.routes(nobody, nobody, nobody), Scope.CALLS),
        Mount(browser_routes(nobody), Scope.CALLS),
    ]


def app_of(access: AccessControl, *mounted: Mount) -> FastAPI:
    return make_app(unready=lambda: None, registry=Metrics().registry, access=access, mounts=mounted)


def test_the_document_has_every_route_and_no_other() -> None:
    access = AccessControl.open_to_all()
    routes = [route for mount in mounts(access) for route in mount.router.routes] + app_of(access).routes
    served = {
        (method.lower(), route.path.replace(":path", ""))
        for route in routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    optional = {("get", "/client"), ("get", "/client/{path}")}  # where Pipecat's page is installed
    assert set(OPERATIONS) == served - optional


def test_whoever_has_no_key_or_a_poor_one_gets_the_refusal_that_is_documented(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    speaker, caller = (keys.add("poor", (scope,), KeyLimits()) for scope in (Scope.SPEAK, Scope.CALLS))

    async def test(client: httpx.AsyncClient, method: str, path: str, operation: dict[str, Any]) -> None:
        url = re.sub(r"{\w+}", "x", path)
        lacking = caller if path.startswith(("/v1/audio", "/v1/models", "/api/v1")) else speaker
        is_open = operation.get("security") == []
        for status, headers in ((401, {}), (403, {"authorization": f"Bearer {lacking}"})):
            answer = await client.request(method, url, headers=headers)
            assert str(answer.status_code) in operation["responses"]
            assert (answer.status_code == status) != is_open
            if not is_open:
                words = operation["responses"][str(status)]["$ref"].rpartition("/")[2]
                assert set(answer.json()) == set(DOCUMENT["components"]["schemas"][words]["required"])

    async def test_all() -> None:
        access = AccessControl(keys)
        transport = httpx.ASGITransport(app_of(access, *mounts(access)))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for (method, path), operation in OPERATIONS.items():
                await test(client, method, path, operation)

    asyncio.run(test_all())


def test_the_document_is_of_this_version_and_its_references_lead_somewhere() -> None:
    assert DOCUMENT["info"]["version"] == __version__
    references = re.findall(r"'\$ref': '#/components/(\w+)/(\w+)'", str(DOCUMENT))
    assert len(references) > 100
    for kind, name in references:
        assert name in DOCUMENT["components"][kind]
    used = {name for kind, name in references if kind == "schemas"}
    assert used == set(DOCUMENT["components"]["schemas"])


def test_the_page_shows_every_operation_and_loads_nothing() -> None:
    html = html_page(DOCUMENT)
    for method, path in OPERATIONS:
        assert f"<code>{method.upper()} {path}</code>" in html
    assert not re.search(r"<script|<link|src=|url\(|https?://", html)


@pytest.mark.parametrize(("path", "kind"), [("/openapi.json", "application/json"), ("/docs", "text/html")])
def test_the_document_and_its_page_are_served_without_a_key(path: str, kind: str, tmp_path: Path) -> None:
    access = AccessControl(KeysFile(tmp_path / "keys.json"))

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app_of(access, *mounts(access)))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    answer = asyncio.run(get())
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)
