"""Pronunciations, subtitles and the list of voices in the tab Speak."""

import json
from pathlib import Path
from typing import Any, Final

from shared.browser.chromium_calls import needs_chromium
from shared.browser.speak_page import SpeakPage, on_page
from vivavoce.tts_engine.reading.pronunciation.lexicon import Lexicon
from vivavoce.tts_engine.reading.pronunciation.lexicon_files import LexiconFile

pytestmark = needs_chromium

TEXT: Final = "One two three. Four <five> six."
SELECT: Final = """text.focus();
text.setSelectionRange({start}, {stop});
text.dispatchEvent(new Event("select"));"""


async def asked(page: SpeakPage) -> list[dict[str, Any]]:
    bodies = await page.tab.run("probe.asked.map(({ body }) => body).filter(Boolean)")
    return [json.loads(body) for body in bodies]


def test_a_selected_word_is_heard_and_kept_with_its_pronunciation(tmp_path: Path) -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.write(TEXT)
        await page.tab.run(SELECT.format(start=4, stop=7))
        await page.tab.run("respelling.value = 'too'; document.getElementById('try').click()")
        await page.tab.wait_until("probe.sources.length")
        await page.tab.run("pronounce.requestSubmit()")
        await page.play(TEXT)
        heard, played = await asked(page)
        assert (heard["input"], heard["pronunciations"]) == ("two", {"two": "too"})
        assert (played["input"], played["pronunciations"]) == (TEXT, {"two": "too"})
        await page.play("Nothing of it.")
        assert "pronunciations" not in (await asked(page))[-1]
        await page.click("lexicon")
        await page.tab.wait_until("probe.saved.length")
        saved = await page.tab.run("probe.saved.at(-1)")
        (tmp_path / saved["name"]).write_bytes(bytes(saved["bytes"]))
        lexicon = LexiconFile(tmp_path / "lexicon.toml", Lexicon({}))
        lexicon.current()
        lexicon.wait_read()
        assert lexicon.current() != Lexicon({})
        await page.click("#kept button")
        assert await page.tab.run("kept.children.length") == 0

    on_page(scenario)


def test_subtitles_have_the_whole_text_in_the_times_of_its_words() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.write(TEXT)
        name, srt = await page.saved_file("srt")
        assert name.endswith(".srt")
        number, times, line, *_ = srt.decode().split("\n")
        assert (number, times[:17], line) == ("1", "00:00:00,000 --> ", "One two three.")
        _, vtt = await page.saved_file("vtt")
        assert vtt.decode().startswith("WEBVTT\n\n00:00:00.000 --> ")
        assert "\nFour &lt;five&gt; six.\n" in vtt.decode()

    on_page(scenario)


def test_a_voice_is_previewed_and_the_preview_stops_the_speech() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.write(TEXT * 20)
        await page.click("play")
        await page.tab.wait_until("probe.sources.length")
        await page.tab.run("voices.querySelectorAll('.voice button')[1].click()")
        await page.tab.wait_until("voices.querySelectorAll('.voice button')[1].textContent === 'Stop'")
        assert await page.tab.run("document.getElementById('play').textContent") == "Play"
        assert (await asked(page))[-1]["voice"] == "tone-330"

    on_page(scenario)
