"""A server with OpenAI's API and the socket, over the stand-in voice."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from numpy.typing import ArrayLike

from shared.standin_backend import StandInBackend
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.url_guard import UrlGuard, UrlPolicy
from vivavoce.gateway.apis.native_stream.socket_api import NativeStreamApi
from vivavoce.gateway.apis.openai.speech_api import OpenAISpeechApi
from vivavoce.gateway.apis.openai.voices_api import OpenAIVoicesApi
from vivavoce.gateway.voice_registry import VoicePolicy, VoiceRegistry
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.gateway.web.http_server import HttpServer
from vivavoce.gateway.web.openapi.document import OpenApiRoutes
from vivavoce.gateway.web.request_log import RequestLog
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.recording import check_recording
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, StepResult
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.voices.store import VoiceStore

TIMEOUT_S = 60.0
SIX_WORDS = "One two three four five six."


class CountingBackend(StandInBackend):
    """Counts its steps and says when the last one was; after ``broken_after`` of them it fails."""

    def __init__(self, *, broken_after: int | None = None, step_s: float = 0.0, **how: Any) -> None:
        super().__init__(**how)
        self.broken_after = broken_after
        self.step_s = step_s
        self.steps = 0
        self.last_step_at = 0.0
        self._count = threading.Lock()

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        with self._count:
            self.steps += 1
            self.last_step_at = time.monotonic()
        time.sleep(self.step_s)
        if self.broken_after is not None and self.steps > self.broken_after:
            raise RuntimeError("the voice broke")
        return super().step(worker, turns)


class Encoder:
    """Hears nothing but how long a recording is."""

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        ids = np.full(25, len(check_recording(samples, sample_rate)) % 6561, np.int32)
        mel, embedding = np.zeros((80, 50), np.float32), np.ones(192, np.float32)
        return VoicePrompt(CosyVoiceVersion.V2, transcript, ids, mel, embedding)


class CloningBackend(CountingBackend):
    """A stand-in that voices can be added to; those speak at 220 Hz."""

    def __init__(self, *, store: VoiceStore, **how: Any) -> None:
        super().__init__(**how)
        speakers = {voice.id: np.zeros(192, np.float32) for voice in self.voices}
        self.voices = BundleVoices(speakers, Encoder, ("en",), store)  # type: ignore[arg-type]

    def open_slot(self, request: SlotRequest) -> int:
        of_ours = request.voice.startswith("tone-")
        return super().open_slot(request if of_ours else replace(request, voice="tone-220"))


class House:
    """A server with nothing but the API, and what a test asks of it."""

    def __init__(
        self,
        api: OpenAISpeechApi,
        sockets: NativeStreamApi,
        backend: CountingBackend,
        client: httpx.AsyncClient,
    ) -> None:
        self.api = api
        self.sockets = sockets
        self.backend = backend
        self.client = client
        self.address = ("127.0.0.1", client.base_url.port)

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
async def _house(
    *,
    access: AccessControl | None = None,
    max_streams: int = 256,
    idle_s: float = 60.0,
    store: VoiceStore | None = None,
    reference_hosts: tuple[str, ...] = (),
    **backend: Any,
) -> AsyncIterator[House]:
    how = {"pitches_hz": (440, 330), **backend}
    standin = CountingBackend(**how) if store is None else CloningBackend(store=store, **how)
    metrics = Metrics()
    config = EngineConfig(scheduler=SchedulerPolicy(max_streams=max_streams))
    async with Engine(standin, config, metrics) as engine:
        voices = VoiceRegistry(engine.voices, VoicePolicy(aliases={"ash": "tone-330"}))
        hosts = frozenset(reference_hosts)
        guard = UrlGuard(UrlPolicy(allowed_hosts=hosts, timeout_s=2 * TIMEOUT_S))  # who waits for that fails
        api = OpenAISpeechApi(
            engine, access or AccessControl.open_to_all(), voices, RequestLog(metrics), guard
        )
        sockets = NativeStreamApi(api, idle_s)
        app = make_app(
            unready=lambda: None,
            registry=metrics.registry,
            access=AccessControl.open_to_all(),
            mounts=[
                Mount(one.routes(), None)
                for one in (api, sockets, OpenAIVoicesApi(api, voices), OpenApiRoutes())
            ],
        )
        async with (
            serving(app) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT_S) as client,
        ):
            yield House(api, sockets, standin, client)
        voices.close()


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    # The protocol is named, or asyncio leaves small answers to wait for each other.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.bind(("127.0.0.1", 0))
        server = HttpServer(app, sock)
        running = asyncio.create_task(server.run_until_closed())
        await server.wait_started(running)
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.close()
            await running


def _run(test: Callable[[House], Coroutine[Any, Any, None]], **how: Any) -> None:
    async def within() -> None:
        async with asyncio.timeout(TIMEOUT_S), _house(**how) as served:
            await test(served)

    asyncio.run(within())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VoiceStore]:
    """An empty one of version 2."""
    with VoiceStore(tmp_path / "voices", 2) as opened:
        yield opened


@pytest.fixture
def house() -> Any:
    """A server as an async context manager; how its access and its voice are is for the test to say."""
    return _house


@pytest.fixture
def run() -> Any:
    """Runs a coroutine function of a ``House``; bounded in time."""
    return _run
