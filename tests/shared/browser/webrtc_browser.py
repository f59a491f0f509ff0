"""The browser's side of WebRTC calls for tests, by aiortc."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from aiortc import AudioStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from vivavoce.adapters.webrtc.peer import WebRtcPeer

TIMEOUT_S = 30.0
PACKET_SAMPLES = 480  # samples, 20 ms


def tone(number: int, level: int = 8_000) -> bytes:
    """Packet ``number`` of a continuous 500 Hz tone, 20 ms at 24 kHz."""
    time_s = (number * PACKET_SAMPLES + np.arange(PACKET_SAMPLES)) / 24_000
    return (level * np.sin(2 * np.pi * 500 * time_s)).astype("<i2").tobytes()


class RecordingListener:
    """A listener that records its callbacks."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.closed = asyncio.Event()
        self.messages: list[str] = []
        self.reasons: list[str] = []
        self.pcm = bytearray()

    def on_connected(self) -> None:
        self.connected.set()

    def on_message(self, message: str) -> None:
        self.messages.append(message)

    def on_audio(self, pcm: bytes) -> None:
        self.pcm += pcm

    def on_closed(self, reason: str) -> None:
        self.reasons.append(reason)
        self.closed.set()


class ToneTrack(AudioStreamTrack):
    """A microphone that delivers a 1 kHz tone, 8 kHz mono. level: its amplitude; 0 is silence."""

    _at = 0

    def __init__(self, level: int = 10_000) -> None:
        super().__init__()
        self._level = level

    async def recv(self) -> AudioFrame:
        frame = await super().recv()
        assert isinstance(frame, AudioFrame)
        time_s = (self._at + np.arange(frame.samples)) / frame.sample_rate
        self._at += frame.samples
        frame.planes[0].update((self._level * np.sin(2 * np.pi * 1_000 * time_s)).astype("<i2").tobytes())
        return frame


class Browser:
    """The browser's side of a call, by aiortc. receive: takes its track, in place of ``levels``."""

    def __init__(self, receive: Callable[[Any], Coroutine[Any, Any, None]] | None = None) -> None:
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.channel = self.connection.createDataChannel("page")
        self.opened = asyncio.Event()
        self.messages: list[str] = []
        self.levels: list[int] = []  # peak of each received frame
        self._receive = receive or self._keep_levels
        self._receiving: asyncio.Task[None] | None = None
        self.channel.on("open", self.opened.set)
        self.channel.on("message", self.messages.append)
        self.connection.on("track", self._on_track)

    def _on_track(self, track: Any) -> None:
        self._receiving = asyncio.ensure_future(self._receive(track))

    async def _keep_levels(self, track: Any) -> None:
        try:
            while True:
                frame = await track.recv()
                self.levels.append(int(np.abs(frame.to_ndarray().astype(np.int32)).max()))
        except MediaStreamError:
            pass

    async def offer(self) -> str:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return str(self.connection.localDescription.sdp)

    async def accept(self, sdp: str) -> None:
        await self.connection.setRemoteDescription(RTCSessionDescription(sdp, "answer"))

    async def close(self) -> None:
        await self.connection.close()
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait({self._receiving})


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[Browser, WebRtcPeer, RecordingListener]]:
    browser, listener = Browser(), RecordingListener()
    browser.connection.addTrack(ToneTrack())
    peer = await WebRtcPeer.answer(await browser.offer(), listener, **options)
    await browser.accept(peer.answer_sdp)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await listener.connected.wait()
            await browser.opened.wait()
        yield browser, peer, listener
    finally:
        await peer.aclose()
        await browser.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)
