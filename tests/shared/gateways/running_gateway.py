"""A whole gateway on the loopback interface, whose two voices are tones, and an HTTP client of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx

from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.engine import Engine

from ..engine.standin_backend import StandInBackend
from .made_settings import make_settings

PITCHES_HZ = (440, 330)  # of the voices tone-440, the default, and tone-330
_TIMEOUT_S = 60.0


@asynccontextmanager
async def running_gateway(**changed: Any) -> AsyncIterator[str]:
    """Open a gateway with those settings; yields its URL."""
    settings = make_settings(**{"http_port": 0, "audiosocket_port": 0, "agents_default": "none", **changed})
    async with (
        await Engine.open(backend=StandInBackend(PITCHES_HZ)) as engine,
        aclosing(await Gateway.open(settings, engine=engine)) as gateway,
    ):
        host, port = gateway.addresses.http
        yield f"http://{host}:{port}"


def ask_gateway(questions: Callable[[httpx.AsyncClient], Awaitable[None]], **changed: Any) -> None:
    """Run a coroutine with a client of a gateway with those settings, for at most a minute."""

    async def run() -> None:
        async with (
            asyncio.timeout(_TIMEOUT_S),
            running_gateway(**changed) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=_TIMEOUT_S) as client,
        ):
            await questions(client)

    asyncio.run(run())
