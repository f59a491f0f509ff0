"""The OpenAPI document describes the routes that exist, and its page loads nothing from other hosts."""

import asyncio
import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import WebSocketRoute

from vivavoce import __version__
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.access.url_guard import UrlGuard
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy, SpeechServer
from vivavoce.gateway.apis.speech_apis import SpeechApis, socket_operations
from vivavoce.gateway.call_servers import WAYS_IN
from vivavoce.gateway.calls.api import placed_calls, routes
from vivavoce.gateway.calls.ways_in.browser.routes import page_routes as browser_page_routes
from vivavoce.gateway.calls.ways_in.browser.routes import routes as browser_routes
from vivavoce.gateway.page import routes as page
from vivavoce.gateway.web.app import BROWSER_TAG, CALLS_TAG, Mount, make_app
from vivavoce.gateway.web.openapi.docs_page import curl_example, html_page, page_headers
from vivavoce.gateway.web.openapi.document import openapi_document
from vivavoce.gateway.web.openapi.examples import MissingExample, example_of
from vivavoce.tts_engine.metrics import Metrics


class NoEngine:
    """An engine for routes that are not asked for speech."""

    metrics = Metrics()


@contextmanager
def all_mounts(access: AccessControl) -> Iterator[list[Mount]]:
    """All routes that a gateway mounts, over nothing; afterwards those of speech are closed."""
    nothing: Any = None
    engine: Any = NoEngine()
    placing = [(way.placed_calls, nothing) for way in WAYS_IN if way.placed_calls is not None]
    apis = SpeechApis(SpeechServer(engine, access, nothing, UrlGuard(), SpeechApiPolicy()))
    yield [
        *apis.mounts(),
        Mount(routes.routes(nothing, nothing, nothing, nothing), Scope.CALLS, tag=CALLS_TAG),
        Mount(placed_calls.routes(placing), Scope.CALLS, tag=CALLS_TAG),
        Mount(browser_routes(nothing), Scope.CALLS, tag=BROWSER_TAG),
        Mount(browser_page_routes(access), None, tag=BROWSER_TAG),
        Mount(page.routes(access, nothing, 4_096), None),
    ]
    asyncio.run(apis.aclose())


def make_full_app(access: AccessControl, mounts: list[Mount]) -> FastAPI:
    return make_app(unready=lambda: None, registry=Metrics().registry, access=access, mounts=mounts)


ACCESS = AccessControl.open_to_all()
with all_mounts(ACCESS) as MOUNTS:
    pass
APP = make_full_app(ACCESS, MOUNTS)
ROUTES = [route for mount in MOUNTS for route in mount.router.routes] + APP.routes
DOCUMENT: dict[str, Any] = openapi_document(APP.routes, socket_operations())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    (method, path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def schema_name(operation: dict[str, Any], status: int) -> str:
    """The model of an operation's JSON response."""
    content = operation["responses"][str(status)]["content"]["application/json"]
    return str(content["schema"]["$ref"].rpartition("/")[2])


def test_the_document_has_every_route_and_no_other() -> None:
    served = {
        (method.lower(), route.path.replace(":path", ""))
        for route in ROUTES
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    optional = {("get", "/client"), ("get", "/client/{path}")}  # where Pipecat's page is installed
    assert set(OPERATIONS) == served - optional


def test_every_websocket_route_has_its_messages_in_the_document() -> None:
    served = {route.path.rstrip("/") for route in ROUTES if isinstance(route, WebSocketRoute)}
    assert set(DOCUMENT["x-websockets"]) == served
    for websocket in DOCUMENT["x-websockets"].values():
        assert websocket["summary"]
        assert websocket["clientMessages"]
        assert websocket["serverMessages"]
        assert isinstance(websocket["example"]["messages"], list)
    assert {"SessionConfig", "AudioStart"} <= set(SCHEMAS)


@pytest.mark.parametrize("route", sorted(OPERATIONS))
def test_every_operation_and_status_has_a_description(route: tuple[str, str]) -> None:
    operation = OPERATIONS[route]
    assert operation["operationId"]
    assert operation["summary"]
    assert all(answer["description"] for answer in operation["responses"].values())
    assert not any(
        status == "422" and "HTTPValidationError" in str(answer)
        for status, answer in operation["responses"].items()
    )
    described = {
        parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "path"
    }
    assert described == set(re.findall(r"{(\w+)}", route[1]))


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)


def test_temporary_errors_have_a_retry_after_header() -> None:
    for (method, path), operation in OPERATIONS.items():
        for status in {"429", "503"} & set(operation["responses"]) - (
            {"503"} if path == "/readyz" else set()
        ):
            assert "retry-after" in operation["responses"][status]["headers"], (method, path)


def test_a_request_has_the_limits_that_it_is_validated_with() -> None:
    fields = SCHEMAS["CreateSpeechRequest"]["properties"]
    assert (fields["speed"]["minimum"], fields["speed"]["maximum"]) == (0.25, 4)
    assert fields["response_format"]["enum"][:2] == ["pcm", "wav"]
    assert None in fields["response_format"]["enum"]
    assert SCHEMAS["CreateSpeechRequest"]["required"] == ["input"]
    assert fields["input"]["examples"] == ["Good morning."]
    assert SCHEMAS["CreateVoiceForm"]["required"] == ["audio_sample", "name", "consent"]


SPEECH_PATHS = (
    *("/v1/audio", "/v1/models", "/api/v1", "/dev", "/tts", "/voices"),
    *("/v1/text-to-speech", "/v1/voices", "/v2/voices", "/v1/user", "/v1/speak", "/v2/speak", "/jambonz"),
    *("/speakers", "/studio_speakers", "/languages", "/clone_speaker", "/get_", "/set_", "/switch_model"),
    *("/inference_", "/v1/model", "/api/tts", "/synthesize", "/vapi", "/localai"),
)


PAGE_PATHS = ("/", "/page/{name}", "/v1/server")  # of the page, not refused to keys that speak
# The answer to a key that lacks the scope, where that is no refusal.
ADMITTING = {"/call": 307, "/call/{name}": 307}


def test_a_missing_key_and_a_missing_scope_are_refused_as_documented(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    scopes = (Scope.SPEAK, Scope.CALLS, Scope.ORIGINATE)
    speaker, caller, dialler = (keys.add("poor", (scope,), KeyLimits()) for scope in scopes)

    async def request(client: httpx.AsyncClient, method: str, path: str, operation: dict[str, Any]) -> None:
        url = re.sub(r"{\w+}", "x", path)
        lacking = caller if path.startswith(SPEECH_PATHS) else dialler if path in PAGE_PATHS else speaker
        is_public = operation.get("security") == []
        for status, headers in ((401, {}), (403, {"authorization": f"Bearer {lacking}"})):
            answer = await client.request(method, url, headers=headers)
            assert str(answer.status_code) in operation["responses"]
            if status == 403 and path in ADMITTING:
                assert answer.status_code == ADMITTING[path]
                continue
            assert (answer.status_code == status) != is_public
            if not is_public:
                assert set(answer.json()) == set(SCHEMAS[schema_name(operation, status)]["required"])

    access = AccessControl(keys)

    async def request_all(mounts: list[Mount]) -> None:
        transport = httpx.ASGITransport(make_full_app(access, mounts))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for (method, path), operation in OPERATIONS.items():
                await request(client, method, path, operation)

    with all_mounts(access) as mounts:
        asyncio.run(request_all(mounts))


def test_the_document_is_of_this_version_and_every_reference_resolves() -> None:
    assert DOCUMENT["info"]["version"] == __version__
    references = re.findall(r"'\$ref': '#/components/(\w+)/(\w+)'", str(DOCUMENT))
    assert len(references) > 100
    for kind, name in references:
        assert name in DOCUMENT["components"][kind]
    used = {name for kind, name in references if kind == "schemas"}
    assert used == set(SCHEMAS)
    assert "x-schemas" not in str(DOCUMENT)


def test_the_document_is_valid_openapi() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    assert DOCUMENT["openapi"] == "3.1.0"
    validator.validate(DOCUMENT)


def test_every_operation_has_a_tag_and_says_whether_it_needs_a_key() -> None:
    names = [tag["name"] for tag in DOCUMENT["tags"]]
    assert names[:3] == ["vivavoce stream", "Calls", "Browser calls"]
    assert names[-1] == "Operation"
    used = {tag for operation in OPERATIONS.values() for tag in operation["tags"]}
    assert used | {"vivavoce stream", "OpenAI Realtime"} == set(names)
    assert all(len(operation["tags"]) == 1 and "security" in operation for operation in OPERATIONS.values())
    assert OPERATIONS["get", "/healthz"]["security"] == []
    assert OPERATIONS["post", "/v1/audio/speech"]["tags"] == ["OpenAI"]
    assert {"bearer": []} in OPERATIONS["post", "/v1/audio/speech"]["security"]


def test_every_body_has_an_example_that_its_schema_allows() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for route, operation in OPERATIONS.items():
        for content in operation.get("requestBody", {}).get("content", {}).values():
            schema = {**content["schema"], "components": DOCUMENT["components"]}
            jsonschema.Draft202012Validator(schema).validate(content["example"])
            assert content["example"] not in ({}, ""), route


def test_a_required_field_without_an_example_is_named() -> None:
    schema = {"properties": {"rate": {"type": "integer"}}, "required": ["rate"]}
    with pytest.raises(MissingExample, match=r"/speak\.rate has no example"):
        example_of(schema, {}, "/speak")


def test_the_page_shows_every_operation_and_loads_nothing() -> None:
    html = html_page(DOCUMENT)
    for method, path in OPERATIONS:
        assert f"<code>{method.upper()} {path}</code>" in html
        assert f'<form data-method={method.upper()} data-path="{path}"' in html
    for path in DOCUMENT["x-websockets"]:
        assert f"<code>WebSocket {path}</code>" in html
    assert not re.search(r"<script |<link|src=|url\(|@import", html)
    assert re.findall(r"https?://[\w.]+", html) == ["https://example.org"] * html.count("https://")


def test_a_browser_runs_no_script_but_that_of_the_page() -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", html_page(DOCUMENT), re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page_headers()["content-security-policy"]


def test_the_commands_of_the_page_send_the_examples() -> None:
    speech = OPERATIONS["post", "/tts/bytes"]
    words = shlex.split(curl_example("POST", "/tts/bytes", speech).replace("\\\n", ""))
    assert words[:4] == ["curl", "-X", "POST", "$VIVAVOCE/tts/bytes"]
    assert json.loads(words[-1]) == speech["requestBody"]["content"]["application/json"]["example"]
    assert "-H 'Authorization" not in curl_example("GET", "/healthz", OPERATIONS["get", "/healthz"])
    voice = curl_example("POST", "/v1/audio/voices", OPERATIONS["post", "/v1/audio/voices"])
    assert "-F 'audio_sample=@recording.wav'" in voice
    assert "/v1/calls/CALL_ID" in curl_example(
        "GET", "/v1/calls/{call_id}", OPERATIONS["get", "/v1/calls/{call_id}"]
    )


def test_the_page_shows_the_fields_of_a_body() -> None:
    html = html_page(DOCUMENT)
    assert "<code>speed</code><td>number, from 0.25, to 4" in html
    assert "<code>voice.id</code>" not in html  # a voice may be a plain name
    assert "pcm | wav | mp3" in html


@pytest.mark.parametrize(("path", "kind"), [("/openapi.json", "application/json"), ("/docs", "text/html")])
def test_the_document_and_its_page_are_served_without_a_key(path: str, kind: str, tmp_path: Path) -> None:
    access = AccessControl(KeysFile(tmp_path / "keys.json"))

    async def get(mounts: list[Mount]) -> httpx.Response:
        transport = httpx.ASGITransport(make_full_app(access, mounts))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    with all_mounts(access) as mounts:
        answer = asyncio.run(get(mounts))
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)
