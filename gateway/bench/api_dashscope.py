"""The API bench's part for DashScope: pooled sockets as its SDK keeps them, without the SDK's 100 ms poll.

    run-task ->  <- task-started   continue-task, finish-task ->   <- the first binary frame

is timed from before the first arrow to the last one, on sockets that were open before. The servers are
processes of their own; the one with tones for voices is there to tell whose speech arrives at whom.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from ...tts_engine.engine import Engine
from ...tts_engine.standin_backend import StandInBackend
from ..access.keys import KeyLimits, KeysFile, Scope
from ..serve import Gateway
from ..settings import Settings
from .engine_watch import EngineWatch
from .engine_watch import open_connection as open_metrics_connection
from .report import BenchFigure

POOL_SIZE: Final = 20
TASK_COUNT: Final = 100
IDLE_SOCKETS: Final = 500
PITCHES_HZ: Final = tuple(range(300, 3300, 150))
SENTENCE: Final = "Thank you for calling, how can I help you today?"
_TASK_TIMEOUT_S: Final = 60.0
_IDLE_CLOSED_S: Final = (58.0, 64.0)
_WARM_UP_TASKS: Final = 3


@dataclass(frozen=True, slots=True)
class _TaskResult:
    """One task. first_ms: from before run-task to the first audio."""

    first_ms: float
    pcm: bytes
    failed: bool


def dashscope_figures(url: str, requests: int) -> list[BenchFigure]:
    """All of this API's figures; ``url``: a server of the packaged voice."""
    address = url.removeprefix("http://")
    return [
        *asyncio.run(_first_byte_figures(address, requests)),
        *asyncio.run(_throughput_figures(address)),
        *asyncio.run(_disconnect_figures(address, min(20, requests))),
        *asyncio.run(_voice_isolation_figures()),
        *asyncio.run(_idle_socket_figures()),
    ]


async def _first_byte_figures(address: str, requests: int) -> list[BenchFigure]:
    async with _open_pool(address, 1) as (socket,):
        alone = [await _run_task(socket, SENTENCE) for _ in range(requests + _WARM_UP_TASKS)]
    async with _open_pool(address, POOL_SIZE) as sockets:
        tasks_per_socket = max(3, requests // 10)
        together = await asyncio.gather(
            *(_run_tasks(socket, SENTENCE, tasks_per_socket) for socket in sockets)
        )
    one = [heard.first_ms for heard in alone[_WARM_UP_TASKS:]]
    many = [heard.first_ms for tasks in together for heard in tasks]
    return [
        BenchFigure("DashScope pooled, 1 client: first byte, p50", _percentile(one, 50), "ms", at_most=60.0),
        BenchFigure("DashScope pooled, 1 client: first byte, p95", _percentile(one, 95), "ms"),
        BenchFigure("DashScope pooled, 20 clients: first byte, p50", _percentile(many, 50), "ms"),
        BenchFigure(
            "DashScope pooled, 20 clients: first byte, p95", _percentile(many, 95), "ms", at_most=250.0
        ),
    ]


async def _throughput_figures(address: str) -> list[BenchFigure]:
    """100 tasks over 20 sockets, the packaged voice: how much speech a second."""
    async with _open_pool(address, POOL_SIZE) as sockets:
        started = time.perf_counter()
        heard = await asyncio.gather(
            *(_run_tasks(socket, SENTENCE, TASK_COUNT // POOL_SIZE) for socket in sockets)
        )
        took_s = time.perf_counter() - started
    tasks = [task for some in heard for task in some]
    speech_s = sum(len(task.pcm) for task in tasks) / 48_000
    return [
        BenchFigure(
            "DashScope, 100 tasks over 20 sockets: failed", sum(task.failed for task in tasks), "", at_most=0
        ),
        BenchFigure("DashScope, 100 tasks over 20 sockets: speech", speech_s / took_s, "s/s"),
    ]


async def _disconnect_figures(address: str, clients: int) -> list[BenchFigure]:
    """Clients that vanish, or stop reading, while they are spoken to: how long the engine works on."""
    free_ms = []
    for _ in range(clients):
        async with _speaking_connection(address) as (engine, socket):
            aborted_at = time.perf_counter()
            socket.transport.abort()
            free_ms.append(await asyncio.to_thread(engine.idle_after_ms, aborted_at))
    async with _speaking_connection(address) as (engine, socket):
        socket.transport.pause_reading()
        ahead_s, settled_ms = await asyncio.to_thread(engine.rendered_until_settled, time.perf_counter())
        socket.transport.abort()
    return [
        BenchFigure("DashScope, a client vanishes: engine free, worst", max(free_ms), "ms", at_most=100.0),
        BenchFigure("DashScope, a client stops reading: speech rendered for it", ahead_s, "s"),
        BenchFigure(
            "DashScope, a client stops reading: rendering ends after", settled_ms, "ms", at_most=100.0
        ),
    ]


@contextlib.asynccontextmanager
async def _speaking_connection(address: str) -> AsyncIterator[tuple[EngineWatch, ClientConnection]]:
    """A client that has its first audio of a long text, and the engine that speaks to it."""
    with open_metrics_connection(f"http://{address}") as watching:
        engine = await asyncio.to_thread(EngineWatch, watching)
        async with _open_pool(address, 1) as (socket,):
            await socket.send(_run_task_message("leaving", "longanyang", {"text": f"{SENTENCE} " * 50}))
            while not isinstance(await socket.recv(), bytes):
                pass
            yield engine, socket


async def _voice_isolation_figures() -> list[BenchFigure]:
    """100 tasks over 20 sockets, each socket with a voice of its own: what arrives at whom."""
    async with _tone_server_process() as (address, _, key), _open_pool(address, POOL_SIZE, key) as sockets:
        heard = await asyncio.gather(
            *(
                _run_tasks(socket, "one two three four", TASK_COUNT // POOL_SIZE, f"tone-{pitch}")
                for socket, pitch in zip(sockets, PITCHES_HZ, strict=True)
            )
        )
    mixed = sum(
        task.failed or not _is_single_tone(task.pcm, pitch)
        for tasks, pitch in zip(heard, PITCHES_HZ, strict=True)
        for task in tasks
    )
    return [BenchFigure("DashScope, 100 tasks of 20 voices: failed or mixed up", mixed, "", at_most=0)]


async def _idle_socket_figures() -> list[BenchFigure]:
    """500 sockets with a key and without a task: what each costs, and when they are closed."""
    async with _tone_server_process() as (address, pid, key):
        async with _open_pool(address, POOL_SIZE, key):
            pass  # what the first sockets alone cost is not theirs
        before = _resident_kb(pid)
        opened = time.perf_counter()
        async with _open_pool(address, IDLE_SOCKETS, key) as sockets:
            await asyncio.sleep(1.0)
            each_kb = (_resident_kb(pid) - before) / IDLE_SOCKETS
            closed = await asyncio.gather(*(_closed_after_s(socket, opened) for socket in sockets))
    early, late = _IDLE_CLOSED_S
    punctual = sum(early <= after_s <= late and code == 1000 for after_s, code in closed)
    return [
        BenchFigure("DashScope, 500 idle sockets with keys: memory of each", each_kb, "kB", at_most=60.0),
        BenchFigure(
            "DashScope, 500 idle sockets: closed with 1000 after 60 s", punctual, "", at_least=IDLE_SOCKETS
        ),
    ]


# A client


@contextlib.asynccontextmanager
async def _open_pool(address: str, size: int, key: str = "") -> AsyncIterator[list[ClientConnection]]:
    """Sockets that are open and idle."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                connect(
                    f"ws://{address}/api-ws/v1/inference",
                    additional_headers=headers,
                    compression=None,
                    proxy=None,
                    max_queue=None,
                )
            )
            for _ in range(size)
        ]


async def _run_tasks(
    socket: ClientConnection, text: str, count: int, voice: str = "longanyang"
) -> Sequence[_TaskResult]:
    return [await _run_task(socket, text, voice) for _ in range(count)]


async def _run_task(socket: ClientConnection, text: str, voice: str = "longanyang") -> _TaskResult:
    task_id, first_ms, pcm = uuid4().hex, 0.0, bytearray()
    started = time.perf_counter()
    async with asyncio.timeout(_TASK_TIMEOUT_S):
        await socket.send(_run_task_message(task_id, voice, {}))
        async for frame in socket:
            if isinstance(frame, bytes):
                first_ms = first_ms or 1_000 * (time.perf_counter() - started)
                pcm += frame
                continue
            header = json.loads(frame)["header"]
            assert header["task_id"] == task_id, "an event of another task"
            match header["event"]:
                case "task-started":
                    await socket.send(_message("continue-task", task_id, {"text": text}))
                    await socket.send(_message("finish-task", task_id, {}))
                case "task-finished" | "task-failed" as event:
                    return _TaskResult(first_ms, bytes(pcm), event == "task-failed")
    return _TaskResult(first_ms, bytes(pcm), True)


def _run_task_message(task_id: str, voice: str, input_fields: dict[str, str]) -> str:
    parameters = {"voice": voice, "format": "pcm", "sample_rate": 24_000}
    return _message("run-task", task_id, input_fields, model="cosyvoice-v3-flash", parameters=parameters)


def _message(action: str, task_id: str, input_fields: dict[str, str], **payload: object) -> str:
    header = {"action": action, "task_id": task_id, "streaming": "duplex"}
    return json.dumps({"header": header, "payload": {"input": input_fields, **payload}})


async def _closed_after_s(socket: ClientConnection, opened: float) -> tuple[float, int | None]:
    try:
        async with asyncio.timeout(90.0):
            await socket.recv()
    except (ConnectionClosed, TimeoutError):
        pass
    return time.perf_counter() - opened, socket.close_code


def _is_single_tone(pcm: bytes, pitch_hz: int) -> bool:
    """Whether every tenth of a second is that tone or silence."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    pieces = samples[: len(samples) // 2400 * 2400].reshape(-1, 2400)
    loud = pieces[np.abs(pieces).max(axis=1) > 1_000]
    peaks = np.argmax(np.abs(np.fft.rfft(loud * np.hanning(2400), axis=1)), axis=1) * 10.0
    return bool(len(loud) >= 6 and (np.abs(peaks - pitch_hz) <= 20).all())


def _percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


# A server


@contextlib.asynccontextmanager
async def _tone_server_process() -> AsyncIterator[tuple[str, int, str]]:
    """A server of tones that asks for keys: host:port, process id, a key."""
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        key = KeysFile(keys).add("bench", (Scope.SPEAK,), KeyLimits())
        command = [sys.executable, "-m", __name__, str(keys)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            ready = await process.stdout.readline()
            yield ready.decode().strip(), process.pid, key
        finally:
            process.terminate()
            await process.wait()


def _resident_kb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def _serve_tone_voices(keys: Path) -> None:
    settings = Settings(http_port=0, audiosocket_port=0, agent="none", keys_file=keys)
    async with (
        await Engine.open(backend=StandInBackend(PITCHES_HZ, slots=TASK_COUNT)) as engine,
        contextlib.aclosing(await Gateway.open(settings, engine=engine)) as gateway,
    ):
        host, port = gateway.addresses.http
        print(f"{host}:{port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve_tone_voices(Path(sys.argv[1])))
