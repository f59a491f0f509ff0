"""Calls from headless Chromium to a server with the stand-in backend, for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from benches.browser_calls import serve_browser_calls
from shared.chromium import BrowserTab, Chromium, find_chromium, loopback_only, open_chromium
from shared.standin_backend import StandInBackend
from vivavoce.gateway.browser.calls import BrowserCalls
from vivavoce.gateway.browser.settings import BrowserCallSettings
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
async def open_browser(**settings: Any) -> AsyncIterator[BrowserFixture]:
    """Serve browser calls and start Chromium; ``settings`` are fields of ``BrowserCallSettings``."""
    call_settings = BrowserCallSettings(**{"greeting": "", **settings})
    async with await Engine.open(backend=StandInBackend((440, 660))) as engine:
        with loopback_only():
            async with serve_browser_calls(engine, call_settings) as (calls, url), open_chromium() as browser:
                yield BrowserFixture(calls, url, browser)


def with_browser(test: Callable[[BrowserFixture], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(TIMEOUT_S), open_browser(**settings) as opened:
            await test(opened)

    asyncio.run(run())


async def type_in(tab: BrowserTab, text: str) -> None:
    """Type ``text`` and press Speak."""
    await tab.run(f"text.value = {text!r}; say.requestSubmit()")
