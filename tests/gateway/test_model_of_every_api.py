"""``model`` chooses a bundle in every API that has a word for it, as in OpenAI's."""

import asyncio
import json
from base64 import b64decode
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from shared.gateways.bundled_gateway import client_of, settings_with
from vivavoce.gateway.access.access_control import ANONYMOUS_KEY_ID, Grant
from vivavoce.gateway.access.keys import Scope
from vivavoce.gateway.apis.shell.speech_server import ModelNames
from vivavoce.gateway.engine_opening import models_of, open_engine
from vivavoce.gateway.engine_settings import FurtherBundleTable
from vivavoce.gateway.voice_registry import VoiceRegistry

TEXT = "eins two"
DASHSCOPE_SEED = 7  # without one, DashScope's speech differs from request to request
CATALOGUE_VOICES = {"cartesia": "a0e99841-438c-4a64-b679-ae501e7d6091", "elevenlabs": "21m00Tcm4TlvDq8ikWAM"}


async def cartesia(client: httpx.AsyncClient, model: str, voice: str) -> httpx.Response:
    body = {
        "model_id": model,
        "transcript": TEXT,
        "voice": {"mode": "id", "id": voice or CATALOGUE_VOICES["cartesia"]},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
    }
    return await client.post("/tts/bytes", json=body)


async def elevenlabs(client: httpx.AsyncClient, model: str, voice: str) -> httpx.Response:
    path = f"/v1/text-to-speech/{voice or CATALOGUE_VOICES['elevenlabs']}?output_format=pcm_24000"
    return await client.post(path, json={"text": TEXT, "model_id": model})


async def deepgram(client: httpx.AsyncClient, model: str, voice: str) -> httpx.Response:
    query = {"model": voice or model, "container": "none", "encoding": "linear16", "sample_rate": "24000"}
    return await client.post("/v1/speak", params=query, json={"text": TEXT})


async def inworld(client: httpx.AsyncClient, model: str, voice: str) -> httpx.Response:
    config = {"audioEncoding": "PCM", "sampleRateHertz": 24_000}
    body = {"text": TEXT, "modelId": model, "voiceId": voice or "Ashley", "audioConfig": config}
    answer = await client.post("/tts/v1/voice", json=body)
    if answer.status_code != 200:
        return answer
    return httpx.Response(200, content=b64decode(answer.json()["audioContent"]))


async def dashscope(client: httpx.AsyncClient, model: str, voice: str) -> httpx.Response:
    fields = {"text": TEXT, "voice": voice or "longanyang", "format": "pcm", "sample_rate": 24_000}
    fields["seed"] = DASHSCOPE_SEED
    body = {"model": model, "input": fields}
    answer = await client.post("/api/v1/services/audio/tts/SpeechSynthesizer", json=body)
    if answer.status_code != 200:
        return answer
    return await client.get(answer.json()["output"]["audio"]["url"])


async def pai(client: httpx.AsyncClient, model: str, voice: str) -> httpx.Response:
    fields = {
        "text": TEXT,
        "reference_audio_id": voice or None,
        "output_format": "pcm",
        "sample_rate": 24_000,
    }
    body = {"model": model, "input": {key: value for key, value in fields.items() if value}, "stream": False}
    answer = await client.post("/api/v1/audio/speech", json=body)
    if answer.status_code != 200:
        return answer
    return httpx.Response(200, content=b64decode(answer.json()["output"]["audio"]["data"]))


async def ray(client: httpx.AsyncClient, model: str, voice: str) -> httpx.Response:
    body = {"text": TEXT, "model": model, "format": "pcm", "sample_rate": 24_000, "voice": voice or "default"}
    return await client.post("/v1/model/cosyvoice/tts", json=body)


async def openai(client: httpx.AsyncClient, model: str, voice: str, seed: int = 0) -> httpx.Response:
    body = {
        "input": TEXT,
        "model": model,
        "voice": voice or "alloy",
        "response_format": "pcm",
        "seed": seed,
    }
    return await client.post("/v1/audio/speech", json=body)


APIS = {
    "openai": (openai, "tts-1"),
    "cartesia": (cartesia, "sonic-3"),
    "elevenlabs": (elevenlabs, "eleven_flash_v2_5"),
    "deepgram": (deepgram, "aura-2-thalia-en"),
    "inworld": (inworld, "inworld-tts-2"),
    "dashscope": (dashscope, "cosyvoice-v3-flash"),
    "pai": (pai, "CosyVoice2-0.5B"),
    "ray": (ray, "tts-1"),
}


def test_model_chooses_the_bundle_and_others_are_the_loaded_one(tmp_path: Path) -> None:
    settings = settings_with(tmp_path)
    assert settings.bundles is not None
    # The English bundle again, so that two bundles have a voice of one name; and a name for a voice.
    bundles = {**settings.bundles, "again": FurtherBundleTable(folder=settings.bundle.folder)}

    async def test() -> None:
        async with client_of(settings.model_copy(update={"bundles": bundles})) as client:

            async def spoken(api: Any, *arguments: Any) -> bytes:
                answer = await api(client, *arguments)
                assert answer.status_code == 200, (api.__name__, arguments, answer.text)
                return bytes(answer.content)

            expected = {
                seed: [
                    await spoken(openai, "tts-1", voice, seed)
                    for voice in ("en_US-anna-low", "de_DE-otto-low/s1", "af_one")
                ]
                for seed in (0, DASHSCOPE_SEED)
            }
            english, german, one = expected[0]
            assert len({english, german, one}) == 3
            for name, (api, of_the_service) in APIS.items():
                models = (of_the_service, "german", "kokoro")
                by_model = [await spoken(api, model, "") for model in models]
                assert by_model == expected[DASHSCOPE_SEED if name == "dashscope" else 0], name
                if name not in ("dashscope", "deepgram"):  # whose models are voices
                    assert await spoken(api, "nonesuch", "") == by_model[0], name
            assert (await dashscope(client, "nonesuch", "")).json()["code"] == "ModelNotFound"

            host = f"ws://127.0.0.1:{client.base_url.port}"
            query = "?output_format=pcm_24000&model_id=german"
            path = f"/v1/text-to-speech/{CATALOGUE_VOICES['elevenlabs']}/stream-input{query}"
            async with connect(host + path, proxy=None) as socket:
                for text in (TEXT + " ", ""):
                    await socket.send(json.dumps({"text": text}))
                messages = [json.loads(message) async for message in socket]
            assert b"".join(b64decode(message.get("audio", "")) for message in messages) == german

    asyncio.run(asyncio.wait_for(test(), 110))


def test_the_lists_of_models_name_the_bundles(tmp_path: Path) -> None:
    async def test() -> None:
        async with client_of(settings_with(tmp_path)) as client:
            names = {"vivavoce", "german", "kokoro"}
            listed = (await client.get("/v1/models")).json()["data"]
            assert names <= {model["id"] for model in listed}
            listed = (await client.get("/v1/models", headers={"xi-api-key": "any"})).json()
            assert names <= {model["model_id"] for model in listed}
            assert names <= set((await client.get("/get_models_list")).json())

    asyncio.run(asyncio.wait_for(test(), 60))


def test_of_two_voices_with_one_name_that_of_the_model_speaks(tmp_path: Path) -> None:
    settings = settings_with(tmp_path)
    twice = {"again": FurtherBundleTable(folder=settings.bundle.folder)}

    async def test() -> None:
        async with await open_engine(settings.model_copy(update={"bundles": twice})) as engine:
            with closing(VoiceRegistry(engine.voices)) as voices:
                grant = Grant(ANONYMOUS_KEY_ID, frozenset(Scope))
                default = ModelNames(models_of(engine)).default_voice("again")
                assert voices.resolve("en_US-anna-low", grant, default) == "again/en_US-anna-low"
                assert voices.resolve("en_US-anna-low", grant) == "en_US-anna-low"

    asyncio.run(asyncio.wait_for(test(), 60))
