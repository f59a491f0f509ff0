"""The tab Speak where something is missing or goes wrong: the text stays, and the page says what happened."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from shared.browser.chromium import shared_chromium
from shared.browser.chromium_calls import needs_chromium
from shared.browser.speak_page import TIMEOUT_S, SpeakPage, on_page, opened_page
from shared.gateways.server_process import server_process
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope

pytestmark = needs_chromium

LONG: Final = "one two three four five six seven eight nine ten eleven twelve. " * 40
WITHOUT_STORAGE: Final = """for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, { get() { throw new DOMException("switched off"); } });"""
WITHOUT_MEDIA_SOURCE: Final = "delete window.MediaSource; delete window.ManagedMediaSource;"
# A browser that allows no sound until it is asked twice.
WITHOUT_AUTOPLAY: Final = """const resume = AudioContext.prototype.resume;
  window.asked = 0;
  const state = { get() { return asked > 2 ? "running" : "suspended"; } };
  Object.defineProperty(AudioContext.prototype, "state", state);
  AudioContext.prototype.resume = function () { asked++; return resume.call(this); };"""
# Selects the first word and keeps a pronunciation of it.
KEEP: Final = """text.setSelectionRange(0, {length}); text.dispatchEvent(new Event("select"));
  respelling.value = "too"; pronounce.requestSubmit();"""


def test_a_text_of_200_000_characters_is_kept_and_not_spoken() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.tab.run("text.value = 'word '.repeat(40_000); text.dispatchEvent(new Event('input'))")
        await page.click("play")
        assert (await page.notice()).startswith("The text has 200,000 characters; this page speaks 50,000")
        assert await page.tab.run("text.value.length") == 200_000

    on_page(scenario)


def test_a_text_longer_than_a_request_is_spoken_in_pieces_without_a_gap() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.play("One two three. Four five six. Seven eight nine.")
        asked = await page.tab.run(
            "probe.asked.filter(({ body }) => body).map(({ body }) => JSON.parse(body).input)"
        )
        assert asked == ["One two three. ", "Four five six. ", "Seven eight nine."]

    on_page(scenario, apis_max_input_characters=20)


def test_without_storage_and_media_source_the_page_plays_and_forgets() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.play("One.")
        assert await page.tab.run("texts.children.length") == 1

    on_page(scenario, WITHOUT_STORAGE, WITHOUT_MEDIA_SOURCE)


def test_a_refusal_of_sound_is_told_and_a_second_press_plays() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.write("One.")
        await page.click("play")
        assert "Press Play once more" in await page.notice()
        await page.tab.run("asked = 9")
        await page.click("play")
        await page.until_spoken()

    on_page(scenario, WITHOUT_AUTOPLAY)


def test_a_key_that_is_revoked_is_named(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("me", (Scope.SPEAK,), KeyLimits())
    keys.add("other", (Scope.SPEAK,), KeyLimits())

    async def scenario(page: SpeakPage) -> None:
        await page.write(LONG)
        await page.click("play")  # whose later pieces are asked for when the first ones have been heard
        await page.tab.wait_until("Number(seek.max) > 60")
        keys.revoke(key[3:11])
        await page.tab.run("seek.value = seek.max; seek.dispatchEvent(new Event('input'))")
        assert (await page.notice()).startswith("Your key is not valid any more.")
        await page.write("Two.")
        await page.click("play")
        assert (await page.notice()).startswith("Your key is not valid any more.")
        assert await page.tab.run("text.value") == "Two."

    settings = {"access_keys_file": tmp_path / "keys.json", "apis_max_input_characters": 200}
    on_page(scenario, key=key, **settings)


def test_two_tabs_speak_at_once_and_share_the_pronunciations() -> None:
    async def scenario(page: SpeakPage) -> None:
        async with opened_page(page.browser, page.url) as other:
            words = {"Alpha": page, "Beta": other}
            for word, tab in words.items():
                await tab.tab.command("Page.bringToFront")
                await tab.write(f"{word} one two.")
                await tab.tab.run(KEEP.format(length=len(word)))
                await tab.click("play")
            for word, tab in words.items():
                await tab.tab.command("Page.bringToFront")
                await tab.until_spoken()
                history = await tab.tab.run("[...texts.children].map((item) => item.textContent)")
                assert history == [f"{word} one two."]
                assert await tab.tab.run("kept.children.length") == 2

    on_page(scenario)


def test_text_from_right_to_left_is_written_so() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.write("مرحبا بالعالم")
        directions = "[text, heard].map((element) => getComputedStyle(element).direction)"
        await page.tab.run("heard.textContent = text.value")
        assert await page.tab.run(directions) == ["rtl", "rtl"]

    on_page(scenario)


def test_a_server_that_restarts_during_play_is_named_and_can_be_asked_again() -> None:
    async def run() -> None:
        async with AsyncExitStack() as opened:
            process, url = await opened.enter_async_context(server_process(0))
            browser = await opened.enter_async_context(shared_chromium())
            page = await opened.enter_async_context(opened_page(browser, url))
            await page.write(LONG)
            await page.click("play")
            await page.tab.wait_until("probe.sources.length")
            process.kill()
            await process.wait()
            await page.write("Again.")
            await page.click("stop")
            await page.click("play")
            await page.tab.wait_until("notice.textContent.endsWith('does not answer.')")
            assert await page.tab.run("[play.textContent, text.value]") == ["Play", "Again."]
            await opened.enter_async_context(server_process(int(url.rpartition(":")[2])))
            await page.click("play")
            await page.until_spoken()

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
