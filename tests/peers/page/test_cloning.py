"""Cloning in the page: a voice of random weights made with four clicks, and unusable recordings."""

import asyncio
import base64
import io
import wave
from contextlib import aclosing
from pathlib import Path
from typing import Final

import numpy as np
import pytest

pytest.importorskip("torch", reason="the networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.browser.chromium import shared_chromium
from shared.browser.chromium_calls import needs_chromium
from shared.browser.speak_page import TIMEOUT_S, SpeakPage, on_page, opened_page
from shared.gateways.made_settings import make_settings
from shared.voices.cosyvoice_bundles import write_random_bundle
from shared.voices.tiny_cosyvoice import BRIEF
from vivavoce.gateway.apis.dialects.openai.recording_transcriber import RecordingTranscriber
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.cosyvoice import policy

pytestmark = needs_chromium

RATE: Final = 24_000
TONE: Final = 0.3 * np.sin(np.arange(5 * RATE) / 8)
VOICES: Final = "[...voices.querySelectorAll('label span')].map((name) => name.firstChild.textContent)"
# Chooses a sound file, as a user does in the dialog.
CHOOSE: Final = """{{
  const bytes = Uint8Array.from(atob({content!r}), (letter) => letter.charCodeAt(0));
  const chosen = new DataTransfer();
  chosen.items.add(new File([bytes, new Uint8Array({padding})], "voice.wav"));
  file.files = chosen.files;
  file.dispatchEvent(new Event("change"));
}}"""


def wav_of(samples: np.ndarray, channels: int = 1) -> bytes:
    """A sound file of samples in [-1, 1], those of the channels in turn."""
    content = io.BytesIO()
    with wave.open(content, "wb") as wav:
        wav.setnchannels(channels)
        wav.setsampwidth(2)
        wav.setframerate(RATE)
        wav.writeframes((32_767 * np.clip(samples, -1, 1)).astype("<i2").tobytes())
    return content.getvalue()


async def choose(page: SpeakPage, content: bytes, padding: int = 0) -> None:
    await page.tab.run(CHOOSE.format(content=base64.b64encode(content).decode(), padding=padding))


def test_four_clicks_make_a_voice_that_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "policy_for", lambda *arguments: BRIEF)
    write_random_bundle(tmp_path / "cosy", 2, "tiny", 1)
    settings = make_settings(
        bundle_folder=str(tmp_path / "cosy"),
        bundle_device="cpu",
        voices_store=tmp_path / "voices",
        http_port=0,
        audiosocket_port=0,
        agents_default="none",
    )

    monkeypatch.setattr("vivavoce.gateway.page.routes.can_transcribe", lambda: True)
    said = [
        "The harbour was still asleep when the boats came in. Nobody spoke, there was only water.",
        "Anna.",
    ]
    monkeypatch.setattr(RecordingTranscriber, "_transcribe", lambda self, data: said[0])

    async def scenario(page: SpeakPage) -> None:
        await page.write("One.")
        await page.tab.wait_until("!document.getElementById('clone').hidden")
        await page.click("clone")
        await page.click("record")  # stops by itself; Chromium's microphone beeps
        await page.tab.wait_until("recorded.textContent.endsWith('s recorded.')")
        assert (await page.tab.run("transcript.value")).endswith("far away a bell that rang twice.")
        await page.click("consent")
        await page.click("make-voice")
        await page.until_spoken()
        assert await page.tab.run(VOICES) == ["nobody", "My voice"]
        await page.tab.run("window.prompt = () => 'Anna'; window.confirm = () => true")
        await page.click("rename")
        await page.tab.wait_until(f"{VOICES}[1] === 'Anna'")
        await page.click("delete")
        await page.tab.wait_until(f"{VOICES}.length === 1")
        del said[0]
        await page.click("clone")
        await choose(page, wav_of(TONE))
        await page.tab.wait_until("transcript.value === 'Anna.'")
        await page.tab.run("transcript.value = 'What I wrote.'")
        await choose(page, wav_of(TONE))
        await page.tab.wait_until("recorded.textContent.endsWith('s recorded.')")
        assert await page.tab.run("transcript.value") == "What I wrote."

    async def run() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            aclosing(await Gateway.open(settings)) as gateway,
            shared_chromium() as browser,
        ):
            host, port = gateway.addresses.http
            async with opened_page(browser, f"http://{host}:{port}") as page:
                await scenario(page)

    asyncio.run(run())


STEREO: Final = np.stack([TONE, TONE[::-1] * 0.2], axis=1).ravel()
FAULTS: Final = {
    "silent": (wav_of(np.zeros(5 * RATE)), "There is no sound in it.", False),
    "short": (wav_of(TONE[:RATE]), "It is too short: 1.0 s.", False),
    "quiet": (wav_of(TONE / 10), "It is very quiet.", True),
    "clipped": (wav_of(TONE * 10), "It is clipped: too loud.", True),
    "two channels": (wav_of(STEREO, 2), "It has two different channels", True),
    "long": (wav_of(np.tile(TONE, 7)), "The first 29 s of 35 are used.", True),
    "no sound file": (b"no sound", "The browser cannot read this file as sound.", False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_recording_is_said_at_once(fault: str) -> None:
    content, told, is_usable = FAULTS[fault]

    async def scenario(page: SpeakPage) -> None:
        await page.tab.run("document.getElementById('clone').onclick(); consent.click()")
        await choose(page, content)
        notice = "document.getElementById('cloning-notice')"
        await page.tab.wait_until(f"{notice}.textContent.startsWith({told!r})")
        is_enabled = "!document.getElementById('make-voice').disabled"
        assert await page.tab.run(is_enabled) is is_usable
        await choose(page, wav_of(TONE))
        await page.tab.wait_until(f"{notice}.hidden && {is_enabled}")
        await choose(page, wav_of(TONE), padding=40 * 2**20)
        await page.tab.wait_until(f"{notice}.textContent.startsWith('The file has 40 MB; at most 16 MB')")

    on_page(scenario)
