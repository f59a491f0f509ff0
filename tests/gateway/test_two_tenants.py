"""Two tenants on one server, through all that they share: neither gets anything of the other's.

Each has a pitch, words and names of its own, so that whatever reaches the wrong one is found.
"""

import asyncio
import functools
import io
import itertools
import json
import time
import wave
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import av
import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect

from shared.audio.tones import PitchTags, tone
from shared.calls.call_server import Phone
from shared.engine.standin_backend import StandInBackend
from shared.gateways.made_settings import make_settings
from vivavoce.adapters.audiosocket.protocol import AudioSocketAudio
from vivavoce.adapters.client import PoolPolicy, SpeechClient, SpeechOptions
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.dialects.dashscope import audio_store
from vivavoce.gateway.calls.agents.kinds.script import SilentAgent
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.engine import Engine

PITCHES_HZ = (440, 660)
TAGS = PitchTags(PITCHES_HZ)
ROUNDS = 3
FORMATS = ("pcm", "wav", "mp3", "opus", "aac", "flac")


@dataclass
class Tenant:
    """A key with what it gets: everything is to be tagged as its own."""

    name: str
    pitch_hz: int
    words: list[str]
    key: str
    samples: int = 0
    foreign_samples: int = 0
    texts: list[str] = field(default_factory=list)  # all words and names that it was told

    @property
    def voice(self) -> str:
        return f"tone-{self.pitch_hz}"

    @property
    def sentence(self) -> str:
        return " ".join(self.words) + "."

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def hear(self, pcm: bytes, sample_rate: int = 24_000) -> None:
        own, foreign = TAGS.count(pcm, self.pitch_hz, sample_rate)
        assert own, f"{self.name} heard nothing"
        self.samples += own
        self.foreign_samples += foreign


@asynccontextmanager
async def shared_server(folder: Path) -> AsyncIterator[tuple[Gateway, list[Tenant]]]:
    """A gateway with a process for the voice and one for the media, and a key for each tenant."""
    keys = KeysFile(folder / "keys.json")
    scopes = (Scope.SPEAK, Scope.CALLS_OWN)

    def key(name: str) -> str:
        return keys.add(name, scopes, KeyLimits(), agents=(name,))

    tenants = [
        Tenant("anna", 440, ["apple", "apricot", "avocado", "almond"], key("anna")),
        Tenant("bert", 660, ["banana", "blueberry", "broccoli", "bean"], key("bert")),
    ]
    settings = make_settings(
        http_port=0,
        audiosocket_port=0,
        access_keys_file=folder / "keys.json",
        agents={"anna": "none", "bert": "none"},
        recordings_folder=folder / "recordings",
        apis_exchange_folder=folder / "exchange",
    )
    backend = ProcessBackend.start_backend(functools.partial(StandInBackend, PITCHES_HZ, workers=2))
    async with (
        await Engine.open(backend=backend) as engine,
        aclosing(await Gateway.open(settings, engine=engine, agent=SilentAgent())) as gateway,
    ):
        yield gateway, tenants


def decoded(sound: bytes) -> bytes:
    """The samples of a file in any format, s16le at 24 kHz."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=24_000)
    with av.open(io.BytesIO(sound)) as container:
        frames = [each for frame in container.decode(audio=0) for each in resampler.resample(frame)]
    return b"".join(frame.to_ndarray().tobytes() for frame in frames)


async def use_openai(client: httpx.AsyncClient, tenant: Tenant, format: str) -> None:
    body = {"model": "tts-1", "voice": tenant.voice, "input": tenant.sentence, "response_format": format}
    answer = await client.post("/v1/audio/speech", json=body, headers=tenant.headers)
    assert answer.status_code == 200, answer.text
    tenant.hear(answer.content if format == "pcm" else decoded(answer.content))


async def use_elevenlabs(client: httpx.AsyncClient, tenant: Tenant) -> None:
    answer = await client.post(
        f"/v1/text-to-speech/{tenant.voice}/stream/with-timestamps?output_format=pcm_24000",
        json={"text": tenant.sentence},
        headers={"xi-api-key": tenant.key},
    )
    assert answer.status_code == 200, answer.text
    tenant.texts.append(answer.text)
    spoken = [
        character
        for line in answer.text.splitlines()
        for character in ((json.loads(line).get("alignment") or {}).get("characters") or [])
    ]
    assert set(spoken) <= set(tenant.sentence)


async def use_dashscope(client: httpx.AsyncClient, tenant: Tenant) -> str:
    body = {
        "model": "cosyvoice-v2",
        "input": {"text": tenant.sentence, "voice": tenant.voice, "format": "wav"},
    }
    answer = await client.post(
        "/api/v1/services/audio/tts/SpeechSynthesizer", json=body, headers=tenant.headers
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["output"]["audio"]["url"])


async def use_links(client: httpx.AsyncClient, tenant: Tenant, links: list[str]) -> None:
    for link in links[-3:]:  # the store keeps three of a key
        answer = await client.get(link)
        assert answer.status_code == 200, answer.text
        tenant.hear(decoded(answer.content))


async def use_exchange_folder(client: httpx.AsyncClient, tenant: Tenant, folder: Path) -> None:
    """Both tenants write files of one name."""
    body = {"text": tenant.sentence, "speaker_wav": tenant.voice, "language": "en"}
    for name in ("out.wav", f"{tenant.name}.wav"):
        answer = await client.post(
            "/tts_to_file", json={**body, "file_name_or_path": name}, headers=tenant.headers
        )
        assert answer.status_code == 200, answer.text
        tenant.texts.append(answer.text)
        path = Path(answer.json()["output_path"])
        assert path.is_relative_to(folder)
        tenant.hear(decoded(await asyncio.to_thread(path.read_bytes)))


async def use_pooled_stream(speech: SpeechClient, tenant: Tenant) -> None:
    """The first utterance is cancelled, so that the next one follows its rest on the same connection."""
    options = SpeechOptions(voice=tenant.voice)
    async with speech.utterance(options) as utterance:
        await utterance.push_text(tenant.sentence * 5)
        await utterance.flush()
        tenant.hear((await anext(utterance)).audio)
    async with speech.utterance(options) as utterance:
        await utterance.push_text(tenant.sentence)
        await utterance.end_input()
        pieces = [piece async for piece in utterance]
    tenant.hear(b"".join(piece.audio for piece in pieces))
    tenant.texts += [word.text for piece in pieces for word in piece.words]


async def use_call(gateway: Gateway, tenant: Tenant) -> str:
    """Speak and listen on an own call, which is recorded; the name of its file."""
    host, port = gateway.addresses.http
    calls = f"{host}:{port}/v1/calls"
    async with httpx.AsyncClient(base_url=f"http://{calls}", headers=tenant.headers, timeout=60) as client:
        answer = await client.post("/expected", json={"name": tenant.name, "agent": tenant.name})
        assert answer.status_code == 200, answer.text
        call_id = answer.json()["call"]
        phone = Phone(*await asyncio.open_connection(*gateway.addresses.ways_in["audiosocket"]), call_id)
        talking = asyncio.create_task(talk(phone, tenant))
        while phone.call_id not in [each.call.call_id for each in gateway.calls.registry]:
            await asyncio.sleep(0.01)
        tenant.texts.append((await client.get("")).text)
    url = f"ws://{calls}/{phone.call_id}/socket?audio=in&events=all"
    caller = b""
    async with connect(url, additional_headers=tenant.headers) as attached:
        await attached.send(json.dumps({"type": "record"}))
        await attached.send(json.dumps({"type": "speech", "voice": tenant.voice, "speed": 1.0}))
        for _ in range(ROUNDS):
            await attached.send(json.dumps({"type": "text", "text": tenant.sentence}))
            await attached.send(json.dumps({"type": "end"}))
        finished = 0
        while finished < ROUNDS:
            message = await attached.recv()
            if isinstance(message, bytes):
                caller += message
                continue
            if json.loads(message)["type"] not in ("started", "recording"):
                tenant.texts.append(message)
            finished += json.loads(message)["type"] == "speech_finished"
        await attached.send(json.dumps({"type": "record", "on": False}))
        while (message := await attached.recv()) and '"on":false' not in str(message).replace(" ", ""):
            pass
    talking.cancel()
    tenant.hear(caller, 8_000)
    tenant.hear(bytes(phone.heard), 8_000)
    await phone.aclose()
    return str(json.loads(message)["file"])


async def talk(phone: Phone, tenant: Tenant) -> None:
    start = time.monotonic()
    for number in itertools.count():
        await asyncio.sleep(start + number * 0.02 - time.monotonic())
        phone.send(AudioSocketAudio(8_000, tone(tenant.pitch_hz, 8_000, number * 160, 160)))


def check_recording(path: Path, tenant: Tenant) -> None:
    with wave.open(str(path)) as wav:
        both = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").reshape(-1, 2)
        rate = wav.getframerate()
    for side in (0, 1):
        tenant.hear(both[:, side].tobytes(), rate)


async def use_everything(gateway: Gateway, tenant: Tenant, folder: Path) -> None:
    host, port = gateway.addresses.http
    url = f"http://{host}:{port}"
    async with (
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client,
        SpeechClient(url, api_key=tenant.key, pool=PoolPolicy(min_connections=1)) as speech,
    ):
        calls = [asyncio.create_task(use_call(gateway, tenant)) for _ in range(2)]
        links: list[str] = []
        for _ in range(ROUNDS):
            answers = await asyncio.gather(
                use_dashscope(client, tenant),
                *(use_openai(client, tenant, format) for format in FORMATS),
                use_elevenlabs(client, tenant),
                use_exchange_folder(client, tenant, folder / "exchange"),
                *(use_pooled_stream(speech, tenant) for _ in range(3)),
            )
            links += [await use_dashscope(client, tenant), str(answers[0])]
            await use_links(client, tenant, links[-2:])
        files = await asyncio.gather(*calls)
    for file in files:
        await asyncio.to_thread(check_recording, folder / "recordings" / file, tenant)


@pytest.mark.slow
@pytest.mark.parametrize("media_processes", [1], indirect=True)
def test_neither_tenant_gets_a_sample_a_word_or_a_name_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, media_processes: int
) -> None:
    monkeypatch.setattr(audio_store, "MAX_FILES", 3)

    async def scenario() -> list[Tenant]:
        async with asyncio.timeout(120), shared_server(tmp_path) as (gateway, tenants):
            await asyncio.gather(*(use_everything(gateway, tenant, tmp_path) for tenant in tenants))
            return tenants

    anna, bert = asyncio.run(scenario())
    for tenant, other in ((anna, bert), (bert, anna)):
        told = " ".join(tenant.texts)
        print(f"{tenant.name}: {tenant.samples} own samples, {tenant.foreign_samples} of {other.name}")
        assert tenant.foreign_samples == 0
        assert all(word in told for word in tenant.words)
        assert [word for word in (*other.words, other.name, other.voice) if word in told] == []
    written = {path.name for path in (tmp_path / "exchange").rglob("*.wav")}
    assert written == {"out.wav", "anna.wav", "bert.wav"}
