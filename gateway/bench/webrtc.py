"""The browser bench: what somebody hears who calls from a real Chromium, over loopback.

The gateway runs here, the browser is a process of its own, and the page is the one that callers get. Times
are the browser's: sound is timed where the page hands it to the sound card, the card's delay added.

Audible after the token: tokens at 40 a second over the data channel; from the send of the one that completes
the first clause to the first sample above -50 dBFS.
Stops: from the click, or from the first audible sample of somebody speaking into the microphone, to the last
sample above -50 dBFS.
Lost, concealed: what the browser itself reports of a call (getStats). Left behind: tasks, open files, threads
and resident memory of this process, after calls that each spoke and hung up.
"""

import asyncio
import base64
import contextlib
import gc
import os
import socket
import statistics
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

from ...tts_engine.engine import Engine
from ..access.access import Access
from ..access.keys import Scope
from ..agents import llm_tokens
from ..browser.calls import BrowserCalls, BrowserCallSettings
from ..browser.routes import routes
from ..call_registry import CallRegistry
from ..clock import Clock
from ..heard import audible_span
from ..http import HttpServer, Mount, make_app
from ..serve import Gateway
from ..settings import load_settings
from ..voice_registry import VoiceRegistry
from .chromium import Chromium, Tab, loopback_only, open_chromium
from .report import Figure, Report

TOKENS_PER_S = 40
WARM_UP_CALLS = 5
_UTTERANCES = 20  # timed
_INTERRUPTIONS = 10  # of each kind
_OPENED = 50  # calls, and closed
_ENDS_WITHIN_S = 30.0
_MOST_CALLS = 100
_TALK = (
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
# Before the page's own scripts: what it builds is kept where the bench finds it, and the microphone is ours.
_TAP = """
window.bench = { heard: [], audible: false };
{
for (const kind of ["first-sound", "stopped", "onset", "offset"])
  document.addEventListener("vivavoce:" + kind, ({ detail }) => bench.heard.push([kind, detail]));
for (const [name, key] of [["AudioContext", "context"], ["RTCPeerConnection", "connection"]]) {
  const Original = window[name];
  window[name] = class extends Original { constructor(...a) { super(...a); bench[key] = this; } };
}
const send = RTCDataChannel.prototype.send;
RTCDataChannel.prototype.send = function (data) {
  if (bench.channel !== this) this.addEventListener("message", ({ data }) => {
    const { type } = JSON.parse(data);
    if (type === "speech_finished" || type === "error") bench.heard.push([type, {}]);
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
bench.soundsAt = (time) => { // when what is played at ``time`` is heard, on performance's clock
  const { contextTime, performanceTime } = bench.context.getOutputTimestamp();
  return performanceTime + 1000 * (time - contextTime);
};
bench.next = async (kind, withinMs = 30000) => {
  for (let waited = 0; waited < withinMs; waited += 5) {
    const found = bench.heard.find(([other]) => other === kind);
    if (found) return found[1];
    await new Promise((done) => setTimeout(done, 5));
  }
  throw new Error(`no ${kind} within ${withinMs} ms`);
};
bench.say = async (tokens, completes, everyMs) => {
  bench.heard.length = 0;
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
  return bench.soundsAt(time) - completedAt;
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
  bench.heard.length = 0;
  const spokenAt = performance.now();
  source.start();
  const { time } = await bench.next("offset");
  return bench.soundsAt(time) - spokenAt;
};
bench.interrupt = async () => {
  await bench.untilAudible();
  bench.heard.length = 0;
  const pressedAt = performance.now();
  document.getElementById("interrupt").click();
  const { time } = await bench.next("offset");
  return bench.soundsAt(time) - pressedAt;
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
class CallStats:
    """What a browser reports of one call. ``concealed``: samples at 48 kHz."""

    lost: int
    received: int
    concealed: int
    jitter_ms: float
    underruns: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """What this process holds."""

    tasks: int
    files: int
    threads: int
    resident_mb: float

    @classmethod
    def now(cls) -> "Footprint":
        """Counted after a collection; threads of the executor, which never end, are left out."""
        gc.collect()
        threads = [one for one in threading.enumerate() if not one.name.startswith("asyncio_")]
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        return cls(
            tasks=len(asyncio.all_tasks()),
            files=len(os.listdir("/proc/self/fd")),
            threads=len(threads),
            resident_mb=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        )


@contextlib.asynccontextmanager
async def serving(
    engine: Engine, settings: BrowserCallSettings | None = None
) -> AsyncIterator[tuple[BrowserCalls, str]]:
    """Browser calls and their page on loopback; yields them and the page's URL."""
    clock = Clock(metrics=engine.metrics)
    ticking = asyncio.create_task(clock.run())
    settings = settings or BrowserCallSettings(greeting="")
    registry = CallRegistry(engine, max_calls=_MOST_CALLS)
    voices = VoiceRegistry(engine.voices)
    calls = BrowserCalls(engine=engine, clock=clock, registry=registry, voices=voices, settings=settings)
    app = make_app(
        unready=lambda: None,
        registry=engine.metrics.registry,
        access=Access.open_house(),
        mounts=[Mount(routes(calls), Scope.CALLS)],
    )
    sock = socket.create_server(("127.0.0.1", 0))
    http = HttpServer(app, sock)
    answering = asyncio.create_task(http.run_until_closed())
    try:
        await http.wait_started(answering)
        yield calls, f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        await calls.aclose()
        http.close()
        await answering
        ticking.cancel()
        await asyncio.wait({ticking})


@contextlib.asynccontextmanager
async def tapped_call(browser: Chromium, url: str) -> AsyncIterator[Tab]:
    """A tab that is on a call, with ``bench`` in its window."""
    tab = await browser.new_tab()
    await tab.before_load(_TAP)
    await tab.open(url)
    await call(tab)
    try:
        yield tab
    finally:
        await tab.close()


async def call(tab: Tab) -> None:
    """Press Call, and wait until it is answered and messages can be sent."""
    await tab.run("document.getElementById('call').click()")
    await tab.wait_until("document.body.dataset.state === 'live' && bench.channel")


async def hang_up(tab: Tab) -> None:
    """Press Hang up."""
    await tab.run("document.getElementById('call').click(); delete bench.channel")
    await tab.wait_until("document.body.dataset.state === 'idle'")


def measure(*, calls: int = 5, seconds: float = 30.0) -> Report:
    """Call and return the figures; ``calls`` of ``seconds`` are listened to. Raises BrowserFailed."""
    figures = asyncio.run(_measure(calls, seconds))
    return Report(
        "webrtc",
        tuple(figures),
        {
            "utterances": _UTTERANCES,
            "calls": calls,
            "seconds": seconds,
            "interruptions": _INTERRUPTIONS,
            "opened": _OPENED,
        },
    )


async def _measure(calls: int, seconds: float) -> list[Figure]:
    console = Console(stderr=True)
    figures: list[Figure] = []
    with loopback_only():
        async with _gateway() as (gateway, url):
            async with open_chromium() as browser:
                with console.status("bench webrtc: from the token to the ear"):
                    async with tapped_call(browser, url) as tab:
                        figures += await _measure_latency(tab, _UTTERANCES)
                with console.status("bench webrtc: interruptions"):
                    interjection = await _interjection(gateway.engine)
                    async with tapped_call(browser, url) as tab:
                        figures += await _measure_stops(tab, _INTERRUPTIONS, interjection)
            stats = []
            for number in range(calls):
                with console.status(f"bench webrtc: call {number + 1} of {calls}"):
                    stats.append(await _one_call(gateway.browsers, url, seconds))
            figures += _line_figures(stats, seconds)
            with console.status(f"bench webrtc: {_OPENED} calls opened and closed"):
                figures += await _measure_leftovers(gateway.browsers, url, _OPENED)
    return figures


@contextlib.asynccontextmanager
async def _gateway() -> AsyncIterator[tuple[Gateway, str]]:
    """The server as it is served, on free ports; yields it and the page's URL."""
    settings = load_settings(flags={"http_port": 0, "audiosocket_port": 0, "agent": "none", "greeting": ""})
    async with contextlib.aclosing(await Gateway.open(settings)) as gateway:
        host, port = gateway.addresses.http
        yield gateway, f"http://{host}:{port}"


async def _measure_latency(tab: Tab, utterances: int) -> list[Figure]:
    took_ms = []
    for number in range(utterances + 1):
        tokens = llm_tokens(_SENTENCES[number % len(_SENTENCES)] + " ")
        completes = next(index for index, token in enumerate(tokens) if "," in token)
        took_ms.append(await tab.run(f"bench.say({tokens!r}, {completes}, {1000 / TOKENS_PER_S})"))
        await tab.run("bench.next('speech_finished')")
        await asyncio.sleep(1.0)
    took_ms = took_ms[1:]  # the first one opens the loudspeaker
    return [
        Figure("audible after the token, p50", _percentile(took_ms, 50), "ms", at_most=150.0),
        Figure("audible after the token, p95", _percentile(took_ms, 95), "ms"),
    ]


async def _measure_stops(tab: Tab, interruptions: int, interjection: str) -> list[Figure]:
    pressed, spoken = [], []
    for _ in range(interruptions):
        pressed.append(await _stop(tab, "bench.interrupt()"))
        spoken.append(await _stop(tab, f"bench.speakInto({interjection!r}, 24000)"))
    return [
        Figure("sound stops after Interrupt, worst", max(pressed), "ms", at_most=100.0),
        Figure("sound stops after Interrupt, p50", _percentile(pressed, 50), "ms"),
        Figure("sound stops after the caller speaks, worst", max(spoken), "ms", at_most=150.0),
        Figure("sound stops after the caller speaks, p50", _percentile(spoken, 50), "ms"),
    ]


async def _stop(tab: Tab, how: str) -> float:
    while True:
        await tab.run(f"bench.say([{_TALK!r}], 0, 0)")
        await asyncio.sleep(0.8)
        took_ms = float(await tab.run(how))
        await asyncio.sleep(1.5)  # the interjection ends, and the gate opens again
        if took_ms > 0:  # else it met a pause of the speaker's, and there was nothing to stop
            return took_ms


async def _one_call(calls: BrowserCalls, url: str, seconds: float) -> CallStats:
    async with open_chromium() as browser, tapped_call(browser, url) as tab:
        text = _TALK * (1 + int(seconds / 8))
        await tab.run(f"bench.say([{text!r}], 0, 0)")
        await asyncio.sleep(seconds)
        inbound: dict[str, Any] = await tab.run("bench.inbound()")
        *_, listed = calls.registry  # one that a closed browser left may not be over yet
        return CallStats(
            lost=inbound["lost"],
            received=inbound["received"],
            concealed=inbound["concealed"],
            jitter_ms=inbound["jitterMs"],
            underruns=listed.call.playout.stats.underruns,
        )


def _line_figures(stats: list[CallStats], seconds: float) -> list[Figure]:
    if not stats:
        return []
    name = f"{len(stats)} calls of {seconds:g} s"
    concealed = [one.concealed for one in stats]
    return [
        Figure(f"packets lost, {name}", sum(one.lost for one in stats), "", at_most=0),
        Figure(f"packets received, {name}", sum(one.received for one in stats), ""),
        Figure(f"concealed samples, median of {name}", statistics.median(concealed), "", at_most=0),
        Figure(f"concealed samples, worst of {name}", max(concealed), ""),
        Figure(f"underruns, {name}", sum(one.underruns for one in stats), "", at_most=0),
        Figure(f"jitter buffer, mean of {name}", statistics.mean(one.jitter_ms for one in stats), "ms"),
    ]


async def _measure_leftovers(calls: BrowserCalls, url: str, opened: int) -> list[Figure]:
    async with open_chromium() as browser, tapped_call(browser, url) as tab:
        await hang_up(tab)
        for _ in range(WARM_UP_CALLS):
            await _brief_call(tab, calls)
        before = Footprint.now()
        for _ in range(opened):
            await _brief_call(tab, calls)
        after = Footprint.now()
    name = f"after {opened} calls opened and closed"
    return [
        Figure(f"tasks more {name}", after.tasks - before.tasks, "", at_most=0),
        Figure(f"open files more {name}", after.files - before.files, "", at_most=0),
        Figure(f"threads more {name}", after.threads - before.threads, "", at_most=0),
        Figure(f"resident memory more {name}", after.resident_mb - before.resident_mb, "MB", at_most=10.0),
    ]


async def _brief_call(tab: Tab, calls: BrowserCalls) -> None:
    await call(tab)
    await tab.run("bench.say(['Hello. '], 0, 0)")
    await hang_up(tab)
    await asyncio.wait_for(calls.wait_idle(), _ENDS_WITHIN_S)


async def _interjection(engine: Engine) -> str:
    """Somebody saying something, from its first audible sample on, as base64 of s16le at 24 kHz."""
    async with engine.stream() as stream:
        stream.push_text(_INTERJECTION)
        stream.end_input()
        pcm = b"".join([chunk.pcm async for chunk in stream])
    span = audible_span(pcm)
    assert span is not None
    return base64.b64encode(pcm[2 * span[0] : 2 * span[1]]).decode("ascii")


def _percentile(values: list[float], percent: float) -> float:
    return float(np.percentile(values, percent))
