"""All speech APIs on a real socket, over a stand-in backend, and a client of them."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, replace
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI
from numpy.typing import ArrayLike

from shared.engine.standin_backend import StandInBackend
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.url_guard import UrlGuard, UrlPolicy
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy, SpeechServer
from vivavoce.gateway.apis.speech_apis import SpeechApis
from vivavoce.gateway.voice_registry import VoiceRegistry
from vivavoce.gateway.web.app import make_app
from vivavoce.gateway.web.http_server import HttpServer
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


class CountingBackend(StandInBackend):
    """Counts its steps and keeps the time of the last one; fails after ``broken_after`` of them."""

    def __init__(self, *, broken_after: int | None = None, step_s: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.broken_after = broken_after
        self.step_s = step_s
        self.steps = 0
        self.last_step_at = 0.0
        self.requests: list[SlotRequest] = []  # that slots were opened with
        self._count = threading.Lock()

    def open_slot(self, request: SlotRequest) -> int:
        self.requests.append(request)
        return super().open_slot(request)

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        with self._count:
            self.steps += 1
            self.last_step_at = time.monotonic()
        time.sleep(self.step_s)
        if self.broken_after is not None and self.steps > self.broken_after:
            raise RuntimeError("the voice broke")
        return super().step(worker, turns)


class Encoder:
    """Encodes only the length of a recording."""

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        ids = np.full(25, len(check_recording(samples, sample_rate)) % 6561, np.int32)
        mel, embedding = np.zeros((80, 50), np.float32), np.ones(192, np.float32)
        return VoicePrompt(CosyVoiceVersion.V2, transcript, ids, mel, embedding)


class CloningBackend(CountingBackend):
    """A stand-in that voices can be added to; those speak at 220 Hz."""

    def __init__(self, *, store: VoiceStore, **options: Any) -> None:
        super().__init__(**options)
        speakers = {voice.id: np.zeros(192, np.float32) for voice in self.voices}
        self.voices = BundleVoices(speakers, Encoder, ("en",), store)  # type: ignore[arg-type]

    def open_slot(self, request: SlotRequest) -> int:
        is_bundled = request.voice.startswith("tone-")
        return super().open_slot(request if is_bundled else replace(request, voice="tone-220"))


@dataclass
class ServedSpeechApis:
    """All speech APIs as a gateway mounts them, and a client of them."""

    apis: SpeechApis
    voices: VoiceRegistry
    backend: CountingBackend
    client: httpx.AsyncClient

    @property
    def address(self) -> tuple[str, int | None]:
        return "127.0.0.1", self.client.base_url.port


@asynccontextmanager
async def serve_every_api(
    *,
    access: AccessControl | None = None,
    max_streams: int = 256,
    store: VoiceStore | None = None,
    reference_hosts: tuple[str, ...] = (),
    backend: Any = None,
    policy: SpeechApiPolicy | None = None,
    **backend_options: Any,
) -> AsyncIterator[ServedSpeechApis]:
    options = {"pitches_hz": (440, 330), **backend_options}
    if backend is None:
        backend = CountingBackend(**options) if store is None else CloningBackend(store=store, **options)
    access, metrics = access or AccessControl.open_to_all(), Metrics()
    config = EngineConfig(scheduler=SchedulerPolicy(max_streams=max_streams))
    async with Engine(backend, config, metrics) as engine:
        voices = VoiceRegistry(engine.voices)
        guard = UrlGuard(UrlPolicy(allowed_hosts=frozenset(reference_hosts), timeout_s=2 * TIMEOUT_S))
        apis = SpeechApis(SpeechServer(engine, access, voices, guard, policy or SpeechApiPolicy()))
        app = make_app(unready=lambda: None, registry=metrics.registry, access=access, mounts=apis.mounts())
        with closing(voices):
            async with (
                aclosing(apis),
                serving(app) as url,
                httpx.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT_S) as client,
            ):
                yield ServedSpeechApis(apis, voices, backend, client)


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    # asyncio disables Nagle's algorithm only on sockets whose protocol is named.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.bind(("127.0.0.1", 0))
        server = HttpServer(app, sock)
        server_task = asyncio.create_task(server.run_until_closed())
        await server.wait_started(server_task)
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.close()
            await server_task
