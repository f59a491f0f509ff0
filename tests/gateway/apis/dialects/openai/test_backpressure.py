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
MAX_GAP_S = 5.0  # in any response; a busy machine may stop a process for seconds
MAX_USUAL_GAP_S = 0.3  # in half of the responses
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


def longest_gaps_s(port: int, rounds: int) -> dict[str, list[float]]:
    """Longest gap of each response for a client that plays it, by format; all come over one connection."""
    gaps: dict[str, list[float]] = {str(fields): [] for fields in FORMATS}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    first_socket = connection.sock

    def read(fields: dict[str, Any]) -> list[tuple[float, int]]:
        connection.request(
            "POST", "/v1/audio/speech", request_body(fields), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        assert response.status == 200
        reads, size = [], 0
        while piece := response.read(4096):  # whole, because slices of a piece that is held are no progress
            size += len(piece)
            reads.append((time.monotonic(), size))
        return reads

    speech_s = read({"response_format": "pcm"})[-1][1] / 48_000
    for _ in range(rounds):
        for fields in FORMATS:
            gaps[str(fields)].append(longest_gap_s(read(fields), speech_s / fields.get("speed", 1.0)))
    assert connection.sock is first_socket
    connection.close()
    return gaps


def longest_gap_s(reads: list[tuple[float, int]], speech_s: float) -> float:
    """How long a client that plays from the first read on has nothing to play. reads: time, bytes so far."""
    longest, plays_until = 0.0, reads[0][0]
    bytes_per_s, before = reads[-1][1] / speech_s, 0
    for at, size in reads:
        longest = max(longest, at - plays_until)
        plays_until = max(plays_until, at) + (size - before) / bytes_per_s
        before = size
    return longest


@pytest.mark.slow
def test_a_client_that_reads_everything_hears_no_gap(serve_apis: Any) -> None:
    async def test() -> None:
        async with serve_apis() as served:
            gaps = await asyncio.to_thread(longest_gaps_s, served.client.base_url.port, ROUNDS)
            assert {name: max(each) for name, each in gaps.items() if max(each) > MAX_GAP_S} == {}
            usual = {name: statistics.median(each) for name, each in gaps.items()}
            assert {name: gap for name, gap in usual.items() if gap > MAX_USUAL_GAP_S} == {}

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
