"""The API bench: how soon each speech API gives its first byte, and how soon a client that left is forgotten.

The server is a process of its own, ``vivavoce serve`` with the packaged voice; this process is its clients.
Time to the first byte runs from handing the request to the socket, on a connection that is kept, to the first
byte of audio. A part is an API: a function of the server's address that answers figures.
"""

import contextlib
import http.client
import json
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

import numpy as np

from . import api_dashscope
from .engine_watch import WITHIN_S, EngineWatch, connect
from .report import BenchFailed, Figure, Report

READY_S = 180.0  # to load and cut the voice for the first time on a slow machine
REQUESTS = 50
VANISHING = 20
_COLD = 3  # requests that a server which just started is given before they count
MOST_FIRST_BYTE_MS = 50.0
MOST_FORGETTING_MS = 100.0
SENTENCES = (
    "Thank you for calling, how can I help you today?",
    "Your balance is one hundred and twenty seven dollars and fifty cents.",
    "Please hold the line while I look that up for you.",
)
_LONG_TEXT = " ".join(SENTENCES * 20)
_RESET_ON_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
_READY = re.compile(r"HTTP on (http://\S+?),")


class Part(StrEnum):
    """What can be measured alone."""

    OPENAI = "openai"
    LEAVING = "leaving"
    DASHSCOPE = "dashscope"


def measure(parts: Sequence[Part] = (), requests: int = REQUESTS) -> Report:
    """Start a server, ask it; all parts unless some are named. Raises BenchFailed."""
    parts = tuple(parts) or tuple(Part)
    figures: list[Figure] = []
    with server() as url:
        for part in parts:
            figures += MEASURES[part](url, requests)
    return Report("api", tuple(figures), {"parts": ", ".join(parts), "requests": requests})


@contextlib.contextmanager
def server(*flags: str) -> Iterator[str]:
    """A server on free ports, as its address; ``flags``: more of them for ``vivavoce serve``."""
    command = (
        "from vivavoce.gateway.cli import main; import sys; "
        "sys.argv[1:1] = 'serve --http-port 0 --audiosocket-port 0 --agent none'.split(); "
        "sys.argv += ['--log-level', 'WARNING']; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = _READY.search(process.stdout.readline())
            if ready is None:
                _, errors = process.communicate(timeout=WITHIN_S)
                raise BenchFailed(f"the server did not start: {errors.strip()[-300:]}")
            yield ready[1]
        finally:
            process.terminate()


def openai_figures(url: str, requests: int) -> list[Figure]:
    """Time to the first byte of PCM over one connection that is kept."""
    first_ms = []
    with connect(url) as connection:
        for number in range(requests + _COLD):
            asked = time.perf_counter()
            answer = _ask(connection, SENTENCES[number % len(SENTENCES)])
            answer.read1(1)
            first_ms.append(1_000 * (time.perf_counter() - asked))
            answer.read()
    p50, p95 = np.percentile(first_ms[_COLD:], [50, 95])
    return [
        Figure("OpenAI pcm, keep-alive: first byte, p50", float(p50), "ms", at_most=MOST_FIRST_BYTE_MS),
        Figure("OpenAI pcm, keep-alive: first byte, p95", float(p95), "ms"),
    ]


def leaving_figures(url: str, requests: int) -> list[Figure]:
    """How long the engine works on for a client that is gone, and how far ahead of one that does not read."""
    forgetting_ms = [_forgetting_ms(url) for _ in range(min(VANISHING, requests))]
    ahead_s, settled_ms = _rendered_for_nobody(url)
    return [
        Figure(
            "a client vanishes: engine free, worst",
            max(forgetting_ms),
            "ms",
            at_most=MOST_FORGETTING_MS,
        ),
        Figure("a client vanishes: engine free, p50", float(np.median(forgetting_ms)), "ms"),
        Figure("a client stops reading: speech rendered for it", ahead_s, "s"),
        Figure("a client stops reading: rendering ends after", settled_ms, "ms", at_most=MOST_FORGETTING_MS),
    ]


def _forgetting_ms(url: str) -> float:
    """From the reset of a connection in the middle of speech to the engine having no stream."""
    with connect(url) as watching, connect(url) as leaving:
        engine = EngineWatch(watching)
        _ask(leaving, _LONG_TEXT).read1(1)
        assert leaving.sock is not None
        leaving.sock.setsockopt(*_RESET_ON_CLOSE)
        left = time.perf_counter()
        leaving.close()
        return engine.free_after_ms(left)


def _rendered_for_nobody(url: str) -> tuple[float, float]:
    """Seconds of speech for a client that reads one byte and no more, and ms until that ends."""
    with connect(url) as watching, connect(url) as stalled:
        engine = EngineWatch(watching)
        _ask(stalled, _LONG_TEXT).read1(1)
        return engine.settled_after(time.perf_counter())


def _ask(connection: http.client.HTTPConnection, text: str) -> http.client.HTTPResponse:
    body = json.dumps({"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"})
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise BenchFailed(f"the server answered {answer.status}: {answer.read().decode()[:300]}")
    return answer


MEASURES: Mapping[Part, Callable[[str, int], list[Figure]]] = {
    Part.OPENAI: openai_figures,
    Part.LEAVING: leaving_figures,
    Part.DASHSCOPE: api_dashscope.figures,
}
