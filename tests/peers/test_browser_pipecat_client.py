"""Pipecat's own client (client-js, small-webrtc-transport) calls from a real Chromium over loopback.

pytest does not collect this file: ``pipecat_client.sh`` builds the bundle that it needs and runs it. The
client is as published except for its media manager: the default is Daily's, which loads code from Daily's
server at the first connection; these tests use the transport's other one, ``WavMediaManager``.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benches.browser_calls import serve_browser_calls
from shared.browser.chromium import BrowserTab, loopback_only, open_chromium
from shared.engine.standin_backend import StandInBackend
from vivavoce.gateway.calls.ways_in.browser.calls import BrowserCalls
from vivavoce.gateway.calls.ways_in.browser.settings import BrowserCallSettings
from vivavoce.tts_engine.engine import Engine

BUNDLE = Path(os.environ["PIPECAT_CLIENT_BUNDLE"]).read_text(encoding="utf-8")
TIMEOUT_S = 180.0
LONG_TEXT = "one two three four five six seven eight nine ten eleven twelve " * 20  # longer than any test

CLIENT = """(() => {
  const clientEvents = window.clientEvents = [];
  const callbacks = {};
  for (const name of ["onConnected", "onDisconnected", "onBotReady", "onBotStartedSpeaking",
      "onBotStoppedSpeaking", "onBotTtsText", "onBotOutput", "onError", "onDeviceError"])
    callbacks[name] = (data) => clientEvents.push([name, data ?? null]);
  callbacks.onTrackStarted = (track, participant) => { if (!participant?.local) window.botTrack = track; };
  window.bot = new pipecat.PipecatClient({
    transport: new pipecat.SmallWebRTCTransport({ mediaManager: new pipecat.WavMediaManager() }),
    enableMic: true, enableCam: false, callbacks });
  window.eventsOf = (name) => clientEvents.filter(([kind]) => kind === name).map(([, data]) => data);
  window.peakLevel = async () => { // of half a second; 1 is full scale
    const context = new AudioContext(), stream = new MediaStream([botTrack]);
    const element = Object.assign(new Audio(), { srcObject: stream, muted: true });
    await element.play();
    const analyser = new AnalyserNode(context);
    context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    let peak = 0;
    for (let i = 0; i < 25; i++) {
      await new Promise((done) => setTimeout(done, 20));
      analyser.getFloatTimeDomainData(samples);
      peak = Math.max(peak, ...samples.map(Math.abs));
    }
    await context.close();
    return peak;
  };
})()"""


@asynccontextmanager
async def client(greeting: str = "") -> AsyncIterator[tuple[BrowserCalls, BrowserTab]]:
    async with asyncio.timeout(TIMEOUT_S), await Engine.open(backend=StandInBackend()) as engine:
        with loopback_only():
            settings = BrowserCallSettings(greeting=greeting)
            async with serve_browser_calls(engine, settings) as (calls, url), open_chromium() as browser:
                tab = await browser.new_tab()
                await tab.open(url + "/status")  # any page of the server's origin
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
def test_the_client_connects_gets_ready_receives_speech_and_hangs_up(connect: str) -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        await tab.run(connect)
        await tab.wait_until("eventsOf('onBotReady').length === 1")
        assert await tab.run("eventsOf('onBotReady')[0].about.library") == "vivavoce"
        await tab.run(f"bot.sendText({LONG_TEXT!r})")
        await tab.wait_until("eventsOf('onBotStartedSpeaking').length === 1 && window.botTrack")
        while await tab.run("peakLevel()") <= 0.1:
            pass
        await tab.wait_until("eventsOf('onBotTtsText').length >= 3")
        assert [event["text"] for event in await tab.run("eventsOf('onBotTtsText').slice(0, 3)")] == [
            "one", "two", "three",
        ]  # fmt: skip
        assert await tab.run("eventsOf('onBotOutput')[0].text") == "one"
        assert await tab.run("[...eventsOf('onError'), ...eventsOf('onDeviceError')]") == []
        await tab.run("bot.disconnect()")
        await calls.wait_idle()
        assert len(calls.registry) == 0

    with_client(scenario)


def test_the_greeting_is_played_to_its_end_in_two_calls() -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        for number in (1, 2):
            await tab.run(START)
            await tab.wait_until(f"eventsOf('onBotStoppedSpeaking').length === {number}")
            await tab.run("bot.disconnect()")
            await calls.wait_idle()
        words = " ".join(event["text"] for event in await tab.run("eventsOf('onBotTtsText')"))
        assert words == "Good day to you Good day to you"

    with_client(scenario, "Good day to you.")


def test_text_sent_while_the_bot_speaks_interrupts_it() -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        await tab.run(START)
        await tab.run(f"bot.sendText({LONG_TEXT!r})")
        await tab.wait_until("eventsOf('onBotTtsText').length >= 2")
        await tab.run("clientEvents.length = 0; bot.sendText('Again.')")
        await tab.wait_until("eventsOf('onBotTtsText').some(({ text }) => text === 'Again')")
        assert (await tab.run("clientEvents.map(([kind]) => kind)"))[0] in (
            "onBotStoppedSpeaking",
            "onBotTtsText",
        )
        (call,) = calls.registry
        assert call.call.speech.discarded_ms > 0

    with_client(scenario)
