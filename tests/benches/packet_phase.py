"""An utterance's first packet on the call's clock, or at once: when a real receiver plays it.

Chromium receives a stream without pauses, as calls are: packets of 20 ms whose timestamps go on. Utterances
of tones are ready at random between two ticks of the clock. On the clock, the first packet waits for the next
tick. At once, the utterance's packets leave early by that wait, and the clock's ticks go on in the silence
after it, so that no more than a packet is ever ahead. The browser says when it plays each beginning, and what
its jitter buffer does.

    ready       ^            ^                              clock  |    |    |    |    |
    on the clock             ····|tone|tone                 silence     tone tone
    at once                  |tone|tone|                    silence  tone tone
"""

import asyncio
import itertools
import random
import statistics
import time
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame

from shared.browser.chromium import BrowserTab, loopback_only, open_chromium
from shared.gateways.server_process import server_process
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_RATE: Final = 48_000  # Hz, Opus
_PACKET_S: Final = 0.02
_SAMPLES: Final = round(_PACKET_S * _RATE)
_TONE_PACKETS, _SILENT_PACKETS = 40, 40
_WARM_UP: Final = 3  # utterances that are not counted
_WAYS: Final = {"on the clock": False, "at once": True}
_RECEIVE = """
window.begins = [];
window.peer = new RTCPeerConnection({ iceServers: [] });
peer.ontrack = async ({ track }) => {
  const sound = new Audio();
  sound.srcObject = new MediaStream([track]);
  sound.play();
  const reader = new MediaStreamTrackProcessor({ track }).readable.getReader();
  let quiet = 0;
  for (;;) {
    const { value: data, done } = await reader.read();
    if (done) return;
    const now = performance.timeOrigin + performance.now();
    const samples = new Float32Array(data.numberOfFrames);
    data.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
    const first = samples.findIndex((sample) => Math.abs(sample) > 0.02);
    if (first >= 0 && quiet > 0.3) begins.push(now + 1000 * (first - samples.length) / data.sampleRate);
    quiet = first >= 0 ? 0 : quiet + samples.length / data.sampleRate;
    data.close();
  }
};
(async () => {
  peer.addTransceiver("audio", { direction: "recvonly" });
  await peer.setLocalDescription(await peer.createOffer());
  await new Promise((done) => { if (peer.iceGatheringState === "complete") done();
    peer.onicegatheringstatechange = () => peer.iceGatheringState === "complete" && done(); });
  return peer.localDescription.sdp;
})()
"""
_BUFFER = """
(async () => { for (const each of (await peer.getStats()).values())
  if (each.type === "inbound-rtp") return {
    delay: each.jitterBufferDelay, emitted: each.jitterBufferEmittedCount, concealed: each.concealedSamples,
    removed: each.removedSamplesForAcceleration, inserted: each.insertedSamplesForDeceleration }; })()
"""


@dataclass
class _Speaker(MediaStreamTrack):
    """Silence and utterances. ready_at: Unix seconds at which each utterance was."""

    at_once: bool
    utterances: int
    kind: str = "audio"
    ready_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._random = random.Random(1)
        self._numbers = itertools.count()
        self._begins: float | None = None
        self._wait_s = 0.0  # of the utterance, for the next tick
        self._tone = (8_000 * np.sin(2 * np.pi * 440 * np.arange(_SAMPLES) / _RATE)).astype(np.int16)

    async def recv(self) -> AudioFrame:
        """The next packet, when it is due."""
        number = next(self._numbers)
        if self._begins is None:
            self._begins = time.time()
        position = number % (_TONE_PACKETS + _SILENT_PACKETS) - _SILENT_PACKETS
        due = self._begins + number * _PACKET_S
        if position == 0:
            self._wait_s = self._random.uniform(0.0, _PACKET_S)
            self.ready_at.append(due - self._wait_s)
        if position >= 0 and self.at_once:
            due -= self._wait_s
        await asyncio.sleep(due - time.time())
        frame = AudioFrame.from_ndarray(
            (self._tone if position >= 0 else np.zeros_like(self._tone))[None], layout="mono"
        )
        frame.sample_rate, frame.time_base, frame.pts = _RATE, Fraction(1, _RATE), number * _SAMPLES
        return frame


def measure(utterances: int) -> BenchReport:
    """Play utterances both ways, each to a receiver of its own."""
    return BenchReport("packet-phase", tuple(asyncio.run(_measure(utterances))), {"utterances": utterances})


async def _measure(utterances: int) -> list[BenchFigure]:
    figures = []
    async with server_process() as (_, url), open_chromium() as browser:
        for way, at_once in _WAYS.items():
            tab = await browser.new_tab()
            await tab.open(url)  # a page of loopback, which may use what an empty page may not
            figures += await _play(tab, way, _Speaker(at_once, utterances + _WARM_UP))
            await tab.close()
    return figures


async def _play(tab: BrowserTab, way: str, speaker: _Speaker) -> list[BenchFigure]:
    with loopback_only():
        peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        peer.addTrack(speaker)
        await peer.setRemoteDescription(RTCSessionDescription(await tab.run(_RECEIVE), "offer"))
        await peer.setLocalDescription(await peer.createAnswer())
        await tab.run(f"peer.setRemoteDescription({{ type: 'answer', sdp: {peer.localDescription.sdp!r} }})")
        while len(speaker.ready_at) < speaker.utterances:
            await asyncio.sleep(0.1)
        await asyncio.sleep(_TONE_PACKETS * _PACKET_S)
        begins: list[float] = await tab.run("begins")
        buffer: dict[str, Any] = await tab.run(_BUFFER)
        await peer.close()
    ready_at = speaker.ready_at[len(speaker.ready_at) - len(begins) :]
    waits_ms = [begin - 1000 * ready for begin, ready in zip(begins, ready_at, strict=True)][_WARM_UP:]
    return [
        BenchFigure(f"{way}: from ready to played, median", statistics.median(waits_ms), "ms"),
        BenchFigure(f"{way}: in the jitter buffer, mean", 1000 * buffer["delay"] / buffer["emitted"], "ms"),
        BenchFigure(f"{way}: samples concealed", buffer["concealed"], ""),
        BenchFigure(f"{way}: samples left out or put in", buffer["removed"] + buffer["inserted"], ""),
    ]
