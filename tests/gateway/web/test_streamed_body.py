"""The messages of a streamed HTTP body."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from vivavoce.gateway.web.streamed_body import StreamedBody


def test_a_body_without_a_piece_has_its_headers() -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(StreamedBody({"type": "http"}, send, {"content-type": "audio/pcm"}).end())
    assert sent == [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"audio/pcm")]},
        {"type": "http.response.body", "body": b""},
    ]
