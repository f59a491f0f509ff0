"""Calls from headless Chromium over loopback, with the gateway's page."""

import asyncio
import base64
import io
import wave

import numpy as np
import pytest

from benches.browser_calls import hang_up, probed_call, start_call
from shared.browser.chromium import BrowserTab
from shared.browser.chromium_calls import LONG, BrowserFixture, needs_chromium, type_in, with_browser

pytestmark = needs_chromium


async def measure_pitch(tab: BrowserTab) -> float:
    """Return the frequency (Hz) of the received audio, from a spectrum without a gap in the audio."""
    return float(
        await tab.run("""(async () => {
          const context = bench.context, source = context.createMediaStreamSource(remote.srcObject);
          const analyser = new AnalyserNode(context, { fftSize: 8192, smoothingTimeConstant: 0 });
          source.connect(analyser);
          const levels = new Float32Array(analyser.frequencyBinCount);
          do {
            await new Promise((done) => setTimeout(done, 400));
            analyser.getFloatFrequencyData(levels);
          } while (Math.max(...levels) < -35);
          return levels.indexOf(Math.max(...levels)) * context.sampleRate / 8192;
        })()""")
    )


# Records every state of the transcript as "text before|marked word"; polling could miss one.
RECORD_TRANSCRIPT = """
    window.marked = [];
    const written = (name) => turns.querySelector(name)?.textContent ?? "";
    new MutationObserver(() => marked.push(written("span") + "|" + written("mark"))).observe(
        turns, { childList: true, subtree: true, characterData: true });
"""


def test_the_greeting_is_received_without_packet_loss() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run("bench.next('onset')")
            await tab.wait_until("turns.querySelector('.rest')?.textContent === ''")  # played to its end
            assert await tab.run("turns.innerText.trim()") == "Good day to you."
            await tab.wait_until("!bench.audible")
            while (inbound := await tab.run("bench.inbound()"))["received"] <= 30:
                await asyncio.sleep(0.05)
            assert inbound["lost"] == 0

    with_browser(scenario, greeting="Good day to you.")


def test_typed_text_is_spoken_in_the_chosen_voice_and_the_current_word_is_marked() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run("voice.value = 'tone-660'; voice.dispatchEvent(new Event('change'))")
            await tab.run(RECORD_TRANSCRIPT)
            await type_in(tab, LONG)
            await tab.run("bench.next('onset')")
            await tab.wait_until("marked.includes('one two |three')")
            assert await measure_pitch(tab) == pytest.approx(660, abs=6)
            await tab.wait_until("Number.parseInt(document.getElementById('n-ttfa').textContent) > 0")

    with_browser(scenario)


@pytest.mark.parametrize(
    "interruption",
    [
        "interrupt.click()",
        "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))",
        "bench.speakInto({noise!r}, 24000)",
    ],
)
def test_an_interruption_stops_the_sound_and_strikes_out_the_rest(interruption: str) -> None:
    noise = np.random.default_rng(1).normal(0, 4_000, 12_000).astype("<i2").tobytes()
    interruption = interruption.replace("{noise!r}", repr(base64.b64encode(noise).decode()))

    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await type_in(tab, LONG)
            await tab.run("bench.next('onset')")
            await tab.wait_until("turns.querySelector('mark')?.textContent")
            await tab.run(interruption)
            await tab.wait_until("turns.querySelector('.cut .rest')?.textContent.length > 100")
            # Not cleared earlier: on a busy machine the speech may have gaps before the interruption.
            await tab.run("bench.events.length = 0")
            (active_call,) = fixture.calls.registry
            assert active_call.call.speech.discarded_ms > 0
            await tab.wait_until("!bench.audible")
            await asyncio.sleep(0.6)  # discarded audio must not be played when the gate opens
            assert await tab.run("bench.events.filter(([kind]) => kind === 'onset').length") == 0
            await type_in(tab, "Again.")
            await tab.run("bench.next('onset')")

    with_browser(scenario)


KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}
FOCUS = """(() => {
  const { id, tagName, textContent } = document.activeElement;
  const { outlineStyle } = getComputedStyle(document.activeElement);
  return [id || (tagName === "SUMMARY" ? "summary" : textContent), outlineStyle];
})()"""
RECORD_STATUS = """
    window.statuses = [];
    const region = document.querySelector("[role=status]");
    new MutationObserver(() => statuses.push(region.textContent)).observe(
        region, { childList: true, subtree: true, characterData: true });
"""


async def press_key(tab: BrowserTab, key: str) -> None:
    """Press and release a key of the keyboard."""
    code = {"windowsVirtualKeyCode": KEYS.get(key) or ord(key), "key": key}
    text = {"text": "\r" if key == "Enter" else key} if key not in ("Tab", "Escape") else {}
    await tab.command("Input.dispatchKeyEvent", type="keyDown", **code, **text)
    await tab.command("Input.dispatchKeyEvent", type="keyUp", **code)


async def tab_stops(tab: BrowserTab, count: int) -> list[str]:
    """Press Tab ``count`` times; return the elements focused, each of which must show an outline."""
    focused = []
    for _ in range(count):
        await press_key(tab, "Tab")
        name, outline = await tab.run(FOCUS)
        assert outline == "solid", name
        focused.append(name)
    return focused


def test_a_call_can_be_made_with_the_keyboard_alone() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        tab = await fixture.browser.new_tab()
        await tab.add_init_script(
            "document.addEventListener('vivavoce:onset', () => { window.sounded = true; });"
        )
        await tab.open(fixture.url)
        await tab.wait_until("voice.options.length === 2")  # loaded before any call
        assert await tab_stops(tab, 3) == ["Speak", "Call", "call"]
        await press_key(tab, "Enter")
        await tab.wait_until("document.body.dataset.state === 'live' && document.activeElement === text")
        for key in LONG[:20]:
            await press_key(tab, key)
        await tab.run(f"text.value += {LONG!r}")
        await press_key(tab, "Enter")
        await tab.wait_until("window.sounded && turns.querySelector('mark')?.textContent")
        await press_key(tab, "Escape")
        await tab.wait_until("turns.querySelector('.cut .rest')?.textContent.length > 10")
        settings = ["speak", "voice", "speed", "phone", "barge-in", "record", "summary"]
        assert await tab_stops(tab, len(settings)) == settings
        await press_key(tab, "Enter")
        assert (await tab_stops(tab, 3))[:3] == ["1", "2", "3"]
        (active_call,) = fixture.calls.registry
        await press_key(tab, " ")
        await press_key(tab, "7")
        assert [await active_call.call.listening.next_key(), await active_call.call.listening.next_key()] == [
            "3",
            "7",
        ]
        await tab.run("call.focus()")
        await press_key(tab, "Enter")
        await tab.wait_until("document.body.dataset.state === 'idle' && document.activeElement === call")

    with_browser(scenario)


def test_the_timer_does_not_change_the_status_region() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run(RECORD_STATUS)
            await tab.wait_until("timer.textContent >= '0:02'")
            assert await tab.run("statuses") == []

    with_browser(scenario)


def test_the_page_violates_no_security_policy_and_throws_no_error() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        tab = await fixture.browser.new_tab()
        await tab.add_init_script("""window.faults = [];
            addEventListener("securitypolicyviolation", (e) => faults.push(e.violatedDirective));
            addEventListener("unhandledrejection", (e) => faults.push(String(e.reason)));
            addEventListener("error", (e) => faults.push(e.message ?? e.target.src));""")
        await tab.open(fixture.url)
        await tab.run("call.click()")
        await tab.wait_until("document.body.dataset.state === 'live'")
        for action in ("record.click()", "phone.click()", "interrupt.click()", "record.click()"):
            await tab.run(action)
            await asyncio.sleep(0.1)
        await tab.run("call.click()")
        await tab.wait_until("document.body.dataset.state === 'idle'")
        assert await tab.run("faults") == []
        assert await tab.run("notice.hidden")

    with_browser(scenario)


KEEP_FILE = """
  const make = URL.createObjectURL;
  URL.createObjectURL = (file) => { bench.file = file; return make.call(URL, file); };
"""
READ_FILE = """(async () => {
  const bytes = new Uint8Array(await bench.file.arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
})()"""


def test_a_recording_can_be_saved_and_has_the_voice_s_pitch() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run(KEEP_FILE)
            await tab.run("record.click()")
            await type_in(tab, "one two three.")
            await tab.run("bench.next('offset')")
            await tab.run("record.click()")
            assert (await tab.run("recording.download")).endswith(".wav")
            file = base64.b64decode(await tab.run(READ_FILE))
        with wave.open(io.BytesIO(file)) as recording:
            assert (recording.getnchannels(), recording.getsampwidth()) == (1, 2)
            rate = recording.getframerate()
            samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2").astype(float)
        start = np.flatnonzero(np.abs(samples) > 1_000)[0]
        spectrum = np.abs(np.fft.rfft(samples[start : start + rate // 2], rate // 2))
        assert np.argmax(spectrum) * 2 == pytest.approx(440, abs=4)

    with_browser(scenario)


def test_calls_can_follow_one_another_in_one_page() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            for _ in range(3):
                await hang_up(tab)
                await fixture.calls.wait_idle()
                assert len(fixture.calls.registry) == 0
                await start_call(tab)
            assert len(fixture.calls.registry) == 1

    with_browser(scenario)


def test_closing_a_tab_ends_its_call_and_does_not_affect_another() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as other:
            async with probed_call(fixture.browser, fixture.url) as tab:
                (active_call, _) = fixture.calls.registry
                await type_in(other, LONG)
                await other.run("bench.next('onset')")
                await tab.run("bench.connection.onconnectionstatechange = null")
            while len(fixture.calls.registry) == 2:
                await asyncio.sleep(0.05)
            assert list(fixture.calls.registry) == [active_call]
            await other.run(RECORD_TRANSCRIPT)
            await other.wait_until("marked.length > 10")
            states = await other.run("marked")
            transcripts = [state.replace("|", "").split() for state in states if state[-1] != "|"]
            first = len(transcripts[0])
            # Every word was marked.
            assert transcripts == [LONG.split()[: first + word] for word in range(len(transcripts))]
            assert await other.run("turns.querySelector('.cut')") is None
            assert (await other.run("bench.inbound()"))["lost"] == 0

    with_browser(scenario)


def test_a_call_works_without_a_microphone() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        tab = await fixture.browser.new_tab()
        await tab.add_init_script(
            "navigator.mediaDevices.getUserMedia = async () => { throw new Error('none'); };"
        )
        await tab.open(fixture.url)
        await tab.run("call.click()")
        await tab.wait_until("document.body.dataset.state === 'live'")
        assert "you can listen and type" in await tab.run("notice.textContent")
        await type_in(tab, "Hello.")
        await tab.wait_until(
            "turns.querySelector('mark')?.textContent === '' && !turns.querySelector('.rest').textContent"
        )

    with_browser(scenario)


def test_a_refused_call_shows_the_reason() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        fixture.calls.registry.refuse_calls()
        tab = await fixture.browser.new_tab()
        await tab.open(fixture.url)
        await tab.run("call.click()")
        await tab.wait_until("!notice.hidden")
        assert await tab.run("notice.textContent") == "the server is shutting down"
        assert await tab.run("document.body.dataset.state") == "idle"

    with_browser(scenario)
