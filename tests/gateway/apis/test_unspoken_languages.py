"""A request for a text in a language that its voice does not speak, beside a bundle that does."""

import asyncio
import logging
from pathlib import Path

import pytest

from shared.gateways.bundled_gateway import client_of, settings_with

GERMAN = {"input": "Guten Tag, wie geht es Ihnen heute?", "response_format": "pcm"}


def test_the_language_and_a_voice_for_it_are_in_headers_and_once_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), client_of(settings_with(tmp_path)) as client:
            for path in ("/v1/audio/speech", "/dev/captioned_speech", "/v1/audio/speech"):
                headers = (await client.post(path, json=GERMAN)).headers
                assert headers["x-text-language"] == "de"
                voice = headers["x-text-language-voice"]
            for change in (
                {"input": "How are you on this day?"},
                {"language": "en"},
                {"voice": voice},
            ):
                answer = await client.post("/v1/audio/speech", json=GERMAN | change)
                assert answer.status_code == 200 and "x-text-language" not in answer.headers, change

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    told = [record.getMessage() for record in caplog.records if "seems to be in de" in record.getMessage()]
    assert len(told) == 1 and "otto" in told[0]
