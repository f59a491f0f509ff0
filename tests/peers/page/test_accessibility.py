"""Both tabs for keyboards, screen readers and small screens, and what the page weighs on the wire."""

from typing import Final

from shared.browser.accessibility import accessibility_faults
from shared.browser.chromium_calls import needs_chromium
from shared.browser.speak_page import SpeakPage, on_page

pytestmark = needs_chromium

MAX_PAGE_BYTES: Final = 150_000
LONG: Final = "one two three four five six seven eight nine ten eleven twelve " * 20
# Bytes as they were sent, with headers, and the hosts that were asked.
LOADED: Final = """(() => {
  const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const files = all.filter(({ name }) => !/\\/(v1|dev|status)\\b/.test(new URL(name).pathname));
  return { bytes: files.reduce((sum, { transferSize }) => sum + transferSize, 0), files: files.length,
           hosts: [...new Set(all.map(({ name }) => new URL(name).host))] };
})()"""
WIDTHS: Final = {"a telephone": 390, "a desk": 1_440}
SCROLLS_SIDEWAYS: Final = "document.documentElement.scrollWidth > innerWidth"


async def check_looks(page: SpeakPage) -> None:
    """The state that is shown, dark and light, narrow and wide."""
    for name, width in WIDTHS.items():
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        await page.tab.command("Emulation.setDeviceMetricsOverride", **size)
        assert not await page.tab.run(SCROLLS_SIDEWAYS), name
    for scheme in ("dark", "light"):
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        await page.tab.command("Emulation.setEmulatedMedia", features=features)
        assert await accessibility_faults(page.tab) == [], scheme


def test_no_state_of_a_tab_has_a_fault_or_loads_much_or_from_elsewhere() -> None:
    async def scenario(page: SpeakPage) -> None:
        async def check_weight() -> None:
            loaded = await page.tab.run(LOADED)
            assert loaded["hosts"] == [page.url.removeprefix("http://")]
            assert loaded["files"] > 5 and loaded["bytes"] < MAX_PAGE_BYTES

        await check_weight()
        await page.write(LONG)
        await page.click("play")
        await page.tab.wait_until("heard.querySelector('mark')")
        await page.click("#snippets button")
        await check_looks(page)
        await page.click("stop")
        await page.write("x" * 50_001)
        await page.click("play")
        await page.tab.run("document.getElementById('clone').onclick()")
        await check_looks(page)
        await page.tab.open(f"{page.url}/call")
        await check_weight()
        await check_looks(page)
        await page.tab.open(page.url)  # whose probe looks for errors at the end

    on_page(scenario)
