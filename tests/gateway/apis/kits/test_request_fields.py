"""Fields of a body, by what it is declared to be and what it is."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from vivavoce.gateway.apis.kits.request_fields import InvalidField, read_fields


def fields(body: bytes, content_type: str | None) -> dict[str, Any]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    return asyncio.run(read_fields(Request(scope, receive)))


@pytest.mark.parametrize("content_type", [None, "application/json", "application/x-www-form-urlencoded"])
def test_json_is_read_whatever_curl_declares_it_to_be(content_type: str | None) -> None:
    assert fields(b' {"text": "a=b&c"}', content_type) == {"text": "a=b&c"}


def test_a_form_is_read() -> None:
    assert fields(b"text=a%20b&speed=2", "application/x-www-form-urlencoded") == {"text": "a b", "speed": "2"}


def test_a_form_without_a_declaration_is_refused() -> None:
    with pytest.raises(InvalidField, match="is not JSON"):
        fields(b"text=a", None)
