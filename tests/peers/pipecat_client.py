"""Pipecat's own client (client-js, small-webrtc-transport) calls from a real Chromium over loopback.

Not collected by itself: ``pipecat_client.sh`` makes the bundle that it runs. The client is as published but
for its microphone: by default that is Daily's, whose code comes from a server of Daily's when one connects;
here it is the other one that comes with the transport.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benches.browser_calls import serve_browser_calls
from shared.chromium import BrowserTab, loopback_only, open_chromium
from shared.standin_backend import StandInBackend
from vivavoce.gateway.browser.calls import BrowserCalls
from vivavoce.gateway.browser.settings import BrowserCallSettings
from vivavoce.tts_engine.engine import Engine

BUNDLE = Path(os.environ["PIPECAT_CLIENT_BUNDLE"]).read_text(encoding="utf-8")
TIMEOUT_S = 180.0
LONG = "one two three four five six seven eight nine ten eleven twelve " * 20  # nobody waits for its end

CLIENT = """(() => {
  const told = window.told = [];
  const callbacks = {};
  for (const name of ["onConnected", "onDisconnected", "onBotReady", "onBotStartedSpeaking",
      "onBotStoppedSpeaking", "onBotTtsText", "onBotOutput", "onError", "onDeviceError"])
    callbacks[name] = (data) => told.push([name, data ?? null]);
  callbacks.onTrackStarted = (track, participant) => { if (!participant?.local) window.botTrack = track; };
  window.bot = new pipecat.PipecatClient({
    transport: new pipecat.SmallWebRTCTransport({ mediaManager: new pipecat.WavMediaManager() }),
    enableMic: true, enableCam: false, callbacks });
  window.heard = (name) => told.filter(([kind]) => kind === name).map(([, data]) => data);
  window.loudest = async () => { // of half a second, as a share of full scale
    const context = new AudioContext(), stream = new MediaStream([botTrack]);
    const element = Object.assign(new Audio(), { srcObject: stream, muted: true });
    await element.play();
    const analyser = new AnalyserNode(context);
    context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    let most = 0;
    for (let i = 0; i < 25; i++) {
      await new Promise((done) => setTimeout(done, 20));
      analyser.getFloatTimeDomainData(samples);
      most = Math.max(most, ...samples.map(Math.abs));
    }
    await context.close();
    return most;
  };
})()"""


@asynccontextmanager
async def client(greeting: str = "") -> AsyncIterator[tuple[BrowserCalls, BrowserTab]]:
    async with asyncio.timeout(TIMEOUT_S), await Engine.open(backend=StandInBackend()) as engine:
        with loopback_only():
            settings = BrowserCallSettings(greeting=greeting)
            async with serve_browser_calls(engine, settings) as (calls, url), open_chromium() as browser:
                tab = await browser.new_tab()
                await tab.open(url + "/status")  # any page of that origin: the client brings its own
                await tab.run(BUNDLE)
                await tab.run(CLIENT)
                yield calls, tab


def with_client(test: Callable[[BrowserCalls, BrowserTab], Awaitable[None]], greeting: str = "") -> None:
    async def run() -> None:
        async with client(greeting) as (calls, tab):
            await test(calls, tab)

    asyncio.run(run())


START = 'bot.startBotAndConnect({ endpoint: location.origin + "/start", requestData: {} })'
OFFER = 'bot.connect({ webrtcRequestParams: { endpoint: location.origin + "/api/offer" } })'


@pytest.mark.parametrize("connect", [START, OFFER], ids=["start", "offer"])
def test_the_client_connects_is_ready_hears_and_hangs_up(connect: str) -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        await tab.run(connect)
        await tab.wait_until("heard('onBotReady').length === 1")
        assert await tab.run("heard('onBotReady')[0].about.library") == "vivavoce"
        await tab.run(f"bot.sendText({LONG!r})")
        await tab.wait_until("heard('onBotStartedSpeaking').length === 1 && window.botTrack")
        while await tab.run("loudest()") <= 0.1:
            pass
        await tab.wait_until("heard('onBotTtsText').length >= 3")
        assert [one["text"] for one in await tab.run("heard('onBotTtsText').slice(0, 3)")] == [
            "one", "two", "three",
        ]  # fmt: skip
        assert await tab.run("heard('onBotOutput')[0].text") == "one"
        assert await tab.run("[...heard('onError'), ...heard('onDeviceError')]") == []
        await tab.run("bot.disconnect()")
        await calls.wait_idle()
        assert len(calls.registry) == 0

    with_client(scenario)


def test_the_greeting_is_heard_to_its_end_and_the_call_can_be_made_again() -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        for number in (1, 2):
            await tab.run(START)
            await tab.wait_until(f"heard('onBotStoppedSpeaking').length === {number}")
            await tab.run("bot.disconnect()")
            await calls.wait_idle()
        words = " ".join(one["text"] for one in await tab.run("heard('onBotTtsText')"))
        assert words == "Good day to you Good day to you"

    with_client(scenario, "Good day to you.")


def test_text_sent_while_the_bot_speaks_interrupts_it() -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        await tab.run(START)
        await tab.run(f"bot.sendText({LONG!r})")
        await tab.wait_until("heard('onBotTtsText').length >= 2")
        await tab.run("told.length = 0; bot.sendText('Anew.')")
        await tab.wait_until("heard('onBotTtsText').some(({ text }) => text === 'Anew')")
        assert (await tab.run("told.map(([kind]) => kind)"))[0] in ("onBotStoppedSpeaking", "onBotTtsText")
        (line,) = calls.registry
        assert line.call.discarded_ms > 0

    with_client(scenario)
