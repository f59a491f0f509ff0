"""Callers of the example bot for tests: Asterisk, a browser, and phone providers, each in real time."""

import asyncio
import base64
import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import httpx
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame, AudioResampler
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from vivavoce.adapters.audio.formats.g711 import ulaw_decode, ulaw_encode
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
)

PACKET_S = 0.02
PACKET_BYTES = 320
END_SILENCE_S = 2.0  # silence that ends a reply; on a busy machine a bot pauses within a sentence
MAX_PACKETS = 3_000  # to wait for speech or for its end: one minute
SPEECH_LEVEL = 300  # of 32,767
C = TypeVar("C", bound="Caller")


class Caller(ABC):
    """A call in real time: sends a packet of speech or silence every 20 ms, and records what it receives."""

    def __init__(self) -> None:
        self.received = bytearray()  # s16le, 8 kHz
        self._due = time.monotonic()

    async def speak(self, pcm: bytes) -> None:
        for start in range(0, len(pcm), PACKET_BYTES):
            await self._packet(pcm[start : start + PACKET_BYTES].ljust(PACKET_BYTES, b"\0"))

    async def receive_reply(self) -> bytes:
        """Return the audio received up to END_SILENCE_S of silence after speech."""
        start, silence_s, started = len(self.received), 0.0, False
        for _ in range(MAX_PACKETS):
            loud = await self._packet(bytes(PACKET_BYTES))
            started, silence_s = started or loud, 0.0 if loud else silence_s + PACKET_S
            if started and silence_s > END_SILENCE_S:
                break
        return bytes(self.received[start:])

    async def until_speech(self) -> None:
        for _ in range(MAX_PACKETS):
            if await self._packet(bytes(PACKET_BYTES)):
                return
        raise TimeoutError(f"no speech within {MAX_PACKETS * PACKET_S:g} s")

    async def _packet(self, pcm: bytes) -> bool:
        """Send a packet when it is due. Returns whether speech was received in the meantime."""
        before = len(self.received)
        # After a stall, packets are not sent in a burst.
        self._due = max(self._due + PACKET_S, time.monotonic())
        await asyncio.sleep(self._due - time.monotonic())
        await self.send(pcm)
        new = np.frombuffer(bytes(self.received[before:]), "<i2")
        return bool(len(new)) and int(np.abs(new.astype(int)).max()) > SPEECH_LEVEL

    @abstractmethod
    async def send(self, pcm: bytes) -> None:
        """Send 20 ms, s16le at 8 kHz."""

    @abstractmethod
    async def receive(self) -> None:
        """Record the received audio until the call ends."""

    @abstractmethod
    async def hang_up(self) -> None:
        """End the call."""


class AsteriskCaller(Caller):
    """Asterisk's side of an AudioSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader, self._writer = reader, writer
        self._connection = AudioSocketConnection(AudioSocketRole.CALLER)
        writer.write(self._connection.send(CallId(uuid.uuid4())))

    @classmethod
    async def dial(cls, port: int) -> "AsteriskCaller":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, pcm: bytes) -> None:
        self._writer.write(self._connection.send(AudioSocketAudio(8_000, pcm)))

    async def receive(self) -> None:
        while data := await self._reader.read(65_536):
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, AudioSocketAudio):
                    self.received += event.payload

    async def hang_up(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@dataclass(frozen=True)
class ProviderProtocol:
    """The messages that open a phone provider's media stream, and the encoding of its audio."""

    opening_messages: tuple[dict[str, Any], ...]
    encode: Callable[[bytes], bytes] = ulaw_encode
    decode: Callable[[bytes], bytes] = ulaw_decode


def unchanged(pcm: bytes) -> bytes:
    return pcm


PROVIDERS = {
    "twilio": ProviderProtocol(
        (
            {"event": "connected", "protocol": "Call", "version": "1.0.0"},
            {
                "event": "start",
                "sequenceNumber": "1",
                "start": {
                    "streamSid": "MZ1",
                    "callSid": "CA1",
                    "accountSid": "AC1",
                    "tracks": ["inbound"],
                    "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
                    "customParameters": {},
                },
                "streamSid": "MZ1",
            },
        )
    ),
    "telnyx": ProviderProtocol(
        (
            {"event": "connected", "version": "1.0.0"},
            {
                "event": "start",
                "stream_id": "s1",
                "start": {
                    "call_control_id": "v3:1",
                    "media_format": {"encoding": "PCMU", "sample_rate": 8000, "channels": 1},
                },
            },
        )
    ),
    "plivo": ProviderProtocol(
        (
            {"event": "start", "start": {"streamId": "s1", "callId": "c1", "tracks": ["inbound"]}},
            {"event": "media", "media": {"payload": ""}},
        )
    ),
    "exotel": ProviderProtocol(
        (
            {"event": "connected"},
            {"event": "start", "start": {"stream_sid": "s1", "call_sid": "c1", "account_sid": "a1"}},
        ),
        unchanged,
        unchanged,
    ),
}


class ProviderCaller(Caller):
    """A phone provider's side of its media WebSocket."""

    def __init__(self, socket: ClientConnection, provider: ProviderProtocol) -> None:
        super().__init__()
        self.clear_count = 0  # messages that drop the audio not played yet
        self._socket = socket
        self._provider = provider

    @classmethod
    async def dial(cls, port: int, name: str = "twilio") -> "ProviderCaller":
        socket = await connect(f"ws://127.0.0.1:{port}/ws", proxy=None)
        for message in PROVIDERS[name].opening_messages:
            await socket.send(json.dumps(message))
        return cls(socket, PROVIDERS[name])

    async def send(self, pcm: bytes) -> None:
        payload = base64.b64encode(self._provider.encode(pcm)).decode()
        await self._socket.send(json.dumps({"event": "media", "media": {"payload": payload}}))

    async def receive(self) -> None:
        with suppress(ConnectionClosed):
            async for text in self._socket:
                message = json.loads(text)
                if message["event"] in ("clear", "clearAudio"):
                    self.clear_count += 1
                elif "media" in message:
                    self.received += self._provider.decode(base64.b64decode(message["media"]["payload"]))

    async def hang_up(self) -> None:
        with suppress(ConnectionClosed):
            await self._socket.send(json.dumps({"event": "stop"}))
        await self._socket.close()


class Microphone(MediaStreamTrack):
    """An audio track of the packets that the caller speaks."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.packets: asyncio.Queue[bytes] = asyncio.Queue(50)
        self._samples = 0

    async def recv(self) -> AudioFrame:
        pcm = await self.packets.get()
        frame = AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None], "s16", "mono")
        frame.sample_rate, frame.time_base, frame.pts = 8_000, Fraction(1, 8_000), self._samples
        self._samples += frame.samples
        return frame


class BrowserCaller(Caller):
    """A browser's side, which connects to Pipecat's runner as Pipecat's clients do."""

    def __init__(self, peer: RTCPeerConnection) -> None:
        super().__init__()
        self.microphone = Microphone()
        self._peer = peer
        self._speaker: asyncio.Queue[MediaStreamTrack] = asyncio.Queue(1)
        peer.addTrack(self.microphone)
        peer.createDataChannel("chat")  # as Pipecat's clients do
        peer.on("track", self._speaker.put_nowait)

    @classmethod
    async def dial(cls, port: int) -> "BrowserCaller":
        caller = cls(RTCPeerConnection(RTCConfiguration(iceServers=[])))
        await caller._peer.setLocalDescription(await caller._peer.createOffer())
        offer = caller._peer.localDescription
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False
        ) as runner:
            session = (await runner.post("/start", json={"transport": "webrtc"})).json()["sessionId"]
            answer = await runner.post(
                f"/sessions/{session}/api/offer", json={"sdp": offer.sdp, "type": offer.type}
            )
        await caller._peer.setRemoteDescription(RTCSessionDescription(answer.json()["sdp"], "answer"))
        return caller

    async def send(self, pcm: bytes) -> None:
        with suppress(asyncio.QueueFull):  # not connected yet: the packet is dropped
            self.microphone.packets.put_nowait(pcm)

    async def receive(self) -> None:
        track = await self._speaker.get()
        resampler = AudioResampler("s16", "mono", 8_000)
        with suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                assert isinstance(frame, AudioFrame)
                for resampled in resampler.resample(frame):
                    self.received += resampled.to_ndarray().tobytes()

    async def hang_up(self) -> None:
        await self._peer.close()


@asynccontextmanager
async def call(dialing: Awaitable[C]) -> AsyncIterator[C]:
    """Open a call; hang up at the end."""
    caller = await dialing
    receiving = asyncio.create_task(caller.receive())
    try:
        yield caller
    finally:
        await caller.hang_up()
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
