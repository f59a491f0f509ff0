"""Clients that disconnect or stop reading during speech: how long the engine continues to render for them."""

import asyncio
import time

import numpy as np

from ..api_clients import SpeechApi, speaking_transport
from ..engine_watch import EngineWatch, open_connection
from ..report import BenchFigure
from .open_loop import SENTENCES

_MAX_CLEANUP_MS = 100.0
_LONG_TEXT = " ".join(SENTENCES * 20)


async def disconnect_figures(api: SpeechApi, url: str, clients: int) -> list[BenchFigure]:
    """``clients`` that reset their connection, one after another, and one that stops reading."""
    cleanup_ms = [await _cleanup_after_reset_ms(api, url) for _ in range(clients)]
    ahead_s, settled_ms = await _rendered_for_stalled_client(api, url)
    vanished, stalled = f"{api}, a client disconnects", f"{api}, a client stops reading"
    return [
        BenchFigure(f"{vanished}: engine idle, worst", max(cleanup_ms), "ms", at_most=_MAX_CLEANUP_MS),
        BenchFigure(f"{vanished}: engine idle, p50", float(np.median(cleanup_ms)), "ms"),
        BenchFigure(f"{stalled}: speech rendered", ahead_s, "s"),
        BenchFigure(f"{stalled}: rendering stops after", settled_ms, "ms", at_most=_MAX_CLEANUP_MS),
    ]


async def _cleanup_after_reset_ms(api: SpeechApi, url: str) -> float:
    """From the reset of a connection in the middle of speech until the engine has no stream."""
    with open_connection(url) as metrics:
        engine = await asyncio.to_thread(EngineWatch, metrics)
        async with speaking_transport(api, url, _LONG_TEXT) as transport:
            reset_at = time.perf_counter()
            transport.abort()
            return await asyncio.to_thread(engine.idle_after_ms, reset_at)


async def _rendered_for_stalled_client(api: SpeechApi, url: str) -> tuple[float, float]:
    """Seconds of speech rendered for a client that stops reading, and ms until rendering ends."""
    with open_connection(url) as metrics:
        engine = await asyncio.to_thread(EngineWatch, metrics)
        async with speaking_transport(api, url, _LONG_TEXT) as transport:
            transport.pause_reading()
            figures = await asyncio.to_thread(engine.rendered_until_settled, time.perf_counter())
            transport.abort()
            return figures
