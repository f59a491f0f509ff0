"""Fixtures: OpenAI's API and the native stream on a real socket, over the stand-in backend."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from shared.served_apis import TIMEOUT_S, CloningBackend, CountingBackend, serve_every_api, serving
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.url_guard import UrlGuard, UrlPolicy
from vivavoce.gateway.apis.dialects.cartesia.http_api import CartesiaHttpApi
from vivavoce.gateway.apis.dialects.cartesia.socket_api import CartesiaSocketApi
from vivavoce.gateway.apis.dialects.deepgram.http_api import DeepgramHttpApi
from vivavoce.gateway.apis.dialects.deepgram.socket_api import DeepgramSocketApi
from vivavoce.gateway.apis.dialects.elevenlabs.http_api import ElevenLabsHttpApi
from vivavoce.gateway.apis.dialects.elevenlabs.listings import ElevenLabsListings
from vivavoce.gateway.apis.dialects.elevenlabs.socket_api import ElevenLabsSocketApi
from vivavoce.gateway.apis.dialects.inworld.http_api import InworldHttpApi
from vivavoce.gateway.apis.dialects.inworld.socket_api import InworldSocketApi
from vivavoce.gateway.apis.dialects.jambonz.dialect import JambonzHttpApi, JambonzSocketApi
from vivavoce.gateway.apis.dialects.native_stream.socket_api import NativeStreamApi
from vivavoce.gateway.apis.dialects.openai.speech_api import OpenAISpeechApi
from vivavoce.gateway.apis.dialects.openai.transcriptions_api import OpenAITranscriptionsApi
from vivavoce.gateway.apis.dialects.openai.voices_api import OpenAIVoicesApi
from vivavoce.gateway.apis.kits.openai.voice_resolver import OpenAIVoiceResolver
from vivavoce.gateway.apis.kits.speech_socket import PlayoutPace
from vivavoce.gateway.apis.shell.speech_server import ModelNames, SpeechApiPolicy, SpeechServer
from vivavoce.gateway.voice_registry import VoicePolicy, VoiceRegistry
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.gateway.web.openapi.document import OpenApiRoutes
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.voices.store import VoiceStore

SIX_WORDS = "One two three four five six."


@dataclass
class ServedApis:
    """The speech APIs on a real socket, and a client of them."""

    app: FastAPI
    api: OpenAISpeechApi
    sockets: NativeStreamApi
    cartesia: CartesiaSocketApi
    elevenlabs: ElevenLabsSocketApi
    deepgram: DeepgramSocketApi
    inworld: InworldSocketApi
    voices: VoiceRegistry
    backend: CountingBackend
    client: httpx.AsyncClient

    @property
    def engine(self) -> Engine:
        return self.api.server.engine

    @property
    def address(self) -> tuple[str, int | None]:
        return "127.0.0.1", self.client.base_url.port

    async def post(self, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        body = {
            "model": "tts-1",
            "voice": "alloy",
            "input": "One two three four five six.",
            "response_format": "pcm",
            **fields,
        }
        return await self.client.post("/v1/audio/speech", json=body, headers=headers)


@asynccontextmanager
async def _serve_apis(
    *,
    access: AccessControl | None = None,
    max_streams: int = 256,
    idle_s: float = 60.0,
    store: VoiceStore | None = None,
    reference_hosts: tuple[str, ...] = (),
    **backend_options: Any,
) -> AsyncIterator[ServedApis]:
    options = {"pitches_hz": (440, 330), **backend_options}
    backend = CountingBackend(**options) if store is None else CloningBackend(store=store, **options)
    metrics = Metrics()
    config = EngineConfig(scheduler=SchedulerPolicy(max_streams=max_streams))
    async with Engine(backend, config, metrics) as engine:
        voices = VoiceRegistry(engine.voices, VoicePolicy(aliases={"ash": "tone-330"}))
        # A fetch that times out fails the test, because the test's own limit is shorter.
        policy = UrlPolicy(allowed_hosts=frozenset(reference_hosts), timeout_s=2 * TIMEOUT_S)
        access = access or AccessControl.open_to_all()
        server = SpeechServer(engine, access, voices, UrlGuard(policy), SpeechApiPolicy())
        resolver = OpenAIVoiceResolver(voices, server.guard, ModelNames())
        api = OpenAISpeechApi(server, resolver)
        sockets = NativeStreamApi(server, resolver, idle_s)
        cartesia = CartesiaSocketApi(server, voices)
        elevenlabs = ElevenLabsSocketApi(server, voices)
        deepgram = DeepgramSocketApi(server, voices)
        inworld = InworldSocketApi(server, voices)
        mounts = [
            Mount(each.routes(), None, each.error_formats)
            for each in (
                ElevenLabsListings(server),
                *(api, sockets, cartesia, elevenlabs, deepgram, inworld),
                *(JambonzSocketApi(server, voices), OpenAIVoicesApi(server), OpenAITranscriptionsApi(server)),
                *(InworldHttpApi(server), CartesiaHttpApi(server), ElevenLabsHttpApi(server)),
                *(DeepgramHttpApi(server), JambonzHttpApi(server)),
            )
        ]
        mounts.append(Mount(OpenApiRoutes().routes(), None))
        app = make_app(
            unready=lambda: None,
            registry=metrics.registry,
            access=AccessControl.open_to_all(),
            mounts=mounts,
        )
        async with (
            serving(app) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT_S) as client,
        ):
            open_sockets = (sockets, cartesia, elevenlabs, deepgram, inworld)
            yield ServedApis(app, api, *open_sockets, voices, backend, client)
        voices.close()


def _run_every_api(test: Callable[[Any], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def within() -> None:
        async with asyncio.timeout(TIMEOUT_S), serve_every_api(**options) as served:
            await test(served)

    asyncio.run(within())


def _run(test: Callable[[ServedApis], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def within() -> None:
        async with asyncio.timeout(TIMEOUT_S), _serve_apis(**options) as served:
            await test(served)

    asyncio.run(within())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VoiceStore]:
    """An empty voice store of CosyVoice 2."""
    with VoiceStore(tmp_path / "voices", 2, read_prompt=VoicePrompt.load) as opened:
        yield opened


@pytest.fixture
def serve_apis() -> Any:
    """An async context manager that serves the APIs; its arguments are those of ``_serve_apis``."""
    return _serve_apis


@pytest.fixture
def run() -> Any:
    """Runs a coroutine function with ``ServedApis``, for at most 60 s; takes options of ``_serve_apis``."""
    return _run


@pytest.fixture
def run_every_api() -> Any:
    """Runs a coroutine function with ``ServedSpeechApis``, for at most 60 s."""
    return _run_every_api


@pytest.fixture
def first_listener_plays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first paced speech have a listener whose playout stands still, and the next ones hurry."""
    follow, first = PlayoutPace.follow, list[PlayoutPace]()

    async def follow_a_still_playout(pace: PlayoutPace, seconds: float) -> None:
        first[:] = first or [pace]
        await follow(pace, 1e6 if first == [pace] else 0.0)

    monkeypatch.setattr(PlayoutPace, "follow", follow_a_still_playout)
