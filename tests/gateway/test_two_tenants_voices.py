"""Two tenants who clone voices of the same name on one server: each speaks with its own and no other."""

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import ArrayLike

from shared.audio.recordings import as_data_url
from shared.audio.tones import PitchTags
from shared.engine.standin_backend import StandInBackend
from shared.gateways.made_settings import make_settings
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.serve import Gateway
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.voices.store import VoiceStore

PITCHES_HZ = (440, 660)
TAGS = PitchTags(PITCHES_HZ)
TEXT = "One two three four."
ROUNDS = 3

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")


class PitchEncoder:
    """Encodes the pitch of a recording."""

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        heard = np.asarray(samples, np.float32)
        pitch_hz = np.argmax(np.abs(np.fft.rfft(heard))) * sample_rate / len(heard)
        embedding = np.full(192, round(pitch_hz), np.float32)
        mel = np.zeros((80, 50), np.float32)
        return VoicePrompt(CosyVoiceVersion.V2, transcript, np.zeros(25, np.int32), mel, embedding)


class CloningBackend(StandInBackend):
    """Speaks at the pitch of a voice's recording."""

    def __init__(self, store: VoiceStore) -> None:
        super().__init__((220,))
        speakers = {voice.id: np.zeros(192, np.float32) for voice in self.voices}
        self.voices = BundleVoices(speakers, PitchEncoder, ("en",), store)  # type: ignore[arg-type]

    def open_slot(self, request: SlotRequest) -> int:
        if request.voice.startswith("tone-"):
            return super().open_slot(request)
        profile: Any = request.speaker_profile
        return super().open_slot(replace(request, voice=f"tone-{round(profile.embedding[0])}"))


@dataclass
class Tenant:
    """A key, the recording that it clones, and what it heard."""

    pitch_hz: int
    key: str
    samples: int = 0
    foreign_samples: int = 0

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    @property
    def recording(self) -> bytes:
        file = io.BytesIO()
        with wave.open(file, "wb") as output:
            output.setnchannels(1)
            output.setsampwidth(2)
            output.setframerate(16_000)
            tone = np.sin(2 * np.pi * self.pitch_hz * np.arange(16_000 * 4) / 16_000)
            output.writeframes((16_000 * tone).astype("<i2").tobytes())
        return file.getvalue()

    def hear(self, pcm: bytes) -> None:
        own, foreign = TAGS.count(pcm, self.pitch_hz, 24_000)
        assert own
        self.samples += own
        self.foreign_samples += foreign


@asynccontextmanager
async def shared_server(folder: Path) -> AsyncIterator[tuple[str, list[Tenant]]]:
    keys = KeysFile(folder / "keys.json")
    scopes = (Scope.SPEAK, Scope.ENROLL)
    tenants = [Tenant(pitch_hz, keys.add(f"{pitch_hz}", scopes, KeyLimits())) for pitch_hz in PITCHES_HZ]
    settings = make_settings(
        http_port=0,
        audiosocket_port=0,
        agents_default="none",
        access_keys_file=folder / "keys.json",
    )
    with VoiceStore(folder / "voices", 2, read_prompt=VoicePrompt.load) as store:
        async with (
            await Engine.open(backend=CloningBackend(store), warm_up=False) as engine,
            aclosing(await Gateway.open(settings, engine=engine)) as gateway,
        ):
            host, port = gateway.addresses.http
            yield f"http://{host}:{port}", tenants


async def speak(client: httpx.AsyncClient, tenant: Tenant, voice: str) -> httpx.Response:
    body = {"model": "tts-1", "voice": voice, "input": TEXT, "response_format": "pcm"}
    return await client.post("/v1/audio/speech", json=body, headers=tenant.headers)


async def clone_for_one_request(client: httpx.AsyncClient, tenant: Tenant) -> None:
    body = {"text": TEXT, "reference_audio": as_data_url(tenant.recording), "format": "pcm"}
    answer = await client.post("/v1/model/cosyvoice/cross_lingual", json=body, headers=tenant.headers)
    assert answer.status_code == 200, answer.text
    tenant.hear(answer.content)


async def clone_for_pai(client: httpx.AsyncClient, tenant: Tenant) -> str:
    files = {"file": ("mine.wav", tenant.recording, "audio/wav")}
    path = "/api/v1/audio/reference_audio"
    created = await client.post(path, files=files, data={"text": "a tone"}, headers=tenant.headers)
    fields = {"text": TEXT, "reference_audio_id": created.json()["id"], "output_format": "pcm"}
    answer = await client.post(
        "/api/v1/audio/speech", json={"input": fields, "stream": False}, headers=tenant.headers
    )
    assert answer.status_code == 200, answer.text
    tenant.hear(base64.b64decode(answer.json()["output"]["audio"]["data"]))
    return str(created.json()["id"])


async def use_voices(client: httpx.AsyncClient, tenant: Tenant) -> set[str]:
    """Clone a voice called "mine", speak with it in all ways, and return the ids that were made."""
    created = await client.post(
        "/v1/audio/voices",
        data={"name": "mine", "consent": "I agree."},
        files={"audio_sample": ("mine.wav", tenant.recording, "audio/wav")},
        headers=tenant.headers,
    )
    assert created.status_code == 200, created.text
    made = {created.json()["id"]}
    for _ in range(ROUNDS):
        for voice in ("mine", *made):
            answer = await speak(client, tenant, voice)
            assert answer.status_code == 200, answer.text
            tenant.hear(answer.content)
        made.add(await clone_for_pai(client, tenant))
        await clone_for_one_request(client, tenant)
    return made


def test_tenants_with_voices_of_one_name_hear_their_own_and_see_no_other(tmp_path: Path) -> None:
    async def scenario() -> list[Tenant]:
        async with (
            asyncio.timeout(120),
            shared_server(tmp_path) as (url, tenants),
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client,
        ):
            made = await asyncio.gather(*(use_voices(client, tenant) for tenant in tenants))
            for tenant, own, foreign in zip(tenants, made, made[::-1], strict=True):
                for path in ("/v1/audio/voices", "/v1/voices", "/api/v1/audio/reference_audio"):
                    listed = json.dumps((await client.get(path, headers=tenant.headers)).json())
                    assert [voice for voice in foreign if voice in listed] == []
                    assert path != "/v1/audio/voices" or all(voice in listed for voice in own)
                for voice in foreign:
                    assert (await speak(client, tenant, voice)).status_code in (400, 404)
                    deleted = await client.delete(f"/v1/audio/voices/{voice}", headers=tenant.headers)
                    assert deleted.status_code == 404
            for tenant, own in zip(tenants, made, strict=True):  # nothing of it was deleted
                for voice in own:
                    tenant.hear((await speak(client, tenant, voice)).content)
        return tenants

    for tenant in asyncio.run(scenario()):
        print(f"{tenant.pitch_hz} Hz: {tenant.samples} own samples, {tenant.foreign_samples} of the other")
        assert tenant.foreign_samples == 0
