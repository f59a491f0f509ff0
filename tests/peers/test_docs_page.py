"""The page of the OpenAPI document in headless Chromium: its forms send requests with the key."""

import asyncio
from pathlib import Path

from shared.browser.chromium import BrowserTab, shared_chromium
from shared.browser.chromium_calls import needs_chromium
from shared.gateways.running_gateway import running_gateway
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope

pytestmark = needs_chromium

TIMEOUT_S = 180.0
SPEECH = "document.querySelector('form[data-path=\"/v1/audio/speech\"]')"
VIOLATIONS = """window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.blockedURI));"""


async def _send(tab: BrowserTab, form: str, answer: str) -> None:
    await tab.run(f"{form}.closest('details').open = true; {form}.requestSubmit()")
    await tab.wait_until(f"{form}.querySelector('output').textContent.includes('{answer}')")


def test_an_example_is_sent_from_the_page_with_the_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = KeysFile(file).add("reader", (Scope.SPEAK,), KeyLimits())

    async def scenario() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            running_gateway(access_keys_file=file) as url,
            shared_chromium() as browser,
        ):
            tab = await browser.new_tab()
            await tab.add_init_script(VIOLATIONS)
            await tab.open(f"{url}/docs")
            await _send(tab, SPEECH, "invalid_api_key")
            await tab.run(f"key.value = '{key}'; key.dispatchEvent(new Event('input'))")
            await _send(tab, SPEECH, "200 OK audio/mpeg")
            await tab.wait_until(f"{SPEECH}.querySelector('audio')?.duration > 0.1")
            voice = "document.querySelector('form[data-path=\"/voices/{voice_id}\"]')"
            await tab.run(f"{voice}.elements.voice_id.value = 'tone-440'")
            await _send(tab, voice, '"id": "tone-440"')
            for path in ("/v1/audio/speech/stream", "/v1/speak"):  # of native clients and of Deepgram's
                socket = f"document.querySelector('form[data-socket=\"{path}\"]')"
                await _send(tab, socket, "Flushed" if path == "/v1/speak" else "session.done")
            await tab.open(f"{url}/docs")
            assert await tab.run("key.value") == key
            assert await tab.run("violations") == []

    asyncio.run(scenario())
