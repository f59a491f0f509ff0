"""Pipecat's own client (client-js, small-webrtc-transport) calls from a real Chromium over loopback.

The client is as published except for its media manager: the default is Daily's, which loads code from
Daily's server at the first connection; these tests use the transport's other one, ``WavMediaManager``.
"""

import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from shared.browser.chromium import BrowserTab
from shared.browser.chromium_calls import LONG, BrowserFixture, needs_chromium, with_browser
from shared.gateways.client_programs import node_packages
from vivavoce.gateway.calls.ways_in.browser.calls import BrowserCalls

pytestmark = needs_chromium

PACKAGES: Final = "@pipecat-ai/client-js@1.13.1 @pipecat-ai/small-webrtc-transport@1.10.8 esbuild@0.28.2"
EXPORTS: Final = """
export * from "@pipecat-ai/client-js";
export * from "@pipecat-ai/small-webrtc-transport";
"""

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


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The client as one script, whose exports are properties of ``pipecat``."""
    folder, out = node_packages(PACKAGES), tmp_path_factory.mktemp("bundle") / "bundle.js"
    Path(folder, "pipecat.js").write_text(EXPORTS, encoding="utf-8")
    options = ["--bundle", "--format=iife", "--global-name=pipecat", "--log-level=warning"]
    esbuild = str(folder / "node_modules/.bin/esbuild")
    subprocess.run([esbuild, "pipecat.js", *options, f"--outfile={out}"], cwd=folder, check=True)
    return out.read_text(encoding="utf-8")


Scenario = Callable[[BrowserCalls, BrowserTab], Awaitable[None]]
WithClient = Callable[..., None]


@pytest.fixture
def with_client(bundle: str) -> WithClient:
    """Runs a scenario in a page with the client, which greets the caller."""

    def run(scenario: Scenario, greeting: str = "") -> None:
        async def opened(fixture: BrowserFixture) -> None:
            tab = await fixture.browser.new_tab()
            await tab.open(fixture.url + "/status")  # any page of the server's origin
            await tab.run(bundle)
            await tab.run(CLIENT)
            await scenario(fixture.calls, tab)

        with_browser(opened, greeting=greeting)

    return run


START = 'bot.startBotAndConnect({ endpoint: location.origin + "/start", requestData: {} })'
OFFER = 'bot.connect({ webrtcRequestParams: { endpoint: location.origin + "/api/offer" } })'


@pytest.mark.parametrize("connect", [START, OFFER], ids=["start", "offer"])
def test_the_client_connects_gets_ready_receives_speech_and_hangs_up(
    connect: str, with_client: WithClient
) -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        await tab.run(connect)
        await tab.wait_until("eventsOf('onBotReady').length === 1")
        assert await tab.run("eventsOf('onBotReady')[0].about.library") == "vivavoce"
        await tab.run(f"bot.sendText({LONG!r})")
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


def test_the_greeting_is_played_to_its_end_in_two_calls(with_client: WithClient) -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        for number in (1, 2):
            await tab.run(START)
            await tab.wait_until(f"eventsOf('onBotStoppedSpeaking').length === {number}")
            await tab.run("bot.disconnect()")
            await calls.wait_idle()
        words = " ".join(event["text"] for event in await tab.run("eventsOf('onBotTtsText')"))
        assert words == "Good day to you Good day to you"

    with_client(scenario, "Good day to you.")


def test_text_sent_while_the_bot_speaks_interrupts_it(with_client: WithClient) -> None:
    async def scenario(calls: BrowserCalls, tab: BrowserTab) -> None:
        await tab.run(START)
        await tab.run(f"bot.sendText({LONG!r})")
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
