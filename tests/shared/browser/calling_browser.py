"""A browser that calls a running gateway over HTTP and WebRTC, by aiortc, and keeps what it hears."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx
from aiortc.mediastreams import MediaStreamError

from vivavoce.gateway.cli.phones.received_audio import ReceivedPacket

from .webrtc_browser import Browser, ToneTrack

TIMEOUT_S = 30.0


class CallingBrowser:
    """One call, over one connection after another."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.call_id = ""
        self.packets: list[ReceivedPacket] = []  # of the connection that counts
        self.closed = asyncio.Event()  # the gateway ended the connection that counts
        self.closed_at = 0.0  # monotonic seconds
        self._url = f"http://{address[0]}:{address[1]}/api/offer"
        self._connection: _Connection | None = None
        self._former: list[_Connection] = []

    @classmethod
    @asynccontextmanager
    async def call(cls, address: tuple[str, int]) -> AsyncIterator[Self]:
        """Call the gateway at that address of HTTP, and wait until audio can flow."""
        browser = cls(address)
        try:
            await browser.connect()
            yield browser
        finally:
            await browser._close()

    async def connect(self) -> None:
        """Open a connection: of a new call, or in the place of the last one, which no longer counts."""
        restarts = {"pc_id": self.call_id, "restart_pc": True} if self.call_id else {}
        if self._connection is not None:
            self._former.append(self._connection)
        self._connection = connection = _Connection(self)
        offer = {"type": "offer", "sdp": await connection.browser.offer(), "skip_greeting": True, **restarts}
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
            answer = (await client.post(self._url, json=offer)).raise_for_status().json()
        self.call_id = answer["pc_id"]
        await connection.browser.accept(answer["sdp"])
        await asyncio.wait_for(connection.browser.opened.wait(), TIMEOUT_S)

    def lose(self) -> None:
        """Hear nothing more of the connection, as when its network is gone."""
        self._connection, lost = None, self._connection
        if lost is not None:
            self._former.append(lost)

    def counts(self, connection: "_Connection") -> bool:
        """Whether a connection is the one that counts."""
        return connection is self._connection

    async def _close(self) -> None:
        for connection in (self._connection, *self._former):
            if connection is not None:
                await connection.browser.close()


class _Connection:
    """One connection, which passes what it hears to its call."""

    def __init__(self, call: CallingBrowser) -> None:
        self._call = call
        self.browser = Browser(self._receive)
        self.browser.connection.addTrack(ToneTrack(level=0))
        self.browser.connection.on("connectionstatechange", self._on_state)

    def _on_state(self) -> None:
        if self.browser.connection.connectionState in ("closed", "failed"):
            self._end()

    def _end(self) -> None:
        if self._call.counts(self) and not self._call.closed.is_set():
            self._call.closed_at = time.monotonic()
            self._call.closed.set()

    async def _receive(self, track: Any) -> None:
        try:
            while True:
                frame = await track.recv()
                if self._call.counts(self):
                    samples = frame.to_ndarray().reshape(-1, len(frame.layout.channels))
                    pcm = samples[:, 0].astype("<i2").tobytes()
                    self._call.packets.append(ReceivedPacket(time.monotonic(), frame.sample_rate, pcm))
        except MediaStreamError:
            self._end()
