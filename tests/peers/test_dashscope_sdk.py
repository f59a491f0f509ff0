"""The unmodified DashScope SDKs against a vivavoce server, each version by an interpreter that has it."""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from shared.engine.standin_backend import StandInBackend
from shared.gateways.client_programs import python_with, run_python_program
from vivavoce.gateway.access.access_control import AccessControl, Grant
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.access.url_guard import UrlGuard
from vivavoce.gateway.apis.dialects.dashscope.audio_store import AudioStore
from vivavoce.gateway.apis.dialects.dashscope.http_api import DashScopeHttpApi
from vivavoce.gateway.apis.dialects.dashscope.socket_api import DashScopeSocketApi
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy, SpeechServer
from vivavoce.gateway.listening_sockets import bind_socket
from vivavoce.gateway.voice_registry import NewVoice
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.gateway.web.http_server import HttpServer
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import UnknownVoice
from vivavoce.tts_engine.voices.store import StoredVoice, VoiceMetadata

HERE = Path(__file__).parent
VERSIONS = ("1.25.24", "2.0.2")
PITCHES = tuple(range(300, 3300, 150))
TIMEOUT_S = 240.0
CASES = 15


class FakeVoiceRegistry:
    """Stores voices without encoding their recordings; the default voice speaks for each."""

    def __init__(self, engine: Engine) -> None:
        self._voices = engine.voices
        self._stored: dict[str, StoredVoice] = {}

    def resolve(self, name: str | None, grant: Grant, default: str | None = None) -> str:
        return self._voices.get(None if name in self._stored else name).id

    def enrolled_voices(self, grant: Grant) -> tuple[StoredVoice, ...]:
        return tuple(self._stored.values())

    def find(self, voice_id: str, grant: Grant) -> StoredVoice:
        if voice_id not in self._stored:
            raise UnknownVoice(f"no voice {voice_id!r}")
        return self._stored[voice_id]

    async def create(self, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        voice = StoredVoice(str(new.voice_id), new.name, "", 1, len(data), "", 0.0, 0.0, VoiceMetadata())
        self._stored[voice.id] = voice
        return voice

    async def replace(self, voice_id: str, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        self._stored[voice_id] = replace(self.find(voice_id, grant), changed_at=1.0)
        return self._stored[voice_id]

    async def remove(self, voice_id: str, grant: Grant) -> StoredVoice:
        return self._stored.pop(self.find(voice_id, grant).id)


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """Return an interpreter with one version of the SDK."""
    return Path(python_with(f"dashscope=={request.param}"))


class Server:
    """A server with twenty voices, and the environment variables of programs that use it."""

    def __init__(self, port: int, key: str, backend: StandInBackend, sockets: DashScopeSocketApi) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "NO_PROXY": "*",
            "DASHSCOPE_API_KEY": key,
            "DASHSCOPE_WEBSOCKET_BASE_URL": f"ws://127.0.0.1:{port}/api-ws/v1/inference",
            "DASHSCOPE_HTTP_BASE_URL": f"http://127.0.0.1:{port}/api/v1",
        }
        self.backend = backend
        self.sockets = sockets

    async def run_program(self, python: Path, program: str, out: Path) -> list[str]:
        """Run a program and return the lines that it prints."""
        process = await asyncio.create_subprocess_exec(
            *(python, HERE / program, out),
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, errors.decode()[-3_000:]
        return output.decode().splitlines()


@asynccontextmanager
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("sdk", (Scope.SPEAK, Scope.ENROLL), KeyLimits())
    backend, store, access = StandInBackend(PITCHES), AudioStore(), AccessControl(keys)
    async with await Engine.open(backend=backend) as engine:
        voices: Any = FakeVoiceRegistry(engine)
        speech = SpeechServer(engine, access, voices, UrlGuard(), SpeechApiPolicy())
        sockets = DashScopeSocketApi(speech, voices)
        http = DashScopeHttpApi(speech, speech.guard, store)
        app = make_app(
            unready=lambda: None,
            registry=engine.metrics.registry,
            access=access,
            mounts=[Mount(sockets.routes(), None), Mount(http.routes(), None)],
        )
        with bind_socket("127.0.0.1", 0) as sock:
            serving = HttpServer(app, sock)
            running = asyncio.create_task(serving.run_until_closed())
            await serving.wait_started(running)
            yield Server(sock.getsockname()[1], key, backend, sockets)
            await sockets.finish(0.0)
            serving.close()
            await running
        store.close()


def seconds(path: Path) -> float:
    if path.suffix == ".pcm":
        return path.stat().st_size / 2 / int(path.suffixes[-2][1:])
    with av.open(io.BytesIO(path.read_bytes())) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def pitch_of(path: Path) -> int:
    samples = np.frombuffer(path.read_bytes(), "<i2").astype(np.float64)[:9600]
    peak = int(np.argmax(np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 48_000)))) / 2
    return min(PITCHES, key=lambda pitch: abs(pitch - peak))


def results(path: Path) -> dict[str, Any]:
    cases = json.loads(path.read_text())
    failed = [f"{case['case']}: {case['found']}" for case in cases if not case["passed"]]
    assert not failed, "\n".join(failed)
    return {case["case"]: case["found"] for case in cases}


def test_every_feature_of_the_sdk_works(python: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with server(tmp_path) as running:
            await running.run_program(python, "dashscope_cases.py", tmp_path)
            async with asyncio.timeout(30):
                while running.backend.open_slots:
                    await asyncio.sleep(0.01)

    asyncio.run(run())
    found = results(tmp_path / "results.json")
    assert len(found) == CASES

    expected_s = 6 * 0.2 + 0.32 + 0.02
    for case in ("one_shot", "asynchronous", "http", "http_stream"):
        assert expected_s - 0.05 <= seconds(tmp_path / found[case]) <= expected_s + 0.2, case
    assert len(found["every_format"]) == 30
    for name in found["every_format"]:
        assert 0.4 <= seconds(tmp_path / name) <= 0.75, name

    spoken = found["streaming"]
    assert [word for word, _, _ in spoken["words"]] == ["One", "two", "three", "four.", "Five", "six."]
    starts = [start for _, start, _ in spoken["words"]]
    assert starts == sorted(starts)
    assert seconds(tmp_path / spoken["audio"]) == pytest.approx(expected_s)
    assert seconds(tmp_path / found["ssml"]) == pytest.approx(0.62)

    pooled = found["pool_of_20"]
    for number, names in enumerate(pooled["files"]):
        assert [pitch_of(tmp_path / name) for name in names] == [PITCHES[number]] * 3
    assert pooled["sockets"] == 20  # every connection of the pool was reused


@pytest.mark.parametrize("version", VERSIONS)
def test_a_conversation_with_the_sdk_works(version: str, gateway: dict[str, str]) -> None:
    server = gateway["url"], gateway["key"], gateway["poor_key"]
    assert run_python_program(f"dashscope=={version}", HERE / "dashscope" / "sdk.py", server) == 6


def test_a_program_of_the_documentation_runs_with_another_environment(python: Path, tmp_path: Path) -> None:
    async def run() -> list[str]:
        async with server(tmp_path) as running:
            return await running.run_program(python, "dashscope_sample.py", tmp_path)

    lines = asyncio.run(run())
    assert sum("first package after" in line for line in lines) == 3
    assert not any("failed" in line for line in lines)
    for number in range(3):
        assert seconds(tmp_path / f"result_{number}.mp3") > 1.0
