"""Voices cloned over the APIs of other servers, with CosyVoice's networks on small random weights."""

import asyncio
import base64
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest

from shared.gateways.made_settings import make_settings

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.audio.recordings import as_data_url, recording
from shared.voices.cosyvoice_bundles import write_random_bundle
from shared.voices.tiny_cosyvoice import BRIEF
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.engine import Engine

TEXT = "A short one."


async def clone_for_xtts(client: httpx.AsyncClient) -> bytes:
    answer = await client.post("/clone_speaker", files={"wav_file": ("anna.wav", recording())})
    body = {**answer.json(), "text": TEXT, "language": "en", "add_wav_header": False}
    return (await client.post("/tts_stream", json=body)).content


async def clone_for_cosyvoice(client: httpx.AsyncClient) -> bytes:
    fields = {"tts_text": TEXT, "prompt_text": "a tone"}
    files = {"prompt_wav": ("prompt_wav", recording())}
    return (await client.request("GET", "/inference_zero_shot", data=fields, files=files)).content


async def clone_for_ray_serve(client: httpx.AsyncClient) -> bytes:
    body = {"text": TEXT, "reference_audio": as_data_url(recording()), "format": "pcm"}
    path = "/v1/model/cosyvoice/cross_lingual"
    whole = await client.post(path, json=body)
    steady = await client.post(path, json={**body, "temperature": 0.01, "top_k": 1, "seed": 5})
    other_seed = await client.post(path, json={**body, "temperature": 0.01, "top_k": 1, "seed": 6})
    assert whole.status_code == 200, whole.text
    assert steady.content and steady.content != whole.content  # sampling reaches the model
    assert len(steady.content) == len(other_seed.content)
    return whole.content


async def clone_for_pai(client: httpx.AsyncClient) -> bytes:
    files = {"file": ("anna.wav", recording(), "audio/wav")}
    created = await client.post("/api/v1/audio/reference_audio", files=files, data={"text": "a tone"})
    fields = {"text": TEXT, "reference_audio_id": created.json()["id"], "output_format": "pcm"}
    answer = await client.post("/api/v1/audio/speech", json={"input": fields, "stream": False})
    return base64.b64decode(answer.json()["output"]["audio"]["data"])


@pytest.mark.slow
def test_every_dialect_clones_with_the_networks(tmp_path: Path) -> None:
    write_random_bundle(tmp_path / "bundle", 2, "tiny", 1)

    async def test() -> None:
        backend = CosyVoiceBackend.load(tmp_path / "bundle", BRIEF, tmp_path / "voices")
        settings = make_settings(http_port=0, audiosocket_port=0, agents_default="none")
        async with (
            asyncio.timeout(120.0),
            await Engine.open(backend=backend) as engine,
            aclosing(await Gateway.open(settings, engine=engine)) as gateway,
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{gateway.addresses.http[1]}", trust_env=False, timeout=60.0
            ) as client,
        ):
            for clone in (clone_for_xtts, clone_for_cosyvoice, clone_for_ray_serve, clone_for_pai):
                pcm = await clone(client)
                assert len(pcm) > 4_800 and len(pcm) % 2 == 0, clone.__name__

    asyncio.run(test())
