"""Calls from headless Chromium over loopback, with our page and with Pipecat's."""

import asyncio
import base64
import io
import wave
from importlib.util import find_spec

import numpy as np
import pytest

from benches.browser_calls import hang_up, probed_call, start_call
from shared.chromium import BrowserTab
from shared.chromium_calls import LONG, BrowserFixture, needs_chromium, type_in, with_browser

pytestmark = needs_chromium


async def measure_pitch(tab: BrowserTab) -> float:
    """Return the frequency (Hz) of the received audio, once a spectrum has no gap in it."""
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


# Records every state of the transcript, "heard|marked word"; polling from outside may miss one.
WATCH_WORDS = """
    window.marked = [];
    const written = (name) => turns.querySelector(name)?.textContent ?? "";
    new MutationObserver(() => marked.push(written("span") + "|" + written("mark"))).observe(
        turns, { childList: true, subtree: true, characterData: true });
"""


def test_a_caller_hears_the_greeting_without_packet_loss() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run("bench.next('onset')")
            await tab.wait_until("turns.querySelector('.rest')?.textContent === ''")  # heard to its end
            assert await tab.run("turns.innerText.trim()") == "Good day to you."
            await tab.wait_until("!bench.audible")
            while (inbound := await tab.run("bench.inbound()"))["received"] <= 30:
                await asyncio.sleep(0.05)
            assert inbound["lost"] == 0

    with_browser(scenario, greeting="Good day to you.")


def test_typed_text_is_spoken_in_the_chosen_voice_and_the_word_heard_is_marked() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run("voice.value = 'tone-660'; voice.dispatchEvent(new Event('change'))")
            await tab.run(WATCH_WORDS)
            await type_in(tab, LONG)
            await tab.run("bench.next('onset')")
            await tab.wait_until("marked.includes('one two |three')")
            assert await measure_pitch(tab) == pytest.approx(660, abs=6)
            await tab.wait_until("Number.parseInt(document.getElementById('n-ttfa').textContent) > 0")

    with_browser(scenario)


@pytest.mark.parametrize(
    "how",
    [
        "interrupt.click()",
        "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))",
        "bench.speakInto({noise!r}, 24000)",
    ],
)
def test_an_interruption_stops_the_sound_and_strikes_out_the_rest(how: str) -> None:
    noise = np.random.default_rng(1).normal(0, 4_000, 12_000).astype("<i2").tobytes()
    how = how.replace("{noise!r}", repr(base64.b64encode(noise).decode()))

    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await type_in(tab, LONG)
            await tab.run("bench.next('onset')")
            await tab.wait_until("turns.querySelector('mark')?.textContent")
            await tab.run(how)
            await tab.wait_until("turns.querySelector('.cut .rest')?.textContent.length > 100")
            # Cleared only now: on a busy machine speech may have gaps before the interruption.
            await tab.run("bench.events.length = 0")
            (active_call,) = fixture.calls.registry
            assert active_call.call.discarded_ms > 0
            await tab.wait_until("!bench.audible")
            await asyncio.sleep(0.6)  # discarded audio must not be heard when the gate opens
            assert await tab.run("bench.events.filter(([kind]) => kind === 'onset').length") == 0
            await type_in(tab, "Anew.")
            await tab.run("bench.next('onset')")

    with_browser(scenario)


KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}
FOCUS = """(() => {
  const { id, tagName, textContent } = document.activeElement;
  const { outlineStyle } = getComputedStyle(document.activeElement);
  return [id || (tagName === "SUMMARY" ? "summary" : textContent), outlineStyle];
})()"""
WATCH_STATUS = """
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
    passed = []
    for _ in range(count):
        await press_key(tab, "Tab")
        name, outline = await tab.run(FOCUS)
        assert outline == "solid", name
        passed.append(name)
    return passed


def test_a_call_can_be_made_with_the_keyboard_alone() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        tab = await fixture.browser.new_tab()
        await tab.add_init_script(
            "document.addEventListener('vivavoce:onset', () => { window.sounded = true; });"
        )
        await tab.open(fixture.url)
        await tab.wait_until("voice.options.length === 2")  # loaded before any call
        assert await tab_stops(tab, 1) == ["call"]
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
        assert [await active_call.call.next_key(), await active_call.call.next_key()] == ["3", "7"]
        await tab.run("call.focus()")
        await press_key(tab, "Enter")
        await tab.wait_until("document.body.dataset.state === 'idle' && document.activeElement === call")

    with_browser(scenario)


def test_the_timer_does_not_change_the_status_region() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run(WATCH_STATUS)
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


KEEP_FILES = """
  const make = URL.createObjectURL;
  URL.createObjectURL = (file) => { bench.file = file; return make.call(URL, file); };
"""
SAVED = """(async () => {
  const bytes = new Uint8Array(await bench.file.arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
})()"""


def test_a_recording_can_be_saved_and_has_the_voice_s_pitch() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run(KEEP_FILES)
            await tab.run("record.click()")
            await type_in(tab, "one two three.")
            await tab.run("bench.next('offset')")
            await tab.run("record.click()")
            assert (await tab.run("recording.download")).endswith(".wav")
            file = base64.b64decode(await tab.run(SAVED))
        with wave.open(io.BytesIO(file)) as recording:
            assert (recording.getnchannels(), recording.getsampwidth()) == (1, 2)
            rate = recording.getframerate()
            heard = np.frombuffer(recording.readframes(recording.getnframes()), "<i2").astype(float)
        begin = np.flatnonzero(np.abs(heard) > 1_000)[0]
        spectrum = np.abs(np.fft.rfft(heard[begin : begin + rate // 2], rate // 2))
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
        async with probed_call(fixture.browser, fixture.url) as neighbour:
            async with probed_call(fixture.browser, fixture.url) as tab:
                (active_call, _) = fixture.calls.registry
                await type_in(neighbour, LONG)
                await neighbour.run("bench.next('onset')")
                await tab.run("bench.connection.onconnectionstatechange = null")
            while len(fixture.calls.registry) == 2:
                await asyncio.sleep(0.05)
            assert list(fixture.calls.registry) == [active_call]
            await neighbour.run(WATCH_WORDS)
            await neighbour.wait_until("marked.length > 10")
            heard = [
                state.replace("|", "").split() for state in await neighbour.run("marked") if state[-1] != "|"
            ]
            first = len(heard[0])
            assert heard == [
                LONG.split()[: first + word] for word in range(len(heard))
            ]  # every word was marked
            assert await neighbour.run("turns.querySelector('.cut')") is None
            assert (await neighbour.run("bench.inbound()"))["lost"] == 0

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


# The steps of Pipecat's SmallWebRTC transport in a browser, in their order.
SMALL_WEBRTC_CLIENT = """(async () => {
  const post = async (method, url, body) => (await fetch(url, {
    method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
  const { sessionId } = await post("POST", "/start",
    { transport: "webrtc", enableDefaultIceServers: false, body: {} });
  const url = `/sessions/${sessionId}/api/offer`;
  const connection = new RTCPeerConnection({ iceServers: [] });
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  connection.addTransceiver(microphone.getAudioTracks()[0], { direction: "sendrecv" });
  connection.addTransceiver("video", { direction: "sendrecv" });
  connection.addTransceiver("video", { direction: "sendrecv" });
  const channel = connection.createDataChannel("chat", { ordered: true });
  const events = window.events = [];
  channel.onmessage = ({ data }) => events.push(JSON.parse(data));
  const opened = new Promise((done) => { channel.onopen = done; });
  const candidates = [];
  let pcId = null;
  const trickle = () => pcId && candidates.length
    && post("PATCH", url, { pc_id: pcId, candidates: candidates.splice(0) });
  connection.onicecandidate = ({ candidate }) => {
    if (candidate) candidates.push({ candidate: candidate.candidate, sdp_mid: candidate.sdpMid,
      sdp_mline_index: candidate.sdpMLineIndex });
    trickle();
  };
  await connection.setLocalDescription();
  const { sdp, type } = connection.localDescription;
  const answer = await post("POST", url, { sdp, type, pc_id: null, restart_pc: false, requestData: {} });
  pcId = answer.pc_id;
  await connection.setRemoteDescription(answer);
  trickle();
  await opened;
  channel.send(JSON.stringify({ type: "signalling",
    message: { type: "trackStatus", receiver_index: 0, enabled: true } }));
  channel.send("ping: " + Date.now());
  channel.send(JSON.stringify({ label: "rtvi-ai", type: "client-ready", id: "1",
    data: { version: "1.2.0", about: { library: "client" } } }));
  channel.send(JSON.stringify({ label: "rtvi-ai", type: "send-text", id: "2",
    data: { content: "How do you do?", options: { run_immediately: true } } }));
})()"""


def test_a_client_of_pipecat_s_transport_connects_and_hears_its_text() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        tab = await fixture.browser.new_tab()
        await tab.open(fixture.url)
        await tab.run(SMALL_WEBRTC_CLIENT)
        await tab.wait_until("events.some((event) => event.type === 'bot-ready' && event.id === '1')")
        await tab.wait_until("events.some((event) => event.type === 'bot-stopped-speaking')")
        words = await tab.run("events.filter((e) => e.type === 'bot-tts-text').map((e) => e.data.text)")
        assert words == ["How", "do", "you", "do"]
        assert await tab.run("events.filter((event) => event.type === 'error')") == []

    with_browser(scenario)


@pytest.mark.skipif(
    find_spec("pipecat_ai_prebuilt") is None,
    reason="needs pipecat-ai-prebuilt: make test EXTRAS=dev,stt,pipecat",
)
def test_pipecat_s_page_loads_and_offers_to_connect() -> None:
    # Connect is not pressed: the page would load its microphone handling from a server of Daily.
    async def scenario(fixture: BrowserFixture) -> None:
        tab = await fixture.browser.new_tab()
        await tab.open(fixture.url + "/client/")
        await tab.wait_until(
            "[...document.querySelectorAll('button')].some((b) => b.innerText === 'Connect')"
        )
        assert "Small" in await tab.run("document.body.innerText")

    with_browser(scenario)
