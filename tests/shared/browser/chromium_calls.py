"""Calls from headless Chromium to a server of stand-in voices, for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from benches.browser_calls import serve_browser_calls
from shared.browser.chromium import BrowserTab, Chromium, find_chromium, loopback_only, shared_chromium
from shared.engine.standin_backend import StandInBackend
from vivavoce.gateway.calls.agents.agent import Agent
from vivavoce.gateway.calls.ways_in.browser.calls import BrowserCalls
from vivavoce.gateway.calls.ways_in.browser.settings import BrowserCallSettings
from vivavoce.tts_engine.engine import Engine

needs_chromium = pytest.mark.skipif(
    find_chromium() is None, reason="needs Chromium: apt-get install chromium"
)

TIMEOUT_S = 180.0
LONG = "one two three four five six seven eight nine ten eleven twelve " * 20  # longer than any test


@dataclass
class BrowserFixture:
    calls: BrowserCalls
    url: str
    browser: Chromium


@asynccontextmanager
async def fixture(
    *, engine: Callable[[], Awaitable[Engine]] | None = None, agent: Agent | None = None, **settings: Any
) -> AsyncIterator[BrowserFixture]:
    browser_settings = BrowserCallSettings(**{"greeting": "", **settings})
    opening = Engine.open(backend=StandInBackend((440, 660))) if engine is None else engine()
    async with await opening as opened:
        with loopback_only():
            async with (
                serve_browser_calls(opened, browser_settings, agent) as (calls, url),
                shared_chromium() as browser,
            ):
                yield BrowserFixture(calls, url, browser)


def with_browser(test: Callable[[BrowserFixture], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(TIMEOUT_S), fixture(**settings) as opened:
            await test(opened)

    asyncio.run(run())


async def type_in(tab: BrowserTab, text: str) -> None:
    """Type ``text`` and press Speak."""
    await tab.run(f"text.value = {text!r}; say.requestSubmit()")
