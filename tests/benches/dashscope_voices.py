"""DashScope with a server of tone voices: isolation of the clients' speech, and the cost of idle sockets."""

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from shared.engine.standin_backend import StandInBackend
from shared.gateways.made_settings import make_settings
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.cli.bench.api_clients import DashScopeClient
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import VivavoceError

TASK_COUNT: Final = 100
IDLE_SOCKETS: Final = 500
PITCHES_HZ: Final = tuple(range(300, 3300, 150))  # of the 20 voices
_IDLE_CLOSED_S: Final = (58.0, 64.0)


async def voice_isolation_figures() -> list[BenchFigure]:
    """Run 100 tasks of 20 concurrent clients with a voice each; count recordings with another voice."""
    async with _tone_server_process() as (url, _, key):
        client = DashScopeClient(url, key)
        await client.open(len(PITCHES_HZ))
        recordings_by_voice = await asyncio.gather(*(_speak_tasks(client, pitch) for pitch in PITCHES_HZ))
        await client.aclose()
    mixed = sum(
        not _is_single_tone(pcm, pitch)
        for recordings, pitch in zip(recordings_by_voice, PITCHES_HZ, strict=True)
        for pcm in recordings
    )
    return [BenchFigure("DashScope, 100 tasks of 20 voices: failed or mixed up", mixed, "", at_most=0)]


async def _speak_tasks(client: DashScopeClient, pitch_hz: int) -> list[bytes]:
    recordings = []
    for _ in range(TASK_COUNT // len(PITCHES_HZ)):
        try:
            chunks = client.speak(_words("one two three four"), f"tone-{pitch_hz}")
            recordings.append(b"".join([audio async for audio in chunks]))
        except VivavoceError:
            recordings.append(b"")  # counts as mixed up
    return recordings


async def _words(text: str) -> AsyncIterator[str]:
    yield text


async def idle_socket_figures() -> list[BenchFigure]:
    """Open 500 sockets without a task; measure the memory of each and when the server closes them."""
    async with _tone_server_process() as (url, pid, key):
        warm_up = DashScopeClient(url, key)
        await warm_up.open(len(PITCHES_HZ))  # the server's one-time allocations
        await warm_up.aclose()
        before = _resident_kb(pid)
        opened = time.perf_counter()
        client = DashScopeClient(url, key)
        await client.open(IDLE_SOCKETS)
        await asyncio.sleep(1.0)
        each_kb = (_resident_kb(pid) - before) / IDLE_SOCKETS
        closed = await asyncio.gather(*(_closed_after_s(socket, opened) for socket in client.idle))
    early, late = _IDLE_CLOSED_S
    punctual = sum(early <= after_s <= late and code == 1000 for after_s, code in closed)
    return [
        BenchFigure("DashScope, 500 idle sockets with keys: memory of each", each_kb, "kB", at_most=60.0),
        BenchFigure(
            "DashScope, 500 idle sockets: closed with 1000 after 60 s", punctual, "", at_least=IDLE_SOCKETS
        ),
    ]


async def _closed_after_s(socket: ClientConnection, opened: float) -> tuple[float, int | None]:
    try:
        async with asyncio.timeout(90.0):
            await socket.recv()
    except (ConnectionClosed, TimeoutError):
        pass
    return time.perf_counter() - opened, socket.close_code


def _is_single_tone(pcm: bytes, pitch_hz: int) -> bool:
    """Whether every tenth of a second is that tone or silence, and at least six are the tone."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    chunks = samples[: len(samples) // 2400 * 2400].reshape(-1, 2400)
    loud = chunks[np.abs(chunks).max(axis=1) > 1_000]
    peaks = np.argmax(np.abs(np.fft.rfft(loud * np.hanning(2400), axis=1)), axis=1) * 10.0
    return bool(len(loud) >= 6 and (np.abs(peaks - pitch_hz) <= 20).all())


@contextlib.asynccontextmanager
async def _tone_server_process() -> AsyncIterator[tuple[str, int, str]]:
    """A server with tone voices that requires keys: its URL, process id and a key."""
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        key = KeysFile(keys).add("bench", (Scope.SPEAK,), KeyLimits())
        command = [sys.executable, "-m", __name__, str(keys)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            ready = await process.stdout.readline()
            yield f"http://{ready.decode().strip()}", process.pid, key
        finally:
            process.terminate()
            await process.wait()


def _resident_kb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def _serve_tone_voices(keys: Path) -> None:
    settings = make_settings(http_port=0, audiosocket_port=0, agents_default="none", access_keys_file=keys)
    async with (
        await Engine.open(backend=StandInBackend(PITCHES_HZ, slots=TASK_COUNT)) as engine,
        contextlib.aclosing(await Gateway.open(settings, engine=engine)) as gateway,
    ):
        host, port = gateway.addresses.http
        print(f"{host}:{port}", flush=True)
        await asyncio.Event().wait()


def measure() -> BenchReport:
    """Run both measurements, each with a server process of its own."""
    figures = [*asyncio.run(voice_isolation_figures()), *asyncio.run(idle_socket_figures())]
    return BenchReport("DashScope's sockets", tuple(figures))


if __name__ == "__main__":
    asyncio.run(_serve_tone_voices(Path(sys.argv[1])))
