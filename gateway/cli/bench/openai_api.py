"""The API bench: how soon each speech API gives its first byte, and how soon a client that left is forgotten.

The server is a process of its own, ``vivavoce serve`` with the packaged voice; this process is its clients.
Time to the first byte runs from handing the request to the socket, on a connection that is kept, to the first
byte of audio. A part is an API: a function of the server's address that answers figures.
"""

import http.client
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import numpy as np

from . import dashscope_api
from .engine_watch import EngineWatch, open_connection
from .report import BenchFailed, BenchFigure, BenchReport
from .server_process import run_server_process

READY_S = 180.0  # to load and cut the voice for the first time on a slow machine
REQUESTS = 50
DISCONNECTS = 20
_WARM_UP_REQUESTS = 3  # requests that a server which just started is given before they count
MAX_FIRST_BYTE_MS = 50.0
MAX_CLEANUP_MS = 100.0
SENTENCES = (
    "Thank you for calling, how can I help you today?",
    "Your balance is one hundred and twenty seven dollars and fifty cents.",
    "Please hold the line while I look that up for you.",
)
_LONG_TEXT = " ".join(SENTENCES * 20)
_RESET_ON_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class ApiBenchPart(StrEnum):
    """What can be measured alone."""

    OPENAI = "openai"
    LEAVING = "leaving"
    DASHSCOPE = "dashscope"


def measure(parts: Sequence[ApiBenchPart] = (), requests: int = REQUESTS) -> BenchReport:
    """Start a server, ask it; all parts unless some are named. Raises BenchFailed."""
    parts = tuple(parts) or tuple(ApiBenchPart)
    figures: list[BenchFigure] = []
    with run_server_process() as url:
        for part in parts:
            figures += FIGURES_BY_PART[part](url, requests)
    return BenchReport("api", tuple(figures), {"parts": ", ".join(parts), "requests": requests})


def openai_figures(url: str, requests: int) -> list[BenchFigure]:
    """Time to the first byte of PCM over one connection that is kept."""
    first_ms = []
    with open_connection(url) as connection:
        for number in range(requests + _WARM_UP_REQUESTS):
            started = time.perf_counter()
            answer = _request_speech(connection, SENTENCES[number % len(SENTENCES)])
            answer.read1(1)
            first_ms.append(1_000 * (time.perf_counter() - started))
            answer.read()
    p50, p95 = np.percentile(first_ms[_WARM_UP_REQUESTS:], [50, 95])
    return [
        BenchFigure("OpenAI pcm, keep-alive: first byte, p50", float(p50), "ms", at_most=MAX_FIRST_BYTE_MS),
        BenchFigure("OpenAI pcm, keep-alive: first byte, p95", float(p95), "ms"),
    ]


def disconnect_figures(url: str, requests: int) -> list[BenchFigure]:
    """How long the engine works on for a client that is gone, and how far ahead of one that does not read."""
    cleanup_ms = [_disconnect_cleanup_ms(url) for _ in range(min(DISCONNECTS, requests))]
    ahead_s, settled_ms = _rendered_for_stalled_client(url)
    return [
        BenchFigure(
            "a client vanishes: engine free, worst",
            max(cleanup_ms),
            "ms",
            at_most=MAX_CLEANUP_MS,
        ),
        BenchFigure("a client vanishes: engine free, p50", float(np.median(cleanup_ms)), "ms"),
        BenchFigure("a client stops reading: speech rendered for it", ahead_s, "s"),
        BenchFigure("a client stops reading: rendering ends after", settled_ms, "ms", at_most=MAX_CLEANUP_MS),
    ]


def _disconnect_cleanup_ms(url: str) -> float:
    """From the reset of a connection in the middle of speech to the engine having no stream."""
    with open_connection(url) as metrics, open_connection(url) as client:
        engine = EngineWatch(metrics)
        _request_speech(client, _LONG_TEXT).read1(1)
        assert client.sock is not None
        client.sock.setsockopt(*_RESET_ON_CLOSE)
        closed_at = time.perf_counter()
        client.close()
        return engine.idle_after_ms(closed_at)


def _rendered_for_stalled_client(url: str) -> tuple[float, float]:
    """Seconds of speech for a client that reads one byte and no more, and ms until that ends."""
    with open_connection(url) as metrics, open_connection(url) as stalled_client:
        engine = EngineWatch(metrics)
        _request_speech(stalled_client, _LONG_TEXT).read1(1)
        return engine.rendered_until_settled(time.perf_counter())


def _request_speech(connection: http.client.HTTPConnection, text: str) -> http.client.HTTPResponse:
    body = json.dumps({"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"})
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise BenchFailed(f"the server answered {answer.status}: {answer.read().decode()[:300]}")
    return answer


FIGURES_BY_PART: Mapping[ApiBenchPart, Callable[[str, int], list[BenchFigure]]] = {
    ApiBenchPart.OPENAI: openai_figures,
    ApiBenchPart.LEAVING: disconnect_figures,
    ApiBenchPart.DASHSCOPE: dashscope_api.dashscope_figures,
}
