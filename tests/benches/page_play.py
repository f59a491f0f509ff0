"""First sound of the page's tab Speak after Play: headless Chromium, the packaged voice, one user.

The page itself says when its first sample is heard, by the clock of its audio output.
"""

import asyncio
from itertools import cycle, islice
from typing import Final

import numpy as np

from shared.browser.chromium import open_chromium
from shared.browser.speak_page import opened_page
from shared.gateways.server_process import server_process
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_TEXTS: Final = (
    "Your balance is 1,204 dollars and 50 cents.",
    "Good morning, this is the clinic of Dr. Adams. Your appointment is on Tuesday at half past nine.",
    "Parcel 4 7 1 1 leaves the depot at 6 pm and will be with you tomorrow.",
    "The lighthouse was lit for the first time in 1871.",
)


def measure(plays: int, url: str | None = None) -> BenchReport:
    """Play texts one after another, each up to its first sound; url: of a server that runs, or None."""
    times_ms = asyncio.run(_play_on_server(plays) if url is None else _play(url, plays))
    figures = (
        BenchFigure("first sound after Play, p50", float(np.percentile(times_ms, 50)), "ms"),
        BenchFigure("p95", float(np.percentile(times_ms, 95)), "ms"),
        BenchFigure("longest", max(times_ms), "ms"),
    )
    return BenchReport("page-play", figures, {"plays": plays})


async def _play_on_server(plays: int) -> list[float]:
    async with server_process() as (_, url):
        return await _play(url, plays)


async def _play(url: str, plays: int) -> list[float]:
    async with (
        open_chromium() as browser,
        opened_page(browser, url) as page,
    ):
        for number, text in enumerate(islice(cycle(_TEXTS), plays), 1):
            await page.write(f"{text} {number}")  # not what is kept of an earlier one
            await page.click("play")
            await page.tab.wait_until(f"probe.firstSounds.length >= {number}")
            await page.click("stop")
        return [float(ms) for ms in await page.tab.run("probe.firstSounds")]
