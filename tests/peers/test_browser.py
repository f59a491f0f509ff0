"""A real Chromium without a window calls over loopback: the page as callers get it, and Pipecat's own."""

import asyncio
import base64
import io
import wave
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from benches.browser_calls import hang_up, probed_call, serve_browser_calls, start_call
from shared.chromium import BrowserTab, Chromium, find_chromium, loopback_only, open_chromium
from shared.standin_backend import StandInBackend
from vivavoce.gateway.browser.calls import BrowserCalls
from vivavoce.gateway.browser.settings import BrowserCallSettings
from vivavoce.tts_engine.engine import Engine

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs Chromium: apt-get install chromium")

TIMEOUT_S = 180.0
LONG = "one two three four five six seven eight nine ten eleven twelve " * 20  # nobody waits for its end


@dataclass
class World:
    calls: BrowserCalls
    url: str
    browser: Chromium


@asynccontextmanager
async def world(**settings: Any) -> AsyncIterator[World]:
    settings = {"greeting": "", **settings}
    async with await Engine.open(backend=StandInBackend((440, 660))) as engine:
        settings = BrowserCallSettings(**settings)
        with loopback_only():
            async with serve_browser_calls(engine, settings) as (calls, url), open_chromium() as browser:
                yield World(calls, url, browser)


def in_world(test: Callable[[World], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(TIMEOUT_S), world(**settings) as opened:
            await test(opened)

    asyncio.run(run())


async def type_in(tab: BrowserTab, text: str) -> None:
    await tab.run(f"text.value = {text!r}; say.requestSubmit()")


async def pitch(tab: BrowserTab) -> float:
    """Hz of what sounds, as the page's own sound card gets it, as soon as it gets it without a gap."""
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


# Notes every state of the text: what was heard, and the word that is marked. A look from outside may miss
# one.
WATCH_WORDS = """
    window.marked = [];
    const written = (name) => turns.querySelector(name)?.textContent ?? "";
    new MutationObserver(() => marked.push(written("span") + "|" + written("mark"))).observe(
        turns, { childList: true, subtree: true, characterData: true });
"""


def test_a_caller_hears_the_greeting_and_loses_nothing_of_it() -> None:
    async def scenario(world: World) -> None:
        async with probed_call(world.browser, world.url) as tab:
            await tab.run("bench.next('onset')")
            await tab.wait_until("turns.querySelector('.rest')?.textContent === ''")  # heard to its end
            assert await tab.run("turns.innerText.trim()") == "Good day to you."
            await tab.wait_until("!bench.audible")
            while (inbound := await tab.run("bench.inbound()"))["received"] <= 30:
                await asyncio.sleep(0.05)
            assert inbound["lost"] == 0

    in_world(scenario, greeting="Good day to you.")


def test_typed_text_is_spoken_in_the_voice_chosen_with_the_word_marked_that_is_heard() -> None:
    async def scenario(world: World) -> None:
        async with probed_call(world.browser, world.url) as tab:
            await tab.run("voice.value = 'tone-660'; voice.dispatchEvent(new Event('change'))")
            await tab.run(WATCH_WORDS)
            await type_in(tab, LONG)
            await tab.run("bench.next('onset')")
            await tab.wait_until("marked.includes('one two |three')")
            assert await pitch(tab) == pytest.approx(660, abs=6)
            await tab.wait_until("Number.parseInt(document.getElementById('n-ttfa').textContent) > 0")

    in_world(scenario)


@pytest.mark.parametrize(
    "how",
    [
        "interrupt.click()",
        "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))",
        "bench.speakInto({noise!r}, 24000)",
    ],
)
def test_an_interruption_stops_the_sound_and_strikes_out_what_was_not_heard(how: str) -> None:
    noise = np.random.default_rng(1).normal(0, 4_000, 12_000).astype("<i2").tobytes()
    how = how.replace("{noise!r}", repr(base64.b64encode(noise).decode()))

    async def scenario(world: World) -> None:
        async with probed_call(world.browser, world.url) as tab:
            await type_in(tab, LONG)
            await tab.run("bench.next('onset')")
            await tab.wait_until("turns.querySelector('mark')?.textContent")
            await tab.run(how)
            await tab.wait_until("turns.querySelector('.cut .rest')?.textContent.length > 100")
            await tab.run(
                "bench.heard.length = 0"
            )  # before that, a busy machine may leave a gap in what is said
            (line,) = world.calls.registry
            assert line.call.discarded_ms > 0
            await tab.wait_until("!bench.audible")
            await asyncio.sleep(0.6)  # what was on its way must not come back when the gate opens
            assert await tab.run("bench.heard.filter(([kind]) => kind === 'onset').length") == 0
            await type_in(tab, "Anew.")
            await tab.run("bench.next('onset')")

    in_world(scenario)


KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}
FOCUS = """(() => {
  const { id, tagName, textContent } = document.activeElement;
  const { outlineStyle } = getComputedStyle(document.activeElement);
  return [id || (tagName === "SUMMARY" ? "summary" : textContent), outlineStyle];
})()"""
WATCH_STATUS = """
    window.told = [];
    const region = document.querySelector("[role=status]");
    new MutationObserver(() => told.push(region.textContent)).observe(
        region, { childList: true, subtree: true, characterData: true });
"""


async def strike(tab: BrowserTab, key: str) -> None:
    """Press a key of the keyboard as a user does."""
    code = {"windowsVirtualKeyCode": KEYS.get(key) or ord(key), "key": key}
    text = {"text": "\r" if key == "Enter" else key} if key not in ("Tab", "Escape") else {}
    await tab.command("Input.dispatchKeyEvent", type="keyDown", **code, **text)
    await tab.command("Input.dispatchKeyEvent", type="keyUp", **code)


async def stops(tab: BrowserTab, count: int) -> list[str]:
    """Where the next ``count`` presses of Tab lead; each must be seen to have the focus."""
    passed = []
    for _ in range(count):
        await strike(tab, "Tab")
        name, outline = await tab.run(FOCUS)
        assert outline == "solid", name
        passed.append(name)
    return passed


def test_a_whole_call_is_made_with_the_keyboard_alone() -> None:
    async def scenario(world: World) -> None:
        tab = await world.browser.new_tab()
        await tab.add_init_script(
            "document.addEventListener('vivavoce:onset', () => { window.sounded = true; });"
        )
        await tab.open(world.url)
        await tab.wait_until("voice.options.length === 2")  # before any call
        assert await stops(tab, 1) == ["call"]
        await strike(tab, "Enter")
        await tab.wait_until("document.body.dataset.state === 'live' && document.activeElement === text")
        for key in LONG[:20]:
            await strike(tab, key)
        await tab.run(f"text.value += {LONG!r}")
        await strike(tab, "Enter")
        await tab.wait_until("window.sounded && turns.querySelector('mark')?.textContent")
        await strike(tab, "Escape")
        await tab.wait_until("turns.querySelector('.cut .rest')?.textContent.length > 10")
        settings = ["speak", "voice", "speed", "phone", "barge-in", "record", "summary"]
        assert await stops(tab, len(settings)) == settings
        await strike(tab, "Enter")
        assert (await stops(tab, 3))[:3] == ["1", "2", "3"]
        (line,) = world.calls.registry
        await strike(tab, " ")
        await strike(tab, "7")
        assert [await line.call.next_key(), await line.call.next_key()] == ["3", "7"]
        await tab.run("call.focus()")
        await strike(tab, "Enter")
        await tab.wait_until("document.body.dataset.state === 'idle' && document.activeElement === call")

    in_world(scenario)


def test_the_clock_of_a_call_is_not_read_out_every_second() -> None:
    async def scenario(world: World) -> None:
        async with probed_call(world.browser, world.url) as tab:
            await tab.run(WATCH_STATUS)
            await tab.wait_until("timer.textContent >= '0:02'")
            assert await tab.run("told") == []

    in_world(scenario)


def test_the_page_breaks_no_rule_of_its_own_policy_and_throws_nothing() -> None:
    async def scenario(world: World) -> None:
        tab = await world.browser.new_tab()
        await tab.add_init_script("""window.faults = [];
            addEventListener("securitypolicyviolation", (e) => faults.push(e.violatedDirective));
            addEventListener("unhandledrejection", (e) => faults.push(String(e.reason)));
            addEventListener("error", (e) => faults.push(e.message ?? e.target.src));""")
        await tab.open(world.url)
        await tab.run("call.click()")
        await tab.wait_until("document.body.dataset.state === 'live'")
        for action in ("record.click()", "phone.click()", "interrupt.click()", "record.click()"):
            await tab.run(action)
            await asyncio.sleep(0.1)
        await tab.run("call.click()")
        await tab.wait_until("document.body.dataset.state === 'idle'")
        assert await tab.run("faults") == []
        assert await tab.run("notice.hidden")

    in_world(scenario)


KEEP_FILES = """
  const make = URL.createObjectURL;
  URL.createObjectURL = (file) => { bench.file = file; return make.call(URL, file); };
"""
SAVED = """(async () => {
  const bytes = new Uint8Array(await bench.file.arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
})()"""


def test_what_was_heard_can_be_recorded_and_saved() -> None:
    async def scenario(world: World) -> None:
        async with probed_call(world.browser, world.url) as tab:
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

    in_world(scenario)


def test_a_call_hung_up_in_the_page_is_over_here_and_another_can_follow() -> None:
    async def scenario(world: World) -> None:
        async with probed_call(world.browser, world.url) as tab:
            for _ in range(3):
                await hang_up(tab)
                await world.calls.wait_idle()
                assert len(world.calls.registry) == 0
                await start_call(tab)
            assert len(world.calls.registry) == 1

    in_world(scenario)


def test_a_tab_that_is_closed_ends_its_call_and_the_neighbour_does_not_notice() -> None:
    async def scenario(world: World) -> None:
        async with probed_call(world.browser, world.url) as neighbour:
            async with probed_call(world.browser, world.url) as tab:
                (line, _) = world.calls.registry
                await type_in(neighbour, LONG)
                await neighbour.run("bench.next('onset')")
                await tab.run("bench.connection.onconnectionstatechange = null")
            while len(world.calls.registry) == 2:
                await asyncio.sleep(0.05)
            assert list(world.calls.registry) == [line]
            await neighbour.run(WATCH_WORDS)
            await neighbour.wait_until("marked.length > 10")
            heard = [
                told.replace("|", "").split() for told in await neighbour.run("marked") if told[-1] != "|"
            ]
            first = len(heard[0])
            assert heard == [LONG.split()[: first + word] for word in range(len(heard))]  # none is left out
            assert await neighbour.run("turns.querySelector('.cut')") is None
            assert (await neighbour.run("bench.inbound()"))["lost"] == 0

    in_world(scenario)


def test_without_a_microphone_one_can_listen_and_type() -> None:
    async def scenario(world: World) -> None:
        tab = await world.browser.new_tab()
        await tab.add_init_script(
            "navigator.mediaDevices.getUserMedia = async () => { throw new Error('none'); };"
        )
        await tab.open(world.url)
        await tab.run("call.click()")
        await tab.wait_until("document.body.dataset.state === 'live'")
        assert "you can listen and type" in await tab.run("notice.textContent")
        await type_in(tab, "Hello.")
        await tab.wait_until(
            "turns.querySelector('mark')?.textContent === '' && !turns.querySelector('.rest').textContent"
        )

    in_world(scenario)


def test_a_refusal_is_told_in_the_page() -> None:
    async def scenario(world: World) -> None:
        world.calls.registry.refuse_calls()
        tab = await world.browser.new_tab()
        await tab.open(world.url)
        await tab.run("call.click()")
        await tab.wait_until("!notice.hidden")
        assert await tab.run("notice.textContent") == "the server is shutting down"
        assert await tab.run("document.body.dataset.state") == "idle"

    in_world(scenario)


# What Pipecat's SmallWebRTC transport does in a browser, in the order in which it does it.
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


def test_a_client_of_pipecats_transport_connects_and_is_spoken_to() -> None:
    async def scenario(world: World) -> None:
        tab = await world.browser.new_tab()
        await tab.open(world.url)
        await tab.run(SMALL_WEBRTC_CLIENT)
        await tab.wait_until("events.some((event) => event.type === 'bot-ready' && event.id === '1')")
        await tab.wait_until("events.some((event) => event.type === 'bot-stopped-speaking')")
        words = await tab.run("events.filter((e) => e.type === 'bot-tts-text').map((e) => e.data.text)")
        assert words == ["How", "do", "you", "do"]
        assert await tab.run("events.filter((event) => event.type === 'error')") == []

    in_world(scenario)


@pytest.mark.skipif(
    find_spec("pipecat_ai_prebuilt") is None,
    reason="needs pipecat-ai-prebuilt: pip install 'vivavoce[pipecat]'",
)
def test_pipecats_own_page_loads_and_is_ready_to_connect() -> None:
    # No further: it gets its handling of microphones from a server of Daily's when one presses Connect.
    async def scenario(world: World) -> None:
        tab = await world.browser.new_tab()
        await tab.open(world.url + "/client/")
        await tab.wait_until(
            "[...document.querySelectorAll('button')].some((b) => b.innerText === 'Connect')"
        )
        assert "Small" in await tab.run("document.body.innerText")

    in_world(scenario)
