"""The OpenAPI document is of the routes that there are, and its page needs nothing from elsewhere."""

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute
from vivavoce import __version__
from vivavoce.adapters.encoders import SAMPLE_RATES, Codec
from vivavoce.gateway.access.access import Access
from vivavoce.gateway.access.url_guard import UrlGuard
from vivavoce.gateway.apis.openai import OpenAISpeech
from vivavoce.gateway.apis.openai_voices import OpenAIVoices
from vivavoce.gateway.apis.openapi import OpenApi, page
from vivavoce.gateway.apis.request_log import RequestLog
from vivavoce.gateway.voice_registry import VoiceRegistry
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.standin_backend import StandInBackend

DOCUMENT: dict[str, Any] = OpenApi().document


def real_routes() -> set[tuple[str, str]]:
    voices = VoiceRegistry(StandInBackend().voices)
    api = OpenAISpeech(None, Access.open_house(), voices, RequestLog(Metrics()), UrlGuard())  # type: ignore[arg-type]
    found = [*api.routes().routes, *OpenAIVoices(api, voices).routes().routes]
    voices.close()
    return {
        (method.lower(), route.path.replace(":path", ""))
        for route in found
        if isinstance(route, APIRoute)
        for method in route.methods
    }


def test_the_document_has_every_route_and_no_other() -> None:
    told = {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert told == real_routes() | {("get", "/healthz"), ("get", "/readyz")}


def test_the_document_is_of_this_version_and_its_references_lead_somewhere() -> None:
    assert DOCUMENT["info"]["version"] == __version__
    for reference in re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(DOCUMENT)):
        assert reference in DOCUMENT["components"]["schemas"]


def test_formats_and_rates_are_those_of_the_encoders() -> None:
    fields = DOCUMENT["components"]["schemas"]["SpeechRequest"]["properties"]
    assert set(fields["response_format"]["enum"]) == {*Codec.__args__, None}
    assert fields["sample_rate"]["enum"] == [*SAMPLE_RATES, None]


def test_the_page_shows_every_operation_and_loads_nothing() -> None:
    html = page(DOCUMENT)
    for path, methods in DOCUMENT["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in html
    assert not re.search(r"<script|<link|src=|url\(|https?://", html)


@pytest.mark.parametrize(("path", "kind"), [("/openapi.json", "application/json"), ("/docs", "text/html")])
def test_both_are_served_without_a_key(path: str, kind: str, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.get(path)
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)

    run(test)
