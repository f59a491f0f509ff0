"""The tab Speak in headless Chromium: what is heard, marked, saved and remembered."""

import io
import json
import wave
from typing import Any, Final

import numpy as np
import pytest

from shared.browser.chromium_calls import needs_chromium
from shared.browser.speak_page import SpeakPage, on_page
from vivavoce.tts_engine.chunk import SAMPLE_RATE

pytestmark = needs_chromium

TEXT: Final = "One two three four five."
# The samples of all sources in their order, and the seconds between each and the next.
PLAYED: Final = """(() => {
  const { sources } = probe, { rate } = sources[0];
  const end = ({ at, samples }) => at + samples.length / rate;
  const gaps = sources.slice(1).map(({ at }, i) => at - end(sources[i]));
  const whole = (sample) => Math.round(sample * 32768);
  const samples = sources.flatMap(({ samples }) => Array.from(samples, whole));
  return { rate, gaps, samples };
})()"""


def samples_of(file: bytes) -> np.ndarray[Any, np.dtype[np.int16]]:
    with wave.open(io.BytesIO(file)) as wav:
        assert wav.getparams()[:3] == (1, 2, SAMPLE_RATE)
        return np.frombuffer(wav.readframes(wav.getnframes()), "<i2")


def test_play_sounds_every_sample_of_the_text_without_a_gap() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.play(TEXT)
        played = await page.tab.run(PLAYED)
        assert played["rate"] == SAMPLE_RATE
        assert max(map(abs, played["gaps"]), default=0) < 1e-6
        _, file = await page.saved_file("wav")
        assert np.array_equal(played["samples"], samples_of(file))
        assert len(await page.tab.run("probe.firstSounds")) == 1

    on_page(scenario)


def test_the_words_are_marked_in_their_order_and_the_mark_goes_at_the_end() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.tab.run("""window.marked = new Set();
            new MutationObserver(() => marked.add(heard.querySelector("mark")?.textContent)).observe(
                heard, { childList: true, subtree: true, characterData: true });""")
        await page.play(TEXT)
        marked = await page.tab.run("[...marked].filter(Boolean)")
        assert " ".join(marked) == TEXT
        assert await page.tab.run("heard.textContent") == ""

    on_page(scenario)


def test_pause_seek_and_stop() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.write("one two three four five six seven eight nine ten eleven twelve " * 4)
        await page.click("play")
        await page.tab.wait_until("Number(seek.value) > 0.3")
        await page.click("play")
        assert await page.tab.run("play.textContent") == "Resume"
        at = await page.tab.run("Number(seek.value)")
        await page.tab.wait_until("!time.textContent.endsWith('…')")
        await page.tab.run(f"seek.value = {at + 3}; seek.dispatchEvent(new Event('input'))")
        await page.click("play")
        await page.tab.wait_until(f"Number(seek.value) > {at + 3.2}")
        await page.click("stop")
        assert await page.tab.run(
            "[play.textContent, document.getElementById('stop').disabled, time.textContent]"
        ) == [
            "Play",
            True,
            "0:00",
        ]

    on_page(scenario)


def test_the_chosen_voice_speed_and_sound_are_heard() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.tab.run("voices.querySelector('[value=tone-330]').click()")
        await page.click("[name=sound][value='8000']")
        await page.play(TEXT)
        played = await page.tab.run(PLAYED)
        assert played["rate"] == 8_000
        spectrum = np.abs(np.fft.rfft(played["samples"]))
        assert spectrum.argmax() * 8_000 / len(played["samples"]) == pytest.approx(330, abs=5)
        await page.tab.run("speed.value = 2; speed.dispatchEvent(new Event('input'))")
        await page.play(TEXT)
        (_, _), (_, asked) = [
            (one["path"], json.loads(one["body"]))
            for one in await page.tab.run("probe.asked")
            if one.get("body")
        ]
        assert (asked["speed"], asked["voice"], asked["input"]) == (2, "tone-330", TEXT)

    on_page(scenario)


MAGIC: Final = {"wav": b"RIFF", "mp3": (b"ID3", b"\xff\xf3", b"\xff\xfb"), "opus": b"OggS", "flac": b"fLaC"}


def test_every_format_is_saved_under_the_words_of_the_text() -> None:
    async def scenario(page: SpeakPage) -> None:
        await page.write(TEXT)
        for format_name, magic in MAGIC.items():
            name, file = await page.saved_file(format_name)
            assert name == f"one-two-three-four.{format_name}"
            assert file.startswith(magic) and len(file) > 1_000

    on_page(scenario)


def test_the_texts_of_the_session_are_kept_until_they_are_forgotten() -> None:
    async def scenario(page: SpeakPage) -> None:
        for text in ("One.", "Two."):
            await page.play(text)
        assert await page.tab.run("[...texts.children].map((item) => item.textContent)") == ["Two.", "One."]
        await page.tab.run("texts.children[1].querySelector('button').click()")
        assert await page.tab.run("text.value") == "One."
        await page.click("forget")
        assert await page.tab.run(
            "[sessionStorage.getItem('vivavoce.texts'), document.getElementById('history').hidden]"
        ) == ["[]", True]

    on_page(scenario)
