"""Browser bench: measures calls from headless Chromium over loopback.

The gateway runs in this process and the browser in its own, with the page of the gateway. Times are measured
in the browser, at the output of the page's audio graph, with the output latency added.

Audible after the token: from the token that completes the first clause to the first sample above -50 dBFS;
tokens are sent at 40 a second over the data channel.
Sound stops: from the click, or from the first audible sample of speech into the microphone, to the last
sample above -50 dBFS.
Lost, concealed: the browser's counters (getStats). Leaks: growth of tasks, open files, threads and resident
memory of this process over calls with one utterance each.
"""

import asyncio
import base64
import contextlib
import socket
import statistics
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console

from shared.browser.chromium import BrowserTab, Chromium, loopback_only, open_chromium
from shared.gateways.way_in_servers import browser_calls
from shared.process_footprint import ProcessFootprint
from vivavoce.adapters.media.clock import Clock
from vivavoce.gateway import engine_opening
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import Scope
from vivavoce.gateway.calls.agents.agent import Agent, llm_tokens
from vivavoce.gateway.calls.registry import CallRegistry
from vivavoce.gateway.calls.ways_in.browser import way_in
from vivavoce.gateway.calls.ways_in.browser.calls import BrowserCalls
from vivavoce.gateway.calls.ways_in.browser.routes import page_routes, routes
from vivavoce.gateway.calls.ways_in.browser.settings import BrowserCallSettings
from vivavoce.gateway.calls.ways_in.way_in import CallServices
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cli.configuration.settings_loader import load_settings
from vivavoce.gateway.cli.phones.received_audio import audible_span
from vivavoce.gateway.page import routes as page
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.voice_registry import VoiceRegistry
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.gateway.web.http_server import HttpServer
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.speech_engine import SpeechEngine

TOKENS_PER_S = 40
WARM_UP_CALLS = 5
_UTTERANCES = 20  # measured; one more warms up
_INTERRUPTIONS = 10  # by the button, and as many by speech
_SHORT_CALLS = 50  # opened and closed, to find leaks
_END_TIMEOUT_S = 30.0
_MAX_CALLS = 100
_LONG_TEXT = (
    "Thank you for calling, this is a long story that I tell without a pause for breath. "
    "It goes on, and on, and on, so that there is always something to hear and to interrupt. "
)
_INTERJECTION = "Wait, stop, please."
_SENTENCES = (
    "Good morning, this is the reservation desk of the hotel.",
    "Of course, I can move your booking to Friday.",
    "One moment, I look it up for you right now.",
    "Your parcel is here, you may collect it today.",
    "I am sorry, that number is not in our files.",
)
# Runs before the page's scripts: keeps references to its audio context, connection and data channel, and
# replaces the microphone.
_PAGE_PROBE_SCRIPT = """
window.bench = { events: [], audible: false };
{
for (const kind of ["first-sound", "stopped", "onset", "offset"])
  document.addEventListener("vivavoce:" + kind, ({ detail }) => bench.events.push([kind, detail]));
for (const [name, key] of [["AudioContext", "context"], ["RTCPeerConnection", "connection"]]) {
  const Original = window[name];
  window[name] = class extends Original { constructor(...a) { super(...a); bench[key] = this; } };
}
const send = RTCDataChannel.prototype.send;
RTCDataChannel.prototype.send = function (data) {
  if (bench.channel !== this) this.addEventListener("message", ({ data }) => {
    const { type } = JSON.parse(data);
    if (type === "speech_finished" || type === "error") bench.events.push([type, {}]);
  });
  bench.channel = this;
  return send.call(this, data);
};
const room = new (Object.getPrototypeOf(AudioContext))({ latencyHint: "interactive" });
const voice = room.createMediaStreamDestination();
navigator.mediaDevices.getUserMedia = async () => voice.stream;
for (const kind of ["onset", "offset"])
  document.addEventListener("vivavoce:" + kind, () => { bench.audible = kind === "onset"; });
bench.untilAudible = async () => {
  while (!bench.audible) await new Promise((done) => setTimeout(done, 5));
};
bench.outputTime = (time) => { // when a sample of the context is output, on performance's clock
  const { contextTime, performanceTime } = bench.context.getOutputTimestamp();
  return performanceTime + 1000 * (time - contextTime);
};
bench.next = async (kind, withinMs = 30000) => {
  for (let waited = 0; waited < withinMs; waited += 5) {
    const found = bench.events.find(([other]) => other === kind);
    if (found) return found[1];
    await new Promise((done) => setTimeout(done, 5));
  }
  throw new Error(`no ${kind} within ${withinMs} ms`);
};
bench.say = async (tokens, completes, everyMs) => {
  bench.events.length = 0;
  const start = performance.now();
  let completedAt = 0;
  for (let i = 0; i < tokens.length; i++) {
    const wait = start + i * everyMs - performance.now();
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    if (i === completes) completedAt = performance.now();
    bench.channel.send(JSON.stringify({ type: "text", text: tokens[i] }));
  }
  bench.channel.send(JSON.stringify({ type: "end" }));
  const { time } = await bench.next("onset");
  return bench.outputTime(time) - completedAt;
};
bench.speakInto = async (base64, sampleRate) => {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const samples = Float32Array.from(new Int16Array(bytes.buffer), (value) => value / 32768);
  const buffer = new AudioBuffer({ length: samples.length, sampleRate });
  buffer.copyToChannel(samples, 0);
  const source = new AudioBufferSourceNode(room, { buffer });
  await room.resume();
  source.connect(voice);
  await bench.untilAudible();
  bench.events.length = 0;
  const spokenAt = performance.now();
  source.start();
  const { time } = await bench.next("offset");
  return bench.outputTime(time) - spokenAt;
};
bench.interrupt = async () => {
  await bench.untilAudible();
  bench.events.length = 0;
  const clickedAt = performance.now();
  document.getElementById("interrupt").click();
  const { time } = await bench.next("offset");
  return bench.outputTime(time) - clickedAt;
};
bench.inbound = async () => {
  for (const entry of (await bench.connection.getStats()).values())
    if (entry.type === "inbound-rtp" && entry.kind === "audio")
      return { lost: entry.packetsLost, received: entry.packetsReceived, concealed: entry.concealedSamples,
        jitterMs: 1000 * entry.jitterBufferDelay / Math.max(1, entry.jitterBufferEmittedCount) };
};
}
"""


@dataclass(frozen=True, slots=True)
class BrowserReceiverStats:
    """Counters of one call."""

    lost: int  # packets
    received: int  # packets
    concealed: int  # samples at 48 kHz
    jitter_ms: float  # mean delay of the jitter buffer
    underruns: int  # counted by the server's playout


@contextlib.asynccontextmanager
async def serve_browser_calls(
    engine: Engine, settings: BrowserCallSettings | None = None, agent: Agent | None = None
) -> AsyncIterator[tuple[BrowserCalls, str]]:
    """Serve browser calls and their page on loopback; yields them and the page's URL."""
    clock = Clock()
    ticking = asyncio.create_task(clock.run())
    settings = settings or BrowserCallSettings(greeting="")
    registry = CallRegistry(engine, max_calls=_MAX_CALLS)
    voices, access = VoiceRegistry(engine.voices), AccessControl.open_to_all()
    calls = BrowserCalls(
        clock=clock, services=CallServices(engine, registry), voices=voices, settings=settings, agent=agent
    )
    app = make_app(
        unready=lambda: None,
        registry=engine.metrics.registry,
        access=access,
        mounts=[
            Mount(routes(calls), Scope.CALLS),
            Mount(page_routes(access), None),
            Mount(page.routes(access, voices, max_input_characters=4_096), None),
        ],
    )
    sock = socket.create_server(("127.0.0.1", 0))
    http = HttpServer(app, sock)
    answering = asyncio.create_task(http.run_until_closed())
    try:
        await http.wait_started(answering)
        yield calls, f"http://127.0.0.1:{sock.getsockname()[1]}/call"
    finally:
        await calls.aclose()
        http.close()
        await answering
        ticking.cancel()
        await asyncio.wait({ticking})


@contextlib.asynccontextmanager
async def probed_call(browser: Chromium, url: str) -> AsyncIterator[BrowserTab]:
    """Open a tab with ``bench`` in its window and start a call; closes the tab."""
    async with probed_tab(browser, url) as tab:
        await start_call(tab)
        yield tab


@contextlib.asynccontextmanager
async def probed_tab(browser: Chromium, url: str, *init_scripts: str) -> AsyncIterator[BrowserTab]:
    """Open a tab with ``bench`` in its window and a silent microphone; closes it."""
    tab = await browser.new_tab()
    for script in (*init_scripts, _PAGE_PROBE_SCRIPT):
        await tab.add_init_script(script)
    await tab.open(url)
    try:
        yield tab
    finally:
        await tab.close()


async def start_call(tab: BrowserTab) -> None:
    """Press Call and wait until the call and its data channel are open."""
    await tab.run("document.getElementById('call').click()")
    await tab.wait_until("document.body.dataset.state === 'live' && bench.channel")


async def hang_up(tab: BrowserTab) -> None:
    """Press Hang up and wait until the page is idle."""
    await tab.run("document.getElementById('call').click(); delete bench.channel")
    await tab.wait_until("document.body.dataset.state === 'idle'")


def measure(*, calls: int = 5, seconds: float = 30.0) -> BenchReport:
    """Run the bench and return its report. Raises BrowserFailed.

    Args:
        calls: number of calls whose packet loss is measured.
        seconds: length of each of these calls.
    """
    figures = asyncio.run(_measure(calls, seconds))
    return BenchReport(
        "webrtc",
        tuple(figures),
        {
            "utterances": _UTTERANCES,
            "calls": calls,
            "seconds": seconds,
            "interruptions": _INTERRUPTIONS,
            "opened": _SHORT_CALLS,
        },
    )


async def _measure(calls: int, seconds: float) -> list[BenchFigure]:
    console = Console(stderr=True)
    figures: list[BenchFigure] = []
    with loopback_only():
        async with _run_gateway() as (gateway, url):
            async with open_chromium() as browser:
                with console.status("bench webrtc: time to the first sound"):
                    async with probed_call(browser, url) as tab:
                        figures += await _measure_latency(tab, _UTTERANCES)
                with console.status("bench webrtc: interruptions"):
                    interjection = await _synthesize_interjection(gateway.engine)
                    async with probed_call(browser, url) as tab:
                        figures += await _measure_stops(tab, _INTERRUPTIONS, interjection)
            stats = []
            for number in range(calls):
                with console.status(f"bench webrtc: call {number + 1} of {calls}"):
                    stats.append(await _measure_call(browser_calls(gateway), url, seconds))
            figures += _receiver_figures(stats, seconds)
            with console.status(f"bench webrtc: {_SHORT_CALLS} calls opened and closed"):
                figures += await _measure_leaks(browser_calls(gateway), url, _SHORT_CALLS)
    return figures


@contextlib.asynccontextmanager
async def _run_gateway() -> AsyncIterator[tuple[Gateway, str]]:
    """Run the whole server on free ports; yields it and the page's URL."""
    settings = load_settings(
        flags={
            **{"http_port": 0, "audiosocket_port": 0, "agents_default": "none"},
        }
    )
    with patch.object(engine_opening, "KEPT_SPEECH_BYTES", 0), patch.object(way_in, "GREETING", ""):
        opened = await Gateway.open(settings)
    async with contextlib.aclosing(opened) as gateway:
        host, port = gateway.addresses.http
        yield gateway, f"http://{host}:{port}/call"


async def _measure_latency(tab: BrowserTab, utterances: int) -> list[BenchFigure]:
    latencies_ms = []
    for number in range(utterances + 1):
        tokens = llm_tokens(_SENTENCES[number % len(_SENTENCES)] + " ")
        completes = next(index for index, token in enumerate(tokens) if "," in token)
        latencies_ms.append(await tab.run(f"bench.say({tokens!r}, {completes}, {1000 / TOKENS_PER_S})"))
        await tab.run("bench.next('speech_finished')")
        await asyncio.sleep(1.0)
    latencies_ms = latencies_ms[1:]  # the first one also opens the audio output
    return [
        BenchFigure("audible after the token, p50", _percentile(latencies_ms, 50), "ms", at_most=150.0),
        BenchFigure("audible after the token, p95", _percentile(latencies_ms, 95), "ms"),
    ]


async def _measure_stops(tab: BrowserTab, interruptions: int, interjection: str) -> list[BenchFigure]:
    after_button_ms, after_speech_ms = [], []
    for _ in range(interruptions):
        after_button_ms.append(await _measure_stop(tab, "bench.interrupt()"))
        after_speech_ms.append(await _measure_stop(tab, f"bench.speakInto({interjection!r}, 24000)"))
    return [
        BenchFigure("sound stops after Interrupt, worst", max(after_button_ms), "ms", at_most=100.0),
        BenchFigure("sound stops after Interrupt, p50", _percentile(after_button_ms, 50), "ms"),
        BenchFigure("sound stops after the caller speaks, worst", max(after_speech_ms), "ms", at_most=150.0),
        BenchFigure("sound stops after the caller speaks, p50", _percentile(after_speech_ms, 50), "ms"),
    ]


async def _measure_stop(tab: BrowserTab, script: str) -> float:
    while True:
        await tab.run(f"bench.say([{_LONG_TEXT!r}], 0, 0)")
        await asyncio.sleep(0.8)
        latencies_ms = float(await tab.run(script))
        await asyncio.sleep(1.5)  # until the interjection has ended and the gate is open again
        if latencies_ms > 0:  # otherwise the interruption hit a pause of the speech
            return latencies_ms


async def _measure_call(calls: BrowserCalls, url: str, seconds: float) -> BrowserReceiverStats:
    async with open_chromium() as browser, probed_call(browser, url) as tab:
        text = _LONG_TEXT * (1 + int(seconds / 8))
        await tab.run(f"bench.say([{text!r}], 0, 0)")
        await asyncio.sleep(seconds)
        inbound: dict[str, Any] = await tab.run("bench.inbound()")
        *_, listed = calls.registry  # the last: the call of the previous browser may not have ended yet
        return BrowserReceiverStats(
            lost=inbound["lost"],
            received=inbound["received"],
            concealed=inbound["concealed"],
            jitter_ms=inbound["jitterMs"],
            underruns=listed.call.media.report.stats.underruns,
        )


def _receiver_figures(stats: list[BrowserReceiverStats], seconds: float) -> list[BenchFigure]:
    if not stats:
        return []
    name = f"{len(stats)} calls of {seconds:g} s"
    concealed = [each.concealed for each in stats]
    return [
        BenchFigure(f"packets lost, {name}", sum(each.lost for each in stats), "", at_most=0),
        BenchFigure(f"packets received, {name}", sum(each.received for each in stats), ""),
        BenchFigure(f"concealed samples, median of {name}", statistics.median(concealed), "", at_most=0),
        BenchFigure(f"concealed samples, worst of {name}", max(concealed), ""),
        BenchFigure(f"underruns, {name}", sum(each.underruns for each in stats), "", at_most=0),
        BenchFigure(
            f"jitter buffer, mean of {name}", statistics.mean(each.jitter_ms for each in stats), "ms"
        ),
    ]


async def _measure_leaks(calls: BrowserCalls, url: str, call_count: int) -> list[BenchFigure]:
    async with open_chromium() as browser, probed_call(browser, url) as tab:
        await hang_up(tab)
        for _ in range(WARM_UP_CALLS):
            await _brief_call(tab, calls)
        before = ProcessFootprint.now()
        for _ in range(call_count):
            await _brief_call(tab, calls)
        after = ProcessFootprint.now()
    name = f"after {call_count} calls opened and closed"
    return [
        BenchFigure(f"tasks more {name}", after.tasks - before.tasks, "", at_most=0),
        BenchFigure(f"open files more {name}", after.files - before.files, "", at_most=0),
        BenchFigure(f"threads more {name}", after.threads - before.threads, "", at_most=0),
        BenchFigure(
            f"resident memory more {name}", after.resident_mb - before.resident_mb, "MB", at_most=10.0
        ),
    ]


async def _brief_call(tab: BrowserTab, calls: BrowserCalls) -> None:
    await start_call(tab)
    await tab.run("bench.say(['Hello. '], 0, 0)")
    await hang_up(tab)
    await asyncio.wait_for(calls.wait_idle(), _END_TIMEOUT_S)


async def _synthesize_interjection(engine: SpeechEngine) -> str:
    """Return a spoken phrase from its first audible sample on: base64 of s16le at 24 kHz."""
    async with engine.stream() as stream:
        stream.push_text(_INTERJECTION)
        stream.end_input()
        pcm = b"".join([chunk.pcm async for chunk in stream])
    span = audible_span(pcm)
    assert span is not None
    return base64.b64encode(pcm[2 * span[0] : 2 * span[1]]).decode("ascii")


def _percentile(values: list[float], percent: float) -> float:
    return float(np.percentile(values, percent))
