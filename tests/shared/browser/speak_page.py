"""The tab Speak in headless Chromium, of a whole gateway: what was played, saved and asked of the server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from shared.browser.chromium import BrowserTab, Chromium, shared_chromium
from shared.gateways.running_gateway import running_gateway

TIMEOUT_S = 180.0
# Notes what the page plays (the samples of each source and when they start), asks and saves, and its errors.
_PROBE = """
window.probe = { sources: [], asked: [], saved: [], errors: [], firstSounds: [] };
addEventListener("error", ({ message }) => probe.errors.push(message));
addEventListener("unhandledrejection", ({ reason }) => probe.errors.push(String(reason)));
document.addEventListener("vivavoce:first-sound", ({ detail }) => probe.firstSounds.push(detail.ms));
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (at) {
  probe.sources.push({ at, rate: this.buffer.sampleRate, samples: this.buffer.getChannelData(0) });
  return start.call(this, at);
};
const ask = window.fetch;
window.fetch = (path, request) => {
  probe.asked.push({ path, body: request?.body });
  return ask(path, request);
};
const blobs = new Map(), makeUrl = URL.createObjectURL;
URL.createObjectURL = (blob) => { const url = makeUrl(blob); blobs.set(url, blob); return url; };
const click = HTMLAnchorElement.prototype.click;
HTMLAnchorElement.prototype.click = function () {
  if (!this.download) return click.call(this);
  probe.saved.push(blobs.get(this.href).arrayBuffer()
    .then((bytes) => ({ name: this.download, bytes: Array.from(new Uint8Array(bytes)) })));
};
"""


@dataclass
class SpeakPage:
    """A tab of the page, with the gateway's URL."""

    tab: BrowserTab
    url: str
    browser: Chromium

    async def write(self, text: str) -> None:
        """Replace the text."""
        await self.tab.run(f"text.value = {text!r}; text.dispatchEvent(new Event('input'))")

    async def click(self, element: str) -> None:
        """Click an element, by its id or a selector."""
        selector = element if element[0] in "#.[" else f"#{element}"
        await self.tab.run(f"document.querySelector({selector!r}).click()")

    async def play(self, text: str) -> None:
        """Play a text to its end."""
        await self.write(text)
        await self.click("play")
        await self.until_spoken()

    async def until_spoken(self) -> None:
        """Wait until all of the text has been heard."""
        await self.tab.wait_until("document.getElementById('status').textContent.startsWith('Spoken in')")

    async def notice(self) -> str:
        """The notice that the page shows, when it shows one."""
        await self.tab.wait_until("!notice.hidden")
        return str(await self.tab.run("notice.textContent"))

    async def saved_file(self, button: str) -> tuple[str, bytes]:
        """Press a button of the downloads; return name and content of the file."""
        before = await self.tab.run("probe.saved.length")
        await self.click(f"#downloads [value={button}]")
        await self.tab.wait_until(f"probe.saved.length > {before}")
        saved = await self.tab.run("probe.saved.at(-1)")
        return saved["name"], bytes(saved["bytes"])


@asynccontextmanager
async def opened_page(
    browser: Chromium, url: str, *init_scripts: str, key: str = ""
) -> AsyncIterator[SpeakPage]:
    """Open the tab Speak, as a user who enters the key, and check at the end that it had no error."""
    tab = await browser.new_tab()
    for script in (_PROBE, *init_scripts):
        await tab.add_init_script(script)
    if key:
        await tab.command("Network.enable")
        await tab.command("Network.setExtraHTTPHeaders", headers={"authorization": f"Bearer {key}"})
    await tab.open(url)
    if key:  # from now on, the page has its cookie
        await tab.command("Network.setExtraHTTPHeaders", headers={})
    await tab.wait_until("document.querySelector('.voice, #clone:not([hidden])') || !notice.hidden")
    yield SpeakPage(tab, url, browser)
    assert await tab.run("probe.errors") == []
    await tab.close()


def on_page(
    test: Callable[[SpeakPage], Awaitable[None]], *init_scripts: str, key: str = "", **settings: Any
) -> None:
    """Run a test on the page of a gateway of two tones, with those settings."""

    async def run() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            running_gateway(**settings) as url,
            shared_chromium() as browser,
            opened_page(browser, url, *init_scripts, key=key) as page,
        ):
            await test(page)

    asyncio.run(run())
