"""The tab Speak where something is missing or goes wrong: the text stays, and the page says what happened."""

import asyncio
import sys
from pathlib import Path
from typing import Final

from shared.browser.chromium import open_chromium
from shared.browser.chromium_calls import needs_chromium
from shared.browser.speak_page import TIMEOUT_S, SpeakPage, on_page, opened_page
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
SERVER: Final = """
import asyncio, sys
from vivavoce.gateway.serve import serve
from vivavoce.gateway.configuration.settings_loader import load_settings

settings = load_settings(flags={"http_port": 0, "audiosocket_port": 0})
asyncio.run(serve(settings, announce=lambda line: print(line, flush=True)))
"""


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
        await page.play("One.")
        keys.revoke(key[3:11])
        await page.write("Two.")
        await page.click("play")
        assert (await page.notice()).startswith("Your key is not valid any more.")
        assert await page.tab.run("text.value") == "Two."

    on_page(scenario, key=key, access_keys_file=tmp_path / "keys.json")


def test_text_from_right_to_left_is_written_so() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.write("مرحبا بالعالم")
        directions = "[text, heard].map((element) => getComputedStyle(element).direction)"
        await page.tab.run("heard.textContent = text.value")
        assert await page.tab.run(directions) == ["rtl", "rtl"]

    on_page(scenario)


def test_a_server_that_goes_away_during_play_is_named_and_can_be_asked_again() -> None:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert process.stdout is not None
        try:
            line = (await process.stdout.readline()).decode()
            url = "http://" + line.partition("http://")[2].partition(",")[0]
            async with open_chromium() as browser, opened_page(browser, url) as page:
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
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
