"""Back-pressure on HTTP clients: one that reads everything, and one that reads nothing.

The clients use one keep-alive connection for many responses in all formats.
"""

import asyncio
import http.client
import json
import os
import statistics
import time
from typing import Any

import pytest

TEXT = " ".join(["One two three four five six seven eight nine ten."] * 2)
ROUNDS = int(os.environ.get("VIVAVOCE_ROUNDS", "10"))  # of all formats; 100 take minutes
MAX_HOLE_S = 5.0  # in any response; a busy machine may stop a process for seconds
MAX_USUAL_HOLE_S = 0.9  # in half of the responses; a hold lasts 1 s
FORMATS = [
    {"response_format": "mp3"},
    {"response_format": "opus"},
    {"response_format": "aac"},
    {"response_format": "flac"},
    {"response_format": "wav"},
    {"response_format": "pcm"},
    {"response_format": "wav", "sample_rate": 8_000},
    {"response_format": "pcm", "sample_rate": 16_000},
    {"response_format": "mp3", "speed": 1.5},
    {"response_format": "opus", "sample_rate": 16_000},
]


def request_body(fields: dict[str, Any]) -> bytes:
    return json.dumps({"model": "tts-1", "voice": "alloy", "input": TEXT, **fields}).encode()


def longest_waits_s(port: int, rounds: int) -> dict[str, list[float]]:
    """Longest wait for 4 KiB of each response, by format; all responses come over one connection."""
    waits: dict[str, list[float]] = {str(fields): [] for fields in FORMATS}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    first_socket = connection.sock
    for _ in range(rounds):
        for fields in FORMATS:
            connection.request(
                "POST", "/v1/audio/speech", request_body(fields), {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            assert response.status == 200
            waits[str(fields)].append(longest_wait_s(response))
    assert connection.sock is first_socket
    connection.close()
    return waits


def longest_wait_s(response: http.client.HTTPResponse) -> float:
    longest, last = 0.0, time.monotonic()
    while response.read(4096):  # whole, because slices of a piece that is held back are no progress
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return longest


@pytest.mark.slow
def test_a_client_that_reads_everything_waits_for_no_hold(serve_apis: Any) -> None:
    async def test() -> None:
        async with serve_apis() as served:
            waits = await asyncio.to_thread(longest_waits_s, served.client.base_url.port, ROUNDS)
            assert {name: max(each) for name, each in waits.items() if max(each) > MAX_HOLE_S} == {}
            usual = {name: statistics.median(each) for name, each in waits.items()}
            assert {name: wait for name, wait in usual.items() if wait > MAX_USUAL_HOLE_S} == {}

    asyncio.run(test())


@pytest.mark.slow
@pytest.mark.parametrize("fields", FORMATS, ids=str)
def test_a_client_that_reads_nothing_does_not_have_a_long_text_rendered(
    run: Any, fields: dict[str, Any]
) -> None:
    async def test(served: Any) -> None:
        _, writer = await asyncio.open_connection(*served.address, limit=2**14)
        body = request_body({**fields, "input": "word " * 800})
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        writer.transport.pause_reading()
        await asyncio.sleep(3)
        assert served.backend.steps < 400  # of 800
        assert (await served.post()).status_code == 200
        writer.close()

    run(test)
