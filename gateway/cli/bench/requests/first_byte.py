"""Time to the first byte over kept connections: one client, then many at once, and their throughput."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np

from .....tts_engine.chunk import SAMPLE_RATE
from ..api_clients import ApiClient, SpeechApi, open_client
from ..report import BenchFigure
from .open_loop import SENTENCES, WARM_UP_REQUESTS

MANY_CLIENTS = (20, 50)  # at once
_MAX_FIRST_BYTE_MS = {SpeechApi.OPENAI: 50.0}  # the others: 60
_MAX_ABOVE_NATIVE_MS = 10.0
_MAX_P95_MS = 250.0  # with 20 clients


@dataclass(frozen=True, slots=True)
class _RequestResult:
    first_byte_ms: float
    speech_s: float


async def first_byte_figures(api: SpeechApi, url: str, requests: int, max_clients: int) -> list[BenchFigure]:
    """``requests`` one after another on one connection, then those of ``MANY_CLIENTS`` at once.

    max_clients: that the server takes at once.
    """
    many = [clients for clients in MANY_CLIENTS if clients <= max_clients]
    async with open_client(api, url, max(many, default=1)) as client:
        alone = (await _speak_in_turn(client, requests + WARM_UP_REQUESTS))[WARM_UP_REQUESTS:]
        one = f"{api}, 1 client: first byte"
        figures = [
            BenchFigure(
                _alone_p50(api), _percentile_ms(alone, 50), "ms", at_most=_MAX_FIRST_BYTE_MS.get(api, 60.0)
            ),
            BenchFigure(f"{one}, p95", _percentile_ms(alone, 95), "ms"),
        ]
        for clients in many:
            figures += await _figures_at_once(api, client, clients, max(3, requests // 10))
    return figures


async def _figures_at_once(
    api: SpeechApi, client: ApiClient, clients: int, requests: int
) -> list[BenchFigure]:
    """``requests`` of each client, one after another."""
    started = time.perf_counter()
    by_client = await asyncio.gather(*(_speak_in_turn(client, requests) for _ in range(clients)))
    took_s = time.perf_counter() - started
    together = [result for results in by_client for result in results]
    many = f"{api}, {clients} clients"
    max_p95_ms = _MAX_P95_MS if clients == MANY_CLIENTS[0] else None
    figures = [
        BenchFigure(f"{many}: first byte, p50", _percentile_ms(together, 50), "ms"),
        BenchFigure(f"{many}: first byte, p95", _percentile_ms(together, 95), "ms", at_most=max_p95_ms),
    ]
    if api.has_pcm:
        figures.append(BenchFigure(f"{many}: speech", sum(one.speech_s for one in together) / took_s, "s/s"))
    return figures


def figures_above_native(figures: Sequence[BenchFigure]) -> list[BenchFigure]:
    """How much later than the native WebSocket's the first byte of each API is, by figures of one run.

    Of one client, p50. Empty if the run did not measure the native WebSocket.
    """
    first_byte_ms = {figure.name: figure.value for figure in figures}
    native_ms = first_byte_ms.get(_alone_p50(SpeechApi.NATIVE))
    if native_ms is None:
        return []
    return [
        BenchFigure(
            f"{api}: first byte above native, p50",
            first_byte_ms[_alone_p50(api)] - native_ms,
            "ms",
            at_most=_MAX_ABOVE_NATIVE_MS,
        )
        for api in SpeechApi
        if api is not SpeechApi.NATIVE and _alone_p50(api) in first_byte_ms
    ]


def _alone_p50(api: SpeechApi) -> str:
    return f"{api}, 1 client: first byte, p50"


async def _speak_in_turn(client: ApiClient, requests: int) -> list[_RequestResult]:
    return [await _speak(client, SENTENCES[number % len(SENTENCES)]) for number in range(requests)]


async def _speak(client: ApiClient, text: str) -> _RequestResult:
    started = time.perf_counter()
    first_byte_ms, received = float("inf"), 0
    async for audio in client.speak(_one(text)):
        if not received:
            first_byte_ms = 1_000 * (time.perf_counter() - started)
        received += len(audio)
    return _RequestResult(first_byte_ms, received / 2 / SAMPLE_RATE)


async def _one(text: str) -> AsyncIterator[str]:
    yield text


def _percentile_ms(results: Sequence[_RequestResult], percent: float) -> float:
    return float(np.percentile([result.first_byte_ms for result in results], percent))
